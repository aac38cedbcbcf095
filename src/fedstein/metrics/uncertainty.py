r"""Predictions of a set of particles, and how uncertain they are.

The prediction is the mixture :math:`\bar p = \frac1N \sum_n p_n`. Its entropy splits into an aleatoric part
(the mean entropy of the particles) and an epistemic part (their disagreement, the mutual information):

.. math:: H(\bar p) = \frac1N \sum_n H(p_n) + I.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedstein.metrics.predictions import Rows

__all__ = ["Prediction", "kl", "mix", "ood_auroc"]

_LEAST = 1e-12


@dataclass(frozen=True, repr=False)
class Prediction(Rows):
    """For each of n inputs; entropies in nats."""

    probabilities: Tensor  # (n, classes), the mixture over particles
    aleatoric: Tensor  # (n,)
    epistemic: Tensor  # (n,)

    @property
    def label(self) -> Tensor:
        """(n,) most probable classes."""
        return self.probabilities.argmax(1)

    @property
    def confidence(self) -> Tensor:
        """(n,) probability of the most probable class."""
        return self.probabilities.amax(1)

    @property
    def entropy(self) -> Tensor:
        """(n,) total predictive entropy."""
        return self.aleatoric + self.epistemic

    @property
    def doubt(self) -> Tensor:
        """(n,) the epistemic part."""
        return self.epistemic

    def log_density(self, y: Tensor) -> Tensor:
        """(n,) log-probability of the true classes `y` (n,); probabilities below 1e-38 count as 1e-38."""
        return self.probabilities[torch.arange(len(y), device=y.device), y].double().clamp_min(1e-38).log()

    def divergence(self, other: Prediction) -> Tensor:
        """(n,) KL divergence, in nats, of the other from this one."""
        return kl(self.probabilities, other.probabilities)

    def __repr__(self) -> str:
        return (
            f"Prediction({len(self.probabilities):,} inputs, {self.probabilities.shape[1]} classes: mean confidence "
            f"{float(self.confidence.mean()):.3f}, epistemic {float(self.epistemic.mean()):.4f} nats)"
        )

    def _repr_html_(self) -> str:
        """The first few, as a notebook shows them."""
        some = range(min(10, len(self.probabilities)))
        rows = "".join(
            f"<tr><td>{i}</td><td>{int(self.label[i])}</td><td>{float(self.confidence[i]):.3f}</td>"
            f"<td>{float(self.aleatoric[i]):.4f}</td><td>{float(self.epistemic[i]):.4f}</td></tr>"
            for i in some
        )
        head = "".join(f"<th>{word}</th>" for word in ("input", "label", "confidence", "aleatoric", "epistemic"))
        return f"<p>{self!r}</p><table><tr>{head}</tr>{rows}</table>"


def mix(log_probabilities: Tensor) -> Prediction:
    """The mixture of (N, n, classes) log-probabilities over the N particles."""
    each = log_probabilities.exp()
    mean = each.mean(0)
    aleatoric = -(each * log_probabilities.clamp_min(-1e4)).sum(2).mean(0)
    total = -torch.special.xlogy(mean, mean).sum(1)
    return Prediction(mean, aleatoric, (total - aleatoric).clamp_min_(0.0))


def kl(p: Tensor, q: Tensor) -> Tensor:
    """(n,) KL(p || q) of predictions (n, classes), in nats; probabilities below 1e-12 count as that."""
    a, b = p.double().clamp_min(_LEAST), q.double().clamp_min(_LEAST)
    return (a * (a.log() - b.log())).sum(1).clamp_min(0.0)


def ood_auroc(inside: Tensor, outside: Tensor) -> float:
    """Probability that a random outside input gets a larger score (n,) than a random inside one; ties count half."""
    ordered = inside.cpu().double().sort().values
    others = outside.cpu().double()
    below, up_to = torch.searchsorted(ordered, others), torch.searchsorted(ordered, others, right=True)
    return float((below + up_to).double().mean() / (2 * len(ordered)))
