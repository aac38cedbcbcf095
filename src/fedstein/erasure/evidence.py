"""What can be measured of a model that was made to forget, or of one that never knew."""

from __future__ import annotations

import torch
from torch import Tensor

from fedstein.data import Examples
from fedstein.metrics import accuracy, membership_auc, true_probability
from fedstein.problem import Metrics, Problem, predict, score_predictions

__all__ = ["SCORES", "assess", "membership", "unseen_like"]

SCORES = ("accuracy", "nll", "ece", "brier")


def assess(problem: Problem, particles: Tensor) -> Metrics:
    """How good particles are on the data of those who left, of those who stay, on the test set, and for each agent."""
    if problem.remote:
        return {}  # the agents' data is elsewhere
    if problem.test is None:
        return problem.evaluate(particles)
    found: Metrics = {}
    groups = {"forgotten": problem.pooled(problem.erased), "retained": problem.pooled(), "test": problem.test}
    for name, data in groups.items():
        scores = score_predictions(predict(problem.model, particles, data.x), data.y, problem.ece_bins)
        found[name] = {key: scores[key] for key in SCORES}
    found["membership_auc"] = membership(problem, particles)[0]
    found["agents"] = [
        accuracy(predict(problem.model, particles, data.x).probabilities, data.y) for data in problem.agents
    ]
    return found


def unseen_like(forgotten: Examples, test: Examples) -> Examples:
    """Test examples with the labels of the forgotten ones, in the same proportions, as many as there are."""
    labels = sorted(set(forgotten.y.tolist()))
    counts = [int((forgotten.y == label).sum()) for label in labels]
    places = [(test.y == label).nonzero()[:, 0] for label in labels]
    times = min(len(place) / count for place, count in zip(places, counts, strict=True))
    return test.take(torch.cat([place[: int(times * count)] for place, count in zip(places, counts, strict=True)]))


def membership(problem: Problem, particles: Tensor) -> tuple[float | None, Tensor, Tensor]:
    """The population loss attack: AUC, and the true classes' probabilities of forgotten and of unseen examples."""
    assert problem.test is not None
    forgotten = problem.pooled(problem.erased)
    unseen = unseen_like(forgotten, problem.test)
    suspects, others = (
        true_probability(predict(problem.model, particles, data.x).probabilities, data.y)
        if len(data)
        else torch.empty(0)
        for data in (forgotten, unseen)
    )
    return (membership_auc(suspects, others) if len(others) else None), suspects, others
