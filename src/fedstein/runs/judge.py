"""How particles are judged: on test examples, or against a posterior that is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedstein.data import Examples, Holdings, Rows, chunks
from fedstein.metrics import Predicted, Prediction, accuracy, join
from fedstein.models import ParticleModel
from fedstein.protocol.state import Metrics

__all__ = ["Judge", "predict", "quality"]

_SOME = 5000  # examples of agents that are looked at in an evaluation
_CHUNK = 2000  # inputs predicted at a time, so that memory does not grow with the test set


@dataclass(frozen=True, repr=False)
class Judge:
    """What particles are judged by."""

    test: Examples | None = None
    ece_bins: int = 15
    exact: Callable[[Tensor], Metrics] | None = None  # where the posterior is known
    raw_test: Rows | None = None  # the test inputs before the frozen features

    def evaluate(self, model: ParticleModel, holdings: Holdings, particles: Tensor) -> Metrics:
        """Metrics on the test set, on the data of erased agents, and against the exact posterior where it is known."""
        metrics: Metrics = {}
        if self.test is not None:
            metrics |= self._on_test(model, holdings, particles, self.test)
        if self.exact is not None:
            metrics |= self.exact(particles)
        return metrics

    def _on_test(self, model: ParticleModel, holdings: Holdings, particles: Tensor, test: Examples) -> Metrics:
        if not model.likelihood.predicts:  # a loss of one's own says nothing else
            here = particles.to(model.device)
            parts = [model.loss(here, x.to(model.device), y.to(model.device)).cpu() for x, y in _parts(test)]
            return {"loss": float(torch.cat([losses[None] for losses in parts]).mean())}
        prediction = predict(model, particles, test.x)
        metrics = model.likelihood.scores(prediction, test.y, self.ece_bins)
        if holdings.erased and not holdings.remote:
            metrics |= self._after_an_erasure(model, holdings, particles, prediction)
        return metrics

    def _after_an_erasure(
        self, model: ParticleModel, holdings: Holdings, particles: Tensor, prediction: Predicted
    ) -> Metrics:
        """How good it is on the data of those who left and of those who stay, and on the test set by their labels."""
        metrics: Metrics = {}
        name = model.likelihood.headline[0]
        for word, agents in (("forgotten", holdings.erased), ("retained", holdings.present)):
            data = holdings.pooled(agents)
            if len(data):  # who left may have taken its data along
                some = data.take(torch.arange(0, len(data), -(-len(data) // _SOME)))
                metrics[f"{word}_{name}"] = quality(model, particles, some)
        if isinstance(prediction, Prediction) and (labels := holdings.erased_labels()):
            assert self.test is not None
            gone = torch.isin(self.test.y, torch.tensor(labels))
            for word, here in (("forgotten", gone), ("retained", ~gone)):
                if here.any():
                    metrics[f"{word}_label_accuracy"] = accuracy(prediction.probabilities[here], self.test.y[here])
        return metrics


def quality(model: ParticleModel, particles: Tensor, data: Examples) -> float:
    """The first of the metrics that people look at: accuracy of a classifier, RMSE of a regression."""
    prediction = predict(model, particles, data.x)
    if isinstance(prediction, Prediction):
        return accuracy(prediction.probabilities, data.y)
    return float(model.likelihood.scores(prediction, data.y)[model.likelihood.headline[0]])


def predict(model: ParticleModel, particles: Tensor, x: Rows) -> Any:
    """The mixture over particles, for inputs (n, ...): of the kind that the model's likelihood predicts.

    The networks compute on the model's device. What their outputs say is worked out on the CPU, in float64 where it
    matters, which not every device has.
    """
    here = particles.to(model.device)
    parts: list[Any] = [
        model.likelihood.predict(model.outputs(here, chunk.to(model.device)).cpu()) for chunk in chunks(x, _CHUNK)
    ]
    return join(parts)


def _parts(data: Examples) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(chunks(data.x, _CHUNK), torch.split(data.y, _CHUNK), strict=True)
