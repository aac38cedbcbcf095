"""Several yes-or-no labels of an example: the mixture that N particles predict, and how good it is."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fedstein.metrics.predictions import Rows

__all__ = ["BernoulliMixture", "auroc", "f1"]


@dataclass(frozen=True, repr=False)
class BernoulliMixture(Rows):
    """For each of n inputs, what N particles say of each label; entropies in nats, of each label alone."""

    log_odds: Tensor  # (n, N, labels)

    @property
    def probabilities(self) -> Tensor:
        """(n, labels) of yes."""
        return self.log_odds.sigmoid().mean(1)

    @property
    def label(self) -> Tensor:
        """(n, labels) whether yes is the more probable answer."""
        return self.probabilities > 0.5

    @property
    def aleatoric(self) -> Tensor:
        """(n, labels) mean entropy of the particles."""
        size = self.log_odds.abs()  # p log p + (1 - p) log(1 - p) without the log of 0
        return (functional.softplus(-size) + size * (-size).sigmoid()).mean(1)

    @property
    def epistemic(self) -> Tensor:
        """(n, labels) mutual information of label and particle."""
        yes, no = self.log_odds.sigmoid().mean(1), (-self.log_odds).sigmoid().mean(1)
        total: Tensor = -(torch.special.xlogy(yes, yes) + torch.special.xlogy(no, no))
        return (total - self.aleatoric).clamp_min(0.0)

    @property
    def doubt(self) -> Tensor:
        """(n,) the epistemic parts of all labels."""
        return self.epistemic.sum(1)

    def divergence(self, other: BernoulliMixture) -> Tensor:
        """(n,) KL divergence, in nats, of the other from this one: the sum over labels, each alone."""
        p, q = self.probabilities, other.probabilities.clamp(1e-12, 1 - 1e-12)
        yes: Tensor = torch.special.xlogy(p, p / q)
        no: Tensor = torch.special.xlogy(1 - p, (1 - p) / (1 - q))
        return (yes + no).sum(1)

    def log_density(self, y: Tensor) -> Tensor:
        """(n,) log-probability of all labels `y` (n, labels) of an example together."""
        side = 2 * y.to(self.log_odds.dtype) - 1
        each = functional.logsigmoid(side[:, None] * self.log_odds).sum(2)
        return each.logsumexp(1) - math.log(self.log_odds.shape[1])

    def __repr__(self) -> str:
        n, _, labels = self.log_odds.shape
        return (
            f"BernoulliMixture({n:,} inputs, {labels} label{'s' if labels > 1 else ''}: mean probability "
            f"{float(self.probabilities.mean()):.3f}, epistemic {float(self.epistemic.mean()):.4f} nats)"
        )

    def _repr_html_(self) -> str:
        """The first few, as a notebook shows them."""
        few = self.rows(torch.arange(min(10, len(self)), device=self.log_odds.device))
        columns = (few.probabilities, few.aleatoric, few.epistemic)
        rows = "".join(
            f"<tr><td>{i}</td><td>{t}</td>{''.join(f'<td>{float(c[i, t]):.4f}</td>' for c in columns)}</tr>"
            for i in range(len(few))
            for t in range(few.log_odds.shape[2])
        )
        head = "".join(f"<th>{word}</th>" for word in ("input", "label", "probability", "aleatoric", "epistemic"))
        return f"<p>{self!r}</p><table><tr>{head}</tr>{rows}</table>"


def f1(predicted: Tensor, y: Tensor) -> tuple[float, list[float]]:
    """F1 of all labels together (micro), and of each label; 0 where nothing is yes nor said to be.

    Args:
        predicted: (n, labels) of bool.
        y: (n, labels) of 0 and 1.
    """
    truth = y.bool()
    both = (predicted & truth).sum(0).double()
    either = (predicted.sum(0) + truth.sum(0)).double()
    each = 2 * both / either.clamp_min(1.0)
    return float(2 * both.sum() / either.sum().clamp_min(1.0)), each.tolist()


def auroc(scores: Tensor, y: Tensor) -> float | None:
    """Probability that a random yes has a larger score (n,) than a random no, ties half; None without both.

    Args:
        scores: (n,), larger for yes.
        y: (n,) of 0 and 1.
    """
    truth = y.bool()
    yes, no = int(truth.sum()), int((~truth).sum())
    if not yes or not no:
        return None
    _, place, counts = torch.unique(scores, return_inverse=True, return_counts=True)
    last = counts.cumsum(0).double()
    ranks = (last - (counts.double() - 1) / 2)[place]  # ties share their mean rank
    return float((ranks[truth].sum() - yes * (yes + 1) / 2) / (yes * no))
