"""A problem: a model, who holds which data, a prior, and how to judge particles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from fedstein.data import Examples
from fedstein.errors import DivergedError
from fedstein.inference import GaussianPrior, Prior
from fedstein.metrics import (
    Prediction,
    accuracy,
    adaptive_ece,
    brier,
    class_accuracy,
    mix,
    nll,
    reliability,
)
from fedstein.models import ParticleModel

__all__ = ["Init", "Metrics", "Problem", "predict", "score_predictions"]

Metrics = dict[str, Any]
Init = Literal["fan-in", "prior"]

_SOME = 5000  # examples of agents that are looked at in an evaluation
_CHUNK = 2000  # inputs predicted at a time, so that memory does not grow with the test set


@dataclass(frozen=True)
class Problem:
    """Everything about a federation but the method."""

    model: ParticleModel
    agents: list[Examples]
    prior: Prior = GaussianPrior()  # noqa: RUF009  (frozen, so one instance serves all)
    init: Init = "fan-in"
    test: Examples | None = None
    ece_bins: int = 15
    exact: Callable[[Tensor], Metrics] | None = None  # judges particles where the posterior is known
    prepare: Callable[[Tensor], Tensor] | None = None  # raw inputs to what the model takes: frozen features
    frozen: Tensor | None = None  # the particle of the network behind `prepare`
    raw_shape: torch.Size | None = None  # of one raw input, where there is a test set
    raw_test: Tensor | None = None  # the test inputs before `prepare`
    erased: tuple[int, ...] = ()  # agents that were forgotten: they keep their number and never visit again
    remote: bool = False  # the agents' examples are with the agents: here they are empty
    sizes: tuple[int, ...] = ()  # how many examples each agent has, where it matters and they are not here

    @property
    def present(self) -> list[int]:
        """The agents that take part."""
        return [agent for agent in range(len(self.agents)) if agent not in self.erased]

    def pooled(self, agents: Sequence[int] | None = None) -> Examples:
        """The examples of some agents as one agent's; of all that take part if None."""
        some = [self.agents[agent] for agent in (self.present if agents is None else agents)]
        return Examples(torch.cat([data.x for data in some]), torch.cat([data.y for data in some]))

    def evaluate(self, particles: Tensor) -> Metrics:
        """Metrics of the particles on the test set, and against the exact posterior where it is known."""
        found: Metrics = {}
        if self.test is not None:
            prediction = predict(self.model, particles, self.test.x)
            found |= score_predictions(prediction, self.test.y, self.ece_bins)
            if self.erased and not self.remote:
                found |= self._forgotten(particles, prediction)
        if self.exact is not None:
            found |= self.exact(particles)
        return found

    def forgotten_labels(self) -> list[int]:
        """Labels that nobody but the forgotten agents holds."""
        if not self.erased or self.remote:
            return []
        return sorted(set(self.pooled(self.erased).y.tolist()) - set(self.pooled().y.tolist()))

    def _forgotten(self, particles: Tensor, prediction: Prediction) -> Metrics:
        """Accuracy on the data of those who left and of those who stay, and on the test set by their labels."""
        found: Metrics = {}
        for word, agents in (("forgotten", self.erased), ("retained", self.present)):
            data = self.pooled(agents)
            some = data.take(torch.arange(0, len(data), -(-len(data) // _SOME)))
            found[f"{word}_accuracy"] = accuracy(predict(self.model, particles, some.x).probabilities, some.y)
        if labels := self.forgotten_labels():
            assert self.test is not None
            gone = torch.isin(self.test.y, torch.tensor(labels))
            for word, here in (("forgotten", gone), ("retained", ~gone)):
                if here.any():
                    found[f"{word}_label_accuracy"] = accuracy(prediction.probabilities[here], self.test.y[here])
        return found


def predict(model: ParticleModel, particles: Tensor, x: Tensor) -> Prediction:
    """The mixture over particles, for inputs (n, ...)."""
    parts = [mix(model.log_probabilities(particles, chunk)) for chunk in torch.split(x, _CHUNK)]
    return Prediction(
        torch.cat([p.probabilities for p in parts]),
        torch.cat([p.aleatoric for p in parts]),
        torch.cat([p.epistemic for p in parts]),
    )


def score_predictions(prediction: Prediction, labels: Tensor, bins: int) -> Metrics:
    """All metrics of a classifier, as plain numbers."""
    probabilities = prediction.probabilities
    if not torch.isfinite(probabilities).all():
        raise DivergedError("The predictions are no longer finite: the parameters are too large. Try a smaller step.")
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
