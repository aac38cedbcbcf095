"""What can be measured of a model that was made to forget, or of one that never knew."""

from __future__ import annotations

import torch
from torch import Tensor

from fedstein.data import Examples
from fedstein.likelihoods import Likelihood
from fedstein.metrics import Prediction, membership_auc, true_probability
from fedstein.models import ParticleModel
from fedstein.protocol.state import Metrics
from fedstein.runs.judge import predict, quality
from fedstein.runs.problem import Problem

__all__ = ["assess", "membership", "scores_of", "telling", "unseen_like"]


def scores_of(likelihood: Likelihood) -> tuple[str, ...]:
    """The metrics by which an erasure is judged."""
    if likelihood.name == "categorical":
        return ("accuracy", "nll", "ece", "brier")
    return tuple(name for name in likelihood.headline if likelihood.lower_is_better(name) is not None)


def assess(problem: Problem, particles: Tensor) -> Metrics:
    """How good particles are on the data of those who left, of those who stay, on the test set, and for each agent."""
    holdings, test, model = problem.holdings, problem.judge.test, problem.task.model
    if holdings.remote:
        return {}  # the agents' data is elsewhere
    if test is None or not model.likelihood.predicts:
        return problem.evaluate(particles)
    scores: Metrics = {}
    for name, data in (
        ("forgotten", holdings.pooled(holdings.erased)),
        ("retained", holdings.pooled()),
        ("test", test),
    ):
        if len(data) == 0:  # who left has taken it along
            continue
        metrics = model.likelihood.scores(predict(model, particles, data.x), data.y, problem.judge.ece_bins)
        scores[name] = {key: metrics[key] for key in scores_of(model.likelihood)}
    scores["membership_auc"] = membership(problem, particles)[0] if "forgotten" in scores else None
    scores["agents"] = [quality(model, particles, data) if len(data) else None for data in holdings.agents]
    return scores


def unseen_like(forgotten: Examples, test: Examples) -> Examples:
    """Test examples with the labels of the forgotten ones, in the same proportions; all if there are no labels."""
    if forgotten.y.dim() > 1 or forgotten.y.is_floating_point():
        return test
    labels = sorted(set(forgotten.y.tolist()))
    counts = [int((forgotten.y == label).sum()) for label in labels]
    places = [(test.y == label).nonzero()[:, 0] for label in labels]
    times = min(len(place) / count for place, count in zip(places, counts, strict=True))
    return test.take(torch.cat([place[: int(times * count)] for place, count in zip(places, counts, strict=True)]))


def membership(problem: Problem, particles: Tensor) -> tuple[float | None, Tensor, Tensor]:
    """The population loss attack: AUC, and what tells of forgotten and of unseen examples."""
    assert problem.judge.test is not None
    forgotten = problem.holdings.pooled(problem.holdings.erased)
    unseen = unseen_like(forgotten, problem.judge.test)
    suspects, others = (
        telling(problem.task.model, particles, data) if len(data) else torch.empty(0) for data in (forgotten, unseen)
    )
    return (membership_auc(suspects, others) if len(others) else None), suspects, others


def telling(model: ParticleModel, particles: Tensor, data: Examples) -> Tensor:
    """(n,) what a membership attack looks at: the true class's probability, or the log-density of the true target."""
    prediction = predict(model, particles, data.x)
    if isinstance(prediction, Prediction):
        return true_probability(prediction.probabilities, data.y)
    return model.likelihood.log_density(prediction, data.y).double()
