"""Every likelihood that comes with fedstein keeps what its seam asks; and one that does not is noticed."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch
from pydantic import ConfigDict
from torch.nn import functional

from fedstein.likelihoods import LIKELIHOODS, Bernoulli, Categorical, Gaussian, Poisson
from fedstein.metrics import BernoulliMixture, GaussianMixture
from fedstein.testing import check_likelihood


@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.parametrize("targets", [2, 3, 5])
def test_likelihoods(name, targets):
    assert LIKELIHOODS[name].name == name
    check_likelihood(LIKELIHOODS[name], targets)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (Gaussian, {"std": 0.01, "center": -5.0}),
        (Gaussian, {"variance": "learnt"}),
        (Gaussian, {"variance": "learnt", "std": 30.0, "center": 1e4, "scale": 100.0, "least_std": 0.1}),
        (Gaussian, {"variance": "learnt", "std": (1.0, 2.0), "center": (1e5, 1.0), "scale": (1e3, 1e-3)}),
        (Poisson, {"rate": 1e4}),
        (Poisson, {"rate": 0.05}),
        (Poisson, {"rate": (0.5, 20.0)}),
    ],
)
def test_settings(kind, settings):
    check_likelihood(kind, 2, **settings)


def test_a_weighted_likelihood_is_none():
    with pytest.raises(AssertionError, match="must sum to 1"):
        check_likelihood(Categorical, class_weights=(1.0, 2.0, 3.0))


class Nameless(Gaussian):
    summary: ClassVar[str] = ""


class Thawed(Gaussian):
    model_config = ConfigDict(frozen=False)


class Lax(Bernoulli):
    model_config = ConfigDict(extra="ignore")


class Unreadable(Bernoulli):
    names: tuple[int, ...] = (1, 2)  # a list in JSON, which strict settings do not take for a tuple


class Uncounted(Gaussian):
    def targets(self, outputs):
        return outputs + 1


class Careless(Gaussian):
    def draw(self, outputs, generator):
        return super().draw(outputs, torch.default_generator)


class Greedy(Gaussian):
    def draw(self, outputs, generator):
        generator = torch.Generator().manual_seed(0)
        return super().draw(outputs, generator)


class Credulous(Gaussian):
    def check(self, y, what, outputs):
        return y.float()


class Speechless(Poisson):
    def check(self, y, what, outputs):
        return super().check(y, "y", outputs)


class Crashing(Categorical):
    def check(self, y, what, outputs):
        assert y.isfinite().all()
        return super().check(y, what, outputs)


class Rounding(Gaussian):
    def check(self, y, what, outputs):
        return super().check(y, what, outputs).round()


class Summed(Gaussian):
    def losses(self, outputs, y):
        return super().losses(outputs, y).sum()


class Centred(Gaussian):
    """Of a batch, not of an example."""

    def losses(self, outputs, y):
        losses = super().losses(outputs, y)
        return losses + torch.arange(len(losses)) * 0.1


class Detached(Bernoulli):
    def losses(self, outputs, y):
        return super().losses(outputs, y) - super().losses(outputs, y).detach() + 0.5 * super().losses(outputs, y)


class OutOfReach(Gaussian):
    def losses(self, outputs, y):
        return super().losses(outputs, y) + float(outputs.sum()) * 0  # no number under vmap


class WithoutConstants(Gaussian):
    def losses(self, outputs, y):
        return 0.5 * (outputs - y).square().sum(-1)


class WithoutFactorial(Poisson):
    def losses(self, outputs, y):
        return (outputs.exp() - y * outputs).sum(-1)


class Wide(Gaussian):
    def draw(self, outputs, generator):
        return 2 * super().draw(outputs, generator)


class MeanOfLogs(Bernoulli):
    """Takes the mean of log-odds for the mixture."""

    def predict(self, outputs):
        return super().predict(outputs.mean(0, keepdim=True))


class OnlyTheFirst(Gaussian):
    def predict(self, outputs):
        return super().predict(outputs[:1])


class SurerThanItself(GaussianMixture):
    @property
    def epistemic(self):
        return super().epistemic + 1.0


class Restless(Gaussian):
    def predict(self, outputs):
        mixture = super().predict(outputs)
        return SurerThanItself(mixture.means, mixture.stds)


class Negative(BernoulliMixture):
    @property
    def aleatoric(self):
        return -super().aleatoric


class Negating(Bernoulli):
    def predict(self, outputs):
        return Negative(super().predict(outputs).log_odds)


class Bare(Bernoulli):
    def predict(self, outputs):
        return super().predict(outputs).probabilities

    def log_density(self, prediction, y):
        return torch.zeros(len(y))


class Unplain(Bernoulli):
    def scores(self, prediction, y, bins=15):
        return super().scores(prediction, y, bins) | {"more": (1.0, 2.0)}


class Endless(Gaussian):
    def scores(self, prediction, y, bins=15):
        return super().scores(prediction, y, bins) | {"mae": float("inf")}


class Boastful(Gaussian):
    headline: ClassVar[tuple[str, ...]] = ("accuracy",)


class Marginal(Bernoulli):
    """Calls the NLL of the labels one by one that of all together."""

    def scores(self, prediction, y, bins=15):
        p: Any = prediction.probabilities
        apart = functional.binary_cross_entropy(p, y.double(), reduction="sum") / len(y)
        return super().scores(prediction, y, bins) | {"nll": float(apart)}


class Proud(Gaussian):
    lower: ClassVar[frozenset[str]] = frozenset()


class NeverIgnorant(Poisson):
    def ignorance(self, outputs):
        return float("nan")


class Guessing(Gaussian):
    def better_than_a_guess(self, outputs, y):
        return torch.ones(len(y), dtype=torch.bool)


class Overflowing(Poisson):
    """The exponential as it is."""

    def _log_rates(self, outputs):
        return outputs


class Untamed(Bernoulli):
    """The logarithm of a rounded 0."""

    def losses(self, outputs, y):
        p = outputs.sigmoid()
        return -(y * p.log() + (1 - y) * (1 - p).log()).sum(-1)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Nameless, "must say its summary"),
        (Thawed, "must be frozen"),
        (Lax, "must refuse names"),
        (Unreadable, "back from JSON raises ValidationError"),
        (Uncounted, "targets.. must undo outputs"),
        (Careless, "draw.. must draw from its generator alone"),
        (Greedy, "Another seed gives the same"),
        (Credulous, "check.. must refuse NaN. It takes them"),
        (Speechless, "must say whose targets"),
        (Crashing, "must refuse NaN by a UserError"),
        (Rounding, "check.. must leave targets"),
        (Summed, r"losses.. must give \(40,\)"),
        (Centred, "must not depend on the others"),
        (Detached, "The gradient must be that of losses"),
        (OutOfReach, "under torch.func raises RuntimeError"),
        (WithoutConstants, "must integrate to 1. Got 2.5"),
        (WithoutFactorial, "must sum to 1"),
        (Wide, "draw.. must draw from the density"),
        (MeanOfLogs, "must be the mean of the particles' densities"),
        (OnlyTheFirst, "must be the mean of the particles' densities"),
        (Restless, "One particle cannot disagree with itself"),
        (Negating, "aleatoric uncertainty must be finite, not below 0"),
        (Bare, "what fedstein.metrics.Predicted asks for"),
        (Unplain, "plain values"),
        (Endless, "'mae' is inf"),
        (Boastful, "'accuracy'. are not there"),
        (Marginal, "'nll' must be the mean of -log_density"),
        (Proud, "lower_is_better"),
        (NeverIgnorant, "ignorance.. must give a finite number"),
        (Guessing, "must compare log_density.. with -ignorance"),
        (Overflowing, "With outputs of"),
        (Untamed, "With outputs of 100, losses.. must not be NaN"),
    ],
)
def test_a_likelihood_that_is_none_is_noticed(kind, words):
    with pytest.raises(AssertionError, match=words):
        check_likelihood(kind)
