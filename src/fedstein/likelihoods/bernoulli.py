"""Yes or no, for one label of an example or several at once: the outputs are log-odds."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from fedstein.errors import UserError
from fedstein.likelihoods.base import Likelihood, finite, own
from fedstein.likelihoods.values import as_table
from fedstein.metrics import BernoulliMixture, Predicted, auroc, f1, reliability

__all__ = ["Bernoulli"]


class Bernoulli(Likelihood):
    """Settings of the Bernoulli likelihood: there are none.

    >>> Bernoulli().losses(torch.zeros(1, 3), torch.tensor([[1.0, 0.0, 1.0]])) / 3
    tensor([0.6931])
    """

    name: ClassVar[str] = "bernoulli"
    summary: ClassVar[str] = "yes or no, for each of several labels; outputs are log-odds"
    headline: ClassVar[tuple[str, ...]] = ("accuracy", "macro_f1", "ece", "nll")
    lower: ClassVar[frozenset[str]] = frozenset({"nll", "ece", "mce", "brier"})
    higher: ClassVar[frozenset[str]] = frozenset(
        {"accuracy", "exact_match", "micro_f1", "macro_f1", "auroc", "f1"}
    )  # accuracy, f1 and auroc are also told of each label

    def check(self, y: Tensor, what: str, outputs: int) -> Tensor:
        """0 and 1, or bool, (n, labels) as float32; (n,) is one label.

        Args:
            y: what somebody gave.
            what: whose it is, for messages.
            outputs: how many labels the module speaks of.
        """
        table = as_table(y, what, outputs)
        other = (table != 0) & (table != 1)
        if other.any():
            raise UserError(f"{what}: y must be 0 or 1, no or yes. Got {float(table[other][0]):g} instead.")
        return table.float()

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """(B,) sums of the labels' cross-entropies.

        Args:
            outputs: (B, labels) log-odds.
            y: (B, labels) of 0 and 1.
        """
        return -functional.logsigmoid((2 * y - 1) * outputs).sum(-1)

    def draw(self, outputs: Tensor, generator: torch.Generator) -> Tensor:
        """(B, labels) of 0 and 1.

        Args:
            outputs: (B, labels) log-odds.
            generator: of the draws.
        """
        return torch.bernoulli(outputs.sigmoid().cpu(), generator=generator).to(outputs.device)

    def predict(self, outputs: Tensor) -> BernoulliMixture:
        """The mixture over particles of log-odds (N, B, labels)."""
        return BernoulliMixture(outputs.double().transpose(0, 1))

    def scores(self, prediction: Predicted, y: Tensor, bins: int = 15) -> dict[str, Any]:
        """All metrics of labels, as plain values.

        `nll` is that of all labels of an example together; accuracy, Brier score and ECE are over all labels of all
        examples; an AUROC is None where a label is always or never there.

        Args:
            prediction: of B inputs.
            y: (B, labels) of 0 and 1.
            bins: of the ECE.
        """
        mixture = own(prediction, BernoulliMixture)
        finite(mixture.log_odds)
        yes, predicted = mixture.probabilities, mixture.label
        right = predicted == y.bool()
        both = torch.stack([1 - yes, yes], -1).reshape(-1, 2)  # every label as a classifier of two classes
        curve = reliability(both, y.reshape(-1).long(), bins)
        micro, each = f1(predicted, y)
        areas = [auroc(yes[:, label], y[:, label]) for label in range(y.shape[1])]
        known = [area for area in areas if area is not None]
        scores: dict[str, Any] = {
            "accuracy": float(right.double().mean()),
            "exact_match": float(right.all(1).double().mean()),
            "ece": curve.ece(),
            "ece_bins": bins,
            "nll": float(-mixture.log_density(y).mean()),
            "brier": float((yes - y).square().mean()),
            "mce": curve.mce(),
            "micro_f1": micro,
            "macro_f1": sum(each) / len(each),
            "auroc": sum(known) / len(known) if known else None,
            "aleatoric": float(mixture.aleatoric.mean()),
            "epistemic": float(mixture.epistemic.mean()),
        }
        if y.shape[1] > 1:
            scores |= {"accuracy_each": right.double().mean(0).tolist(), "f1_each": each, "auroc_each": areas}
        return scores

    def ignorance(self, outputs: int) -> float:
        """The loss of tossing a coin for each label."""
        return outputs * math.log(2)
