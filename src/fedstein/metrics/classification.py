"""Accuracy, NLL and Brier score of predicted probabilities (n, classes) against labels (n,)."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["accuracy", "brier", "class_accuracy", "nll"]


def accuracy(probabilities: Tensor, labels: Tensor) -> float:
    """Share of examples whose most probable class is right."""
    return float((probabilities.argmax(1) == labels).double().mean())


def class_accuracy(probabilities: Tensor, labels: Tensor) -> list[float | None]:
    """Accuracy among the examples of each class; None where a class has none."""
    right = probabilities.argmax(1) == labels
    return [
        float(right[labels == label].double().mean()) if (labels == label).any() else None
        for label in range(probabilities.shape[1])
    ]


def nll(probabilities: Tensor, labels: Tensor) -> float:
    """Mean negative log-probability of the true class, in nats; probabilities below 1e-38 count as 1e-38."""
    return float(
        -probabilities[torch.arange(len(labels), device=labels.device), labels].double().clamp_min(1e-38).log().mean()
    )


def brier(probabilities: Tensor, labels: Tensor) -> float:
    """Mean squared distance to the one-hot label, summed over classes: from 0 to 2."""
    one_hot = torch.nn.functional.one_hot(labels, probabilities.shape[1])
    return float((probabilities.double() - one_hot).square().sum(1).mean())
