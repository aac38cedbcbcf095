"""One of several classes: the outputs are logits. What every classifier of fedstein has."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from pydantic import Field, field_validator
from torch import Tensor
from torch.nn import functional

from fedstein.errors import UserError
from fedstein.likelihoods.base import Likelihood, finite, own
from fedstein.metrics import (
    Predicted,
    Prediction,
    accuracy,
    adaptive_ece,
    brier,
    class_accuracy,
    mix,
    nll,
    reliability,
)

__all__ = ["Categorical", "score_predictions"]


class Categorical(Likelihood):
    """Settings of the softmax likelihood.

    With `class_weights` the losses of rare classes can count more. That is no likelihood any more but a weighted one:
    an example of weight w counts as if it were there w times. Predictions and metrics know nothing of the weights.

    >>> Categorical().losses(torch.zeros(1, 2), torch.tensor([1]))
    tensor([0.6931])
    """

    name: ClassVar[str] = "categorical"
    summary: ClassVar[str] = "one of several classes; outputs are logits"
    headline: ClassVar[tuple[str, ...]] = ("accuracy", "ece", "nll")
    lower: ClassVar[frozenset[str]] = frozenset({"nll", "ece", "brier", "mce", "adaptive_ece"})
    higher: ClassVar[frozenset[str]] = frozenset({"accuracy", "class_accuracy"})

    class_weights: tuple[float, ...] | None = Field(
        None, description="what an example of each class counts, for classes that are rare; 1 for each if left out"
    )

    @field_validator("class_weights", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    @field_validator("class_weights")
    @classmethod
    def _weights(cls, value: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if value is not None and not (
            len(value) and all(math.isfinite(w) and w >= 0 for w in value) and any(w > 0 for w in value)
        ):
            raise ValueError(f"must be finite weights from 0, not all of them 0. Got {list(value)} instead.")
        return value

    def outputs(self, targets: int) -> int:
        """One for each class; `targets` is the number of classes."""
        if self.class_weights is not None and len(self.class_weights) != targets:
            raise UserError(
                f"The likelihood's 'class_weights' must be one for each of {targets} classes. "
                f"Got {len(self.class_weights)} instead."
            )
        return targets

    def check(self, y: Tensor, what: str, outputs: int) -> Tensor:
        """Labels (n,) of int64, from 0 to one below the number of outputs.

        Args:
            y: what somebody gave.
            what: whose it is, for messages.
            outputs: how many classes the module speaks of.
        """
        self.outputs(outputs)
        whole = y.dim() == 1 and not y.is_complex() and not (y.is_floating_point() and not torch.equal(y, y.round()))
        if not whole:
            raise UserError(f"{what}: y must be whole-number labels of shape (n,). Got {y.dtype} {tuple(y.shape)}.")
        if len(y) and not (float(y.min()) >= 0 and float(y.max()) < outputs):
            raise UserError(
                f"{what}: labels must be in 0..{outputs - 1} for {outputs} classes. Got {y.min()}..{y.max()} instead."
            )
        return y.long()

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """(B,) cross-entropies, weighted if there are weights.

        Args:
            outputs: (B, classes) logits.
            y: (B,) labels.
        """
        if self.class_weights is None:
            return functional.cross_entropy(outputs, y, reduction="none")
        weights = torch.tensor(self.class_weights, dtype=outputs.dtype, device=outputs.device)
        return functional.cross_entropy(outputs, y, weights, reduction="none")

    def draw(self, outputs: Tensor, generator: torch.Generator) -> Tensor:
        """(B,) labels drawn from the softmax.

        Args:
            outputs: (B, classes) logits.
            generator: of the draws.
        """
        return torch.multinomial(outputs.softmax(1).cpu(), 1, generator=generator)[:, 0].to(outputs.device)

    def predict(self, outputs: Tensor) -> Prediction:
        """The mixture over particles of logits (N, B, classes)."""
        return mix(outputs.log_softmax(2))

    def scores(self, prediction: Predicted, y: Tensor, bins: int = 15) -> dict[str, Any]:
        """All metrics of a classifier, as plain numbers.

        Args:
            prediction: of B inputs.
            y: (B,) labels.
            bins: of the ECE.
        """
        return score_predictions(own(prediction, Prediction), y, bins)

    def ignorance(self, outputs: int) -> float:
        """The loss of a guess: log(classes)."""
        return math.log(outputs)

    def better_than_a_guess(self, outputs: Tensor, y: Tensor) -> Tensor:
        """(B,) of bool: where the true class is more probable than 1 / classes.

        Args:
            outputs: (N, B, classes) logits.
            y: (B,) labels.
        """
        mean = outputs.log_softmax(2).exp().mean(0)
        return mean[torch.arange(len(y), device=y.device), y] > 1.0 / mean.shape[1]


def score_predictions(prediction: Prediction, labels: Tensor, bins: int) -> dict[str, Any]:
    """All metrics of a classifier, as plain numbers.

    Args:
        prediction: for n inputs.
        labels: (n,) true classes.
        bins: of the ECE.
    """
    probabilities = prediction.probabilities
    finite(probabilities)
    curve = reliability(probabilities, labels, bins)
    return {
        "accuracy": accuracy(probabilities, labels),
        "ece": curve.ece(),
        "ece_bins": bins,
        "nll": nll(probabilities, labels),
        "brier": brier(probabilities, labels),
        "mce": curve.mce(),
        "adaptive_ece": adaptive_ece(probabilities, labels, bins),
        "confidence": float(prediction.confidence.mean()),
        "aleatoric": float(prediction.aleatoric.mean()),
        "epistemic": float(prediction.epistemic.mean()),
        "class_accuracy": class_accuracy(probabilities, labels),
    }
