"""Likelihoods against torch, scipy and scikit-learn, and what they refuse."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import brier_score_loss, f1_score, mean_poisson_deviance, roc_auc_score
from torch.func import grad, vmap
from torch.nn import functional
from torchmetrics.classification import MulticlassCalibrationError

import fedstein
from fedstein.errors import DivergedError, UserError
from fedstein.likelihoods import (
    LIKELIHOODS,
    Bernoulli,
    Categorical,
    Gaussian,
    Likelihood,
    OwnLoss,
    Poisson,
    score_predictions,
)
from fedstein.metrics import Prediction, mix
from fedstein.models import DenseStack, TorchModule, cross_entropy


def spoken(likelihood, targets, n=300, particles=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    outputs = likelihood.outputs(targets)
    values = torch.randn(particles, n, outputs, generator=generator)
    return values, likelihood.check(likelihood.draw(values[0], generator), "y", outputs)


def test_the_seam_is_listed():
    assert fedstein.seams()["likelihood"] is LIKELIHOODS
    assert LIKELIHOODS.group == "fedstein.likelihoods"
    assert list(LIKELIHOODS) == ["categorical", "gaussian", "bernoulli", "poisson"]


# Categorical


def test_categorical_has_the_bits_of_cross_entropy(generator):
    likelihood = Categorical()
    logits, y = 5 * torch.randn(64, 10, generator=generator), torch.randint(10, (64,), generator=generator)
    assert torch.equal(likelihood.losses(logits, y), cross_entropy(logits, y))
    module = torch.nn.Linear(6, 10)
    x = torch.randn(64, 6, generator=generator)
    ours, theirs = TorchModule(module, likelihood.losses), TorchModule(module)
    particles = theirs.draw(3, generator)
    assert torch.equal(ours.loss_gradient(particles, x, y), theirs.loss_gradient(particles, x, y))


def test_categorical_predicts_and_scores_as_before(generator):
    model = DenseStack([6, 5, 4])
    x, y = torch.randn(50, 6, generator=generator), torch.randint(4, (50,), generator=generator)
    logs = model.outputs(model.draw(3, generator), x).log_softmax(-1)
    likelihood = Categorical()
    now, before = likelihood.predict(logs), mix(logs)
    np.testing.assert_allclose(now.probabilities, before.probabilities, rtol=1e-6)
    scores = likelihood.scores(before, y, 10)
    assert scores == score_predictions(before, y, 10)
    assert list(scores)[:4] == ["accuracy", "ece", "ece_bins", "nll"]
    assert scores["nll"] == -float(likelihood.log_density(before, y).mean())
    guess = logs.exp().mean(0)[torch.arange(50), y] > 0.25
    assert torch.equal(likelihood.better_than_a_guess(logs, y), guess)
    assert likelihood.ignorance(4) == pytest.approx(math.log(4))


def test_predictions_that_are_not_finite_are_not_judged():
    spoilt = torch.full((2, 3, 4), torch.nan)
    for likelihood, y in ((Categorical(), torch.zeros(3).long()), (Gaussian(), torch.zeros(3, 4)),
                          (Bernoulli(), torch.zeros(3, 4)), (Poisson(), torch.zeros(3, 4))):  # fmt: skip
        with pytest.raises(DivergedError, match="no longer finite"):
            likelihood.scores(likelihood.predict(spoilt), y)


def test_class_weights_weigh(generator):
    weights = (0.5, 1.0, 4.0)
    logits, y = torch.randn(30, 3, generator=generator), torch.randint(3, (30,), generator=generator)
    weighted = Categorical(class_weights=weights)
    expected = torch.tensor(weights)[y] * cross_entropy(logits, y)
    torch.testing.assert_close(weighted.losses(logits, y), expected)
    assert torch.equal(weighted.predict(logits[None]).probabilities, Categorical().predict(logits[None]).probabilities)
    assert Categorical.model_validate({"class_weights": [0.5, 1.0, 4.0]}) == weighted
    slopes = vmap(grad(lambda o: weighted.losses(o, y).mean()))(logits[None])
    assert torch.isfinite(slopes).all()
    with pytest.raises(UserError, match=r"'class_weights' must be one for each of 4 classes. Got 3 instead"):
        weighted.check(torch.zeros(2).long(), "y", 4)


@pytest.mark.parametrize("weights", [(), (0.0, 0.0), (-1.0, 2.0), (math.inf, 1.0), (math.nan, 1.0), "heavy", 3])
def test_class_weights_that_are_none_are_refused(weights):
    with pytest.raises(UserError, match="Categorical: 'class_weights"):
        Categorical(class_weights=weights)


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (torch.tensor([0, 3]), "mine: labels must be in 0..2 for 3 classes. Got 0..3 instead"),
        (torch.tensor([-1, 2]), "Got -1..2 instead"),
        (torch.tensor([0.5, 1.0]), "must be whole-number labels"),
        (torch.tensor([math.nan, 1.0]), "must be whole-number labels"),
        (torch.tensor([math.inf, 1.0]), "labels must be in 0..2"),
        (torch.zeros(3, 1), "must be whole-number labels of shape"),
        (torch.zeros(()), "must be whole-number labels of shape"),
    ],
)
def test_labels_that_are_none_are_refused(y, words):
    with pytest.raises(UserError, match=words):
        Categorical().check(y, "mine", 3)


def test_labels_that_are_some():
    for y in (torch.tensor([0, 2], dtype=torch.uint8), torch.tensor([0.0, 2.0]), torch.tensor([False, True])):
        assert Categorical().check(y, "y", 3).dtype == torch.int64
    assert len(Categorical().check(torch.zeros(0), "y", 3)) == 0


# Gaussian


@pytest.mark.parametrize(
    ("likelihood", "targets"),
    [
        (Gaussian(), 1),
        (Gaussian(std=0.3, center=20.0, scale=5.0), 2),
        (Gaussian(std=(0.3, 1e-3), center=(20.0, -1.0), scale=(5.0, 1e-2)), 2),
        (Gaussian(variance="learnt", center=20.0, scale=5.0), 1),
        (Gaussian(variance="learnt", std=(0.3, 2.0), center=(0.0, 1e3), scale=(5.0, 100.0), least_std=0.1), 2),
    ],
)
def test_gaussian_against_scipy(likelihood, targets):
    outputs, y = spoken(likelihood, targets)
    o = outputs.double().numpy()
    wide = np.asarray(likelihood.scale)
    std = np.asarray(wide if likelihood.std is None else likelihood.std)
    mean = np.asarray(likelihood.center) + wide * o[..., :targets]
    if likelihood.variance == "learnt":
        f = likelihood.least_std
        std = std * (f + (1 - f) * np.log1p((np.e - 1) * np.exp(o[..., targets:])))
    each = stats.norm(mean, np.broadcast_to(std, mean.shape))
    logs = each.logpdf(y.double().numpy()).sum(2)
    for n in range(4):
        np.testing.assert_allclose(-likelihood.losses(outputs[n], y), logs[n], rtol=1e-3, atol=1e-3)
    prediction = likelihood.predict(outputs)
    np.testing.assert_allclose(likelihood.log_density(prediction, y), np.log(np.exp(logs).mean(0)), rtol=1e-6)
    np.testing.assert_allclose(prediction.mean, mean.mean(0), rtol=1e-6)
    np.testing.assert_allclose(prediction.epistemic, mean.var(0), rtol=1e-5)
    np.testing.assert_allclose(prediction.aleatoric, each.var().mean(0), rtol=1e-5)


def test_an_output_of_zero_says_the_settings():
    for variance in ("fixed", "learnt"):
        likelihood = Gaussian(variance=variance, std=0.25, center=3.0, scale=10.0)
        said = likelihood.predict(torch.zeros(1, 1, likelihood.outputs(1)))
        assert float(said.mean) == pytest.approx(3.0)
        assert float(said.std) == pytest.approx(0.25, rel=1e-6)
    assert float(Gaussian(scale=7.0).predict(torch.zeros(1, 1, 1)).std) == pytest.approx(7.0)


def test_learnt_noise_has_a_floor_and_no_overflow():
    likelihood = Gaussian(variance="learnt", std=2.0, least_std=0.01)
    raw = torch.tensor([-1e30, -1e4, -50.0, 0.0, 50.0, 1e4])
    said = likelihood.predict(torch.stack([torch.zeros(6), raw], 1)[None]).std[:, 0]
    np.testing.assert_allclose(said[:3], 0.02, rtol=1e-5)
    assert float(said[3]) == pytest.approx(2.0)
    np.testing.assert_allclose(said[4:], 2 * (0.01 + 0.99 * (raw[4:].double() + math.log(math.e - 1))), rtol=1e-5)


@settings(deadline=None, max_examples=40)
@given(shift=st.floats(-100, 100), stretch=st.floats(0.01, 100), learnt=st.booleans(), seed=st.integers(0, 99))
def test_center_and_scale_are_only_units(shift, stretch, learnt, seed):
    """The same outputs mean the same in other units: losses differ by log(scale), gradients by nothing."""
    variance = "learnt" if learnt else "fixed"
    plain = Gaussian(variance=variance, std=0.5)
    other = Gaussian(variance=variance, std=0.5 * stretch, center=shift, scale=stretch)
    outputs, y = spoken(plain, 2, n=20, seed=seed)
    outputs, there = outputs[0].double(), shift + stretch * y.double()
    y = y.double()
    expected = plain.losses(outputs, y) + 2 * math.log(stretch)
    torch.testing.assert_close(other.losses(outputs, there), expected, rtol=1e-6, atol=1e-6)
    slopes = [
        grad(lambda o, one=one, at=at: one.losses(o, at).sum())(outputs) for one, at in ((plain, y), (other, there))
    ]
    torch.testing.assert_close(slopes[0], slopes[1], rtol=1e-6, atol=1e-6)
    wide = other.ignorance(other.outputs(2)) - 2 * math.log(stretch)
    assert wide == pytest.approx(plain.ignorance(plain.outputs(2)))


def test_a_center_far_away_costs_no_digits():
    """Years: 2000 +- 10, in float32."""
    likelihood = Gaussian(center=2e6, scale=10.0)
    y = torch.tensor([[2_000_010.0]])
    assert float(likelihood.losses(torch.tensor([[1.0001]]), y)) == pytest.approx(math.log(10) + 0.918938, abs=1e-5)


def test_the_outputs_of_learnt_noise_come_in_twos():
    likelihood = Gaussian(variance="learnt")
    assert likelihood.outputs(3) == 6
    assert likelihood.targets(6) == 3
    with pytest.raises(UserError, match=r"two outputs for each target. Got 3 outputs"):
        likelihood.losses(torch.zeros(2, 3), torch.zeros(2, 1))
    with pytest.raises(UserError, match=r"'center' must be one number, or one for each of 3 targets. Got 2 instead"):
        Gaussian(center=(1.0, 2.0)).outputs(3)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"std": 0.0}, "'std'"),
        ({"std": -1.0}, "'std' must be a number from 1e-30 to 1e30"),
        ({"scale": (1.0, 0.0)}, "'scale' must be a number from"),
        ({"scale": ()}, "'scale' must be a finite number, or a list"),
        ({"center": math.nan}, "'center' must be a finite number, or a list of one for each target. Got nan"),
        ({"center": "middle"}, "'center' must be a finite number"),
        ({"center": True}, "'center' must be a finite number"),
        ({"variance": "learned"}, "'variance' must be 'fixed' or 'learnt'"),
        ({"least_std": 0.0}, "'least_std'"),
        ({"sdt": 1.0}, "unknown 'sdt'. Did you mean 'std'"),
    ],
)
def test_settings_that_are_none_are_refused(given, words):
    with pytest.raises(UserError, match=words) as caught:
        Gaussian(**given)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (torch.tensor([[1.0, math.nan], [1, 2]]), "mine: y has NaN or infinity, first in row 0"),
        (torch.tensor([[1.0, 2.0], [math.inf, 2]]), "first in row 1"),
        (torch.tensor([[1e39, 2.0]], dtype=torch.float64), "NaN or infinity"),
        (torch.zeros(4), r"of shape \(n, 2\)"),
        (torch.zeros(4, 3), r"of shape \(n, 2\), as many as the module speaks of. Got \(4, 3\)"),
        (torch.zeros(4, 2).bool(), "bernoulli"),
        (torch.zeros(()), "of shape"),
    ],
)
def test_numbers_that_are_none_are_refused(y, words):
    with pytest.raises(UserError, match=words):
        Gaussian().check(y, "mine", 2)


def test_numbers_that_are_some():
    checked = Gaussian().check(torch.arange(4), "y", 1)
    assert checked.dtype == torch.float32
    assert checked.shape == (4, 1)
    assert Gaussian().check(torch.zeros(4, dtype=torch.float64), "y", 1).dtype == torch.float32
    assert Gaussian().check(torch.zeros(0), "y", 1).shape == (0, 1)


def test_ignorance_is_the_largest_entropy():
    expected = stats.norm(3, 5).entropy() + stats.norm(0, 9).entropy()
    assert Gaussian(center=3.0, scale=(5.0, 9.0)).ignorance(2) == pytest.approx(expected)
    assert Gaussian(std=7.0, scale=2.0).ignorance(1) == pytest.approx(stats.norm(0, 7).entropy())
    rate = 6.0
    geometric = stats.geom(1 / (1 + rate), loc=-1)
    assert geometric.mean() == pytest.approx(rate)
    assert Poisson(rate=rate).ignorance(2) == pytest.approx(2 * geometric.entropy())
    assert Bernoulli().ignorance(3) == pytest.approx(3 * stats.bernoulli(0.5).entropy())


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 999), size=st.floats(0.1, 10))
def test_whatever_the_data_is_like_ignorance_loses_the_same(seed, size):
    """The mean loss of N(center, scale^2) on any targets with that mean and spread."""
    y = torch.randn(200, 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).sign() * size + 3
    center, scale = float(y.mean()), float(y.std(correction=0))
    likelihood = Gaussian(center=center, scale=scale)
    losses = likelihood.losses(torch.zeros(200, 1, dtype=torch.float64), y)
    assert float(losses.mean()) == pytest.approx(likelihood.ignorance(1), rel=1e-6)


def test_better_than_a_guess():
    likelihood = Gaussian(std=0.1)
    y = torch.zeros(3, 1)
    outputs = torch.tensor([[[0.0], [0.25], [0.5]]])
    assert likelihood.better_than_a_guess(outputs, y).tolist() == [True, False, False]
    assert likelihood.better_than_a_guess(torch.cat([outputs, outputs * 0]), y).tolist() == [True, True, True]


# Bernoulli


def test_bernoulli_against_torch_and_scikit_learn():
    likelihood = Bernoulli()
    outputs, y = spoken(likelihood, 4)
    exact = functional.binary_cross_entropy_with_logits(outputs[0], y, reduction="none").sum(1)
    torch.testing.assert_close(likelihood.losses(outputs[0], y), exact)
    prediction = likelihood.predict(outputs)
    scores = likelihood.scores(prediction, y, bins=10)
    p, truth = prediction.probabilities, y.long()
    assert scores["brier"] == pytest.approx(np.mean([brier_score_loss(truth[:, t], p[:, t]) for t in range(4)]))
    assert scores["auroc_each"] == pytest.approx([roc_auc_score(truth[:, t], p[:, t]) for t in range(4)])
    assert scores["auroc"] == pytest.approx(roc_auc_score(truth, p, average="macro"))
    assert scores["macro_f1"] == pytest.approx(f1_score(truth, p > 0.5, average="macro"))
    assert scores["micro_f1"] == pytest.approx(f1_score(truth, p > 0.5, average="micro"))
    assert scores["accuracy"] == pytest.approx(float(((p > 0.5) == truth).double().mean()))
    assert scores["exact_match"] == pytest.approx(float(((p > 0.5) == truth).all(1).double().mean()))
    two = torch.stack([1 - p, p], -1).reshape(-1, 2)
    assert scores["ece"] == pytest.approx(
        float(MulticlassCalibrationError(2, n_bins=10)(two, truth.reshape(-1))), abs=1e-5
    )
    assert scores["accuracy_each"] == pytest.approx(((p > 0.5) == truth).double().mean(0).tolist())


def test_a_label_that_is_always_there_has_no_auroc():
    likelihood = Bernoulli()
    outputs, y = spoken(likelihood, 2)
    y[:, 0] = 1
    scores = likelihood.scores(likelihood.predict(outputs), y)
    assert scores["auroc_each"][0] is None
    assert scores["auroc"] == scores["auroc_each"][1]
    alone = likelihood.scores(likelihood.predict(outputs[..., :1]), y[:, :1])
    assert alone["auroc"] is None
    assert "auroc_each" not in alone


@pytest.mark.parametrize("y", [torch.tensor([0.5, 1.0]), torch.tensor([-1, 1]), torch.tensor([2, 0])])
def test_answers_that_are_none_are_refused(y):
    with pytest.raises(UserError, match=r"mine: y must be 0 or 1, no or yes. Got"):
        Bernoulli().check(y, "mine", 1)


def test_answers_that_are_some():
    for y in (torch.tensor([True, False]), torch.tensor([1, 0]), torch.tensor([[1.0], [0.0]])):
        assert torch.equal(Bernoulli().check(y, "y", 1), torch.tensor([[1.0], [0.0]]))


# Poisson


def test_poisson_against_scipy_and_scikit_learn():
    likelihood = Poisson(rate=(0.5, 200.0))
    outputs, y = spoken(likelihood, 2)
    rates = np.array([0.5, 200.0]) * np.exp(outputs.double().numpy())
    logs = stats.poisson(rates).logpmf(y.double().numpy()).sum(2)
    np.testing.assert_allclose(-likelihood.losses(outputs[1], y), logs[1], rtol=1e-4, atol=1e-4)
    prediction = likelihood.predict(outputs)
    np.testing.assert_allclose(likelihood.log_density(prediction, y), np.log(np.exp(logs).mean(0)), rtol=1e-6)
    np.testing.assert_allclose(prediction.aleatoric, rates.mean(0), rtol=1e-6)
    np.testing.assert_allclose(prediction.epistemic, rates.var(0), rtol=1e-6)
    scores = likelihood.scores(prediction, y)
    each = [mean_poisson_deviance(y[:, t], prediction.mean[:, t]) for t in range(2)]
    assert scores["deviance_each"] == pytest.approx(each)
    assert scores["deviance"] == pytest.approx(np.mean(each))


def test_the_rate_goes_on_straight_and_smoothly():
    likelihood = Poisson(rate=2.0)

    def rate(o):
        return float(likelihood.predict(torch.tensor([[[o]]], dtype=torch.float64)).mean)

    assert rate(9.0) == pytest.approx(2 * math.exp(9))
    assert rate(10.0) == pytest.approx(2 * math.exp(10))
    assert rate(13.0) == pytest.approx(2 * math.exp(10) * 4)
    assert (rate(10 + 1e-6) - rate(10)) / (rate(10) - rate(10 - 1e-6)) == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (torch.tensor([1.0, -1.0]), "mine: y must be counts: whole numbers from 0. Got -1 instead"),
        (torch.tensor([1.0, 1.5]), "Got 1.5 instead"),
        (torch.tensor([1.0, math.nan]), "NaN or infinity"),
        (torch.tensor([2**24 + 1]), "counts must be at most 16,777,216, above which float32 rounds"),
    ],
)
def test_counts_that_are_none_are_refused(y, words):
    with pytest.raises(UserError, match=words):
        Poisson().check(y, "mine", 1)


# What all have


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_the_better_way_of_every_metric_is_known(name):
    likelihood = LIKELIHOODS[name]()
    outputs, y = spoken(likelihood, 3)
    scores = likelihood.scores(likelihood.predict(outputs), y)
    for metric in [*likelihood.lower, *likelihood.higher]:
        assert metric in scores or f"{metric}_each" in scores
    assert likelihood.lower_is_better("nll") is True
    assert likelihood.lower_is_better("aleatoric") is None
    assert all(likelihood.lower_is_better(f"{metric}_each") for metric in likelihood.lower)
    assert {likelihood.lower_is_better(metric) for metric in likelihood.higher} <= {False}
    assert not likelihood.lower & likelihood.higher


@pytest.mark.parametrize("kind", [Gaussian, Poisson, Bernoulli, Categorical])
def test_the_true_outputs_score_best(kind):
    """Scores are proper: who speaks of other examples, or is too sure, loses."""
    likelihood = kind()
    outputs, y = spoken(likelihood, 3, n=2000)
    names = [name for name in ("nll", "crps", "brier") if name in likelihood.lower]
    right = likelihood.scores(likelihood.predict(outputs[:1]), y)
    for other in (outputs[:1].flip(1), 3 * outputs[:1]):
        wrong = likelihood.scores(likelihood.predict(other), y)
        assert all(right[name] < wrong[name] for name in names)


def test_a_prediction_of_another_kind_is_refused():
    for likelihood in (Gaussian(), Poisson(), Bernoulli()):
        with pytest.raises(UserError, match="Got a Prediction instead"):
            likelihood.scores(Categorical().predict(torch.zeros(1, 2, 3)), torch.zeros(2, 3))
    with pytest.raises(UserError, match=r"must be a Prediction. Got a GaussianMixture"):
        Categorical().scores(Gaussian().predict(torch.zeros(1, 2, 3)), torch.zeros(2).long())


def test_rows_of_a_prediction_of_classes():
    prediction = Categorical().predict(torch.randn(3, 5, 4))
    assert isinstance(prediction, Prediction)
    assert len(prediction) == 5
    assert torch.equal(prediction.rows(torch.tensor([4])).epistemic, prediction.doubt[4:])


# A loss of one's own


def test_a_loss_of_ones_own_trains_and_predicts_nothing(generator):
    own = OwnLoss(lambda outputs, y: (outputs[:, 0] - y).abs())
    assert isinstance(own, Likelihood)
    assert not own.predicts
    assert "own" not in LIKELIHOODS
    module = torch.nn.Linear(2, 1)
    x, y = torch.randn(8, 2, generator=generator), torch.randn(8, generator=generator)
    assert own.check(y, "y", 1) is y
    particles = TorchModule(module, own.losses).draw(3, generator)
    assert torch.isfinite(TorchModule(module, own.losses).loss_gradient(particles, x, y)).all()
    outputs, prediction = torch.zeros(1, 8, 1), Gaussian().predict(torch.zeros(1, 8, 1))
    for ask in (
        lambda: own.predict(outputs),
        lambda: own.scores(prediction, y),
        lambda: own.log_density(prediction, y),
        lambda: own.ignorance(1),
        lambda: own.better_than_a_guess(outputs, y),
        lambda: own.draw(outputs[0], generator),
    ):
        with pytest.raises(UserError, match="Use a likelihood instead"):
            ask()
    with pytest.raises(UserError, match="mine: y has NaN"):
        own.check(torch.tensor([math.nan]), "mine", 1)
    assert own.model_dump_json() == "{}"
