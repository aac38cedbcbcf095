"""Mixtures of Gaussians and of Poissons, against scipy, numerical integration and draws."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from sklearn.metrics import mean_absolute_error, mean_poisson_deviance, root_mean_squared_error

from fedstein.errors import UserError
from fedstein.metrics import (
    GaussianMixture,
    PoissonMixture,
    Predicted,
    calibration_error,
    coverage,
    join,
    log_poisson,
    mae,
    pit_histogram,
    poisson_deviance,
    quantile_curve,
    rmse,
    score_numbers,
)


def gaussians(n=6, particles=4, targets=2, seed=0, spread=2.0):
    g = torch.Generator().manual_seed(seed)
    means = spread * torch.randn(n, particles, targets, generator=g, dtype=torch.float64)
    stds = torch.rand(n, particles, targets, generator=g, dtype=torch.float64) + 0.1
    y = spread * torch.randn(n, targets, generator=g, dtype=torch.float64)
    return GaussianMixture(means, stds), y


def poissons(n=6, particles=4, targets=2, seed=0, center=1.0):
    g = torch.Generator().manual_seed(seed)
    log_rates = center + torch.randn(n, particles, targets, generator=g, dtype=torch.float64)
    y = torch.poisson(log_rates[:, 0].exp(), generator=g)
    return PoissonMixture(log_rates), y


# Gaussians


def test_a_mixture_of_gaussians_against_scipy():
    mixture, y = gaussians()
    each = stats.norm(mixture.means.numpy(), mixture.stds.numpy())
    np.testing.assert_allclose(mixture.cdf(y), each.cdf(y.numpy()[:, None]).mean(1), rtol=1e-9)
    np.testing.assert_allclose(mixture.log_density(y), np.log(each.pdf(y.numpy()[:, None]).prod(2).mean(1)), rtol=1e-10)
    np.testing.assert_allclose(
        mixture.marginal_log_density(y), np.log(each.pdf(y.numpy()[:, None]).mean(1)), rtol=1e-10
    )
    assert isinstance(mixture, Predicted)


def test_the_law_of_total_variance_against_draws(generator):
    mixture, _ = gaussians(n=3, targets=1)
    who = torch.randint(4, (3, 400_000), generator=generator)
    noise = torch.randn(who.shape, generator=generator, dtype=torch.float64)
    drawn = mixture.means[..., 0].gather(1, who) + mixture.stds[..., 0].gather(1, who) * noise
    np.testing.assert_allclose(mixture.mean[:, 0], drawn.mean(1), atol=0.02)
    np.testing.assert_allclose(mixture.std[:, 0], drawn.std(1), rtol=0.01)
    np.testing.assert_allclose(mixture.aleatoric + mixture.epistemic, mixture.std**2)
    np.testing.assert_allclose(mixture.epistemic, np.var(mixture.means.numpy(), axis=1))


@pytest.mark.parametrize("level", [1e-6, 0.025, 0.3, 0.5, 0.9, 1 - 1e-9])
def test_quantiles_are_those_of_the_mixture(level):
    mixture, _ = gaussians()
    np.testing.assert_allclose(mixture.cdf(mixture.quantile(level)), level, rtol=1e-8)
    alone = GaussianMixture(mixture.means[:, :1], mixture.stds[:, :1])
    exact = stats.norm(mixture.means[:, 0].numpy(), mixture.stds[:, 0].numpy()).ppf(level)
    np.testing.assert_allclose(alone.quantile(level), exact, rtol=1e-9)


def test_the_quantile_between_two_peaks_is_found():
    """The components' own quantiles are far from it."""
    mixture = GaussianMixture(torch.tensor([[[-4.0], [4.0]]]).double(), torch.ones(1, 2, 1).double())
    assert float(mixture.quantile(0.5)) == pytest.approx(0.0, abs=1e-9)
    low, high = mixture.interval(0.5)
    assert float(low) == pytest.approx(-4, abs=1e-4)
    assert float(high) == pytest.approx(4, abs=1e-4)


@pytest.mark.parametrize("level", [0.0, 1.0, -1.0, 90, math.nan])
def test_levels_that_are_none_are_refused(level):
    for mixture, _ in (gaussians(), poissons()):
        with pytest.raises(UserError, match="The 'level' must be above 0 and below 1"):
            mixture.interval(level)


def test_crps_against_numerical_integration():
    mixture, y = gaussians(n=4)
    crps = mixture.crps(y)
    for i in range(4):
        for t in range(2):
            each = stats.norm(mixture.means[i, :, t].numpy(), mixture.stds[i, :, t].numpy())
            true = float(y[i, t])
            below = integrate.quad(lambda x, each=each: each.cdf(x).mean() ** 2, -30, true, limit=500)[0]
            above = integrate.quad(lambda x, each=each: (1 - each.cdf(x).mean()) ** 2, true, 30, limit=500)[0]
            assert float(crps[i, t]) == pytest.approx(below + above, rel=1e-6)


def test_crps_against_draws(generator):
    """E|X - y| - E|X - X'| / 2, as properscoring has it for an ensemble."""
    mixture, y = gaussians(n=2, targets=1)
    who = torch.randint(4, (2, 2, 1_000_000), generator=generator)
    noise = torch.randn(who.shape, generator=generator, dtype=torch.float64)
    pick = [mixture.means[..., 0].gather(1, w) + mixture.stds[..., 0].gather(1, w) * z
            for w, z in zip(who.unbind(1), noise.unbind(1), strict=True)]  # fmt: skip
    expected = (pick[0] - y).abs().mean(1) - (pick[0] - pick[1]).abs().mean(1) / 2
    np.testing.assert_allclose(mixture.crps(y)[:, 0], expected, atol=0.01)


def test_crps_of_one_gaussian_is_the_known_formula():
    mixture, y = gaussians(particles=1)
    z = ((y - mixture.means[:, 0]) / mixture.stds[:, 0]).numpy()
    known = mixture.stds[:, 0].numpy() * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))
    np.testing.assert_allclose(mixture.crps(y), known, rtol=1e-10)


@settings(deadline=None, max_examples=50)
@given(
    shift=st.floats(-1e3, 1e3),
    stretch=st.floats(1e-3, 1e3),
    seed=st.integers(0, 1000),
)
def test_scores_follow_location_and_scale(shift, stretch, seed):
    mixture, y = gaussians(seed=seed)
    moved = GaussianMixture(shift + stretch * mixture.means, stretch * mixture.stds)
    there = shift + stretch * y
    near = {"rtol": 1e-6, "atol": 1e-9 * (1 + abs(shift))}
    np.testing.assert_allclose(moved.cdf(there), mixture.cdf(y), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(moved.crps(there), stretch * mixture.crps(y), **near)
    np.testing.assert_allclose(moved.quantile(0.8), shift + stretch * mixture.quantile(0.8), **near)
    np.testing.assert_allclose(moved.std, stretch * mixture.std, **near)
    np.testing.assert_allclose(moved.doubt, mixture.doubt, rtol=1e-6)
    expected = mixture.log_density(y) - y.shape[1] * math.log(stretch)
    np.testing.assert_allclose(moved.log_density(there), expected, rtol=1e-5, atol=1e-5)


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 1000), kind=st.sampled_from([gaussians, poissons]))
def test_the_order_of_particles_and_their_copies_do_not_matter(seed, kind):
    mixture, y = kind(seed=seed)
    first, *more = mixture._tensors().values()
    twice = type(mixture)(*(torch.cat([t.flip(1), t], 1) for t in (first, *more)))
    for ask in ("cdf", "log_density", "crps", "marginal_log_density"):
        np.testing.assert_allclose(getattr(twice, ask)(y), getattr(mixture, ask)(y), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(twice.quantile(0.3), mixture.quantile(0.3), rtol=1e-9)
    np.testing.assert_allclose(twice.epistemic, mixture.epistemic, rtol=1e-9, atol=1e-12)


def test_extremes_of_gaussians():
    means = torch.tensor([[[0.0], [0.0]], [[1e30], [-1e30]], [[5.0], [5.0]], [[1e30], [1e30]]]).double()
    stds = torch.tensor([[[1e-30], [1e-30]], [[1.0], [1.0]], [[1e-30], [1e30]], [[1e-9], [1e-9]]]).double()
    mixture = GaussianMixture(means, stds)
    y = torch.tensor([[1.0], [0.0], [5.0], [-1e30]]).double()
    for name, value in score_numbers(mixture, y).items():
        assert np.isfinite(value).all(), name
    assert torch.isfinite(mixture.log_density(y)).all()
    assert "inputs" in mixture._repr_html_()


# What is made of the PIT


def test_coverage_and_curve_of_a_calibrated_prediction(generator):
    n = 20_000
    mixture, _ = gaussians(n=n, targets=2)
    who = torch.randint(4, (n, 1, 1), generator=generator).expand(-1, 1, 2)
    noise = torch.randn(n, 2, generator=generator, dtype=torch.float64)
    y = mixture.means.gather(1, who)[:, 0] + mixture.stds.gather(1, who)[:, 0] * noise
    scores = score_numbers(mixture, y)
    for percent in (50, 80, 90, 95):
        assert scores[f"coverage_{percent}"] == pytest.approx(percent / 100, abs=0.01)
        low, high = mixture.interval(percent / 100)
        inside = ((y >= low) & (y <= high)).double().mean(0)
        assert scores[f"coverage_{percent}_each"] == pytest.approx(inside.tolist())
        assert scores[f"width_{percent}"] == pytest.approx(float((high - low).mean()))
    assert scores["calibration_error"] < 0.01
    assert scores["pit"] == pytest.approx([0.05] * 20, abs=0.006)
    timid = GaussianMixture(mixture.means, 3 * mixture.stds + 3)
    assert score_numbers(timid, y)["coverage_50"] > 0.7
    assert score_numbers(timid, y)["pit"][10] > 0.06  # too wide: a hill in the middle
    assert score_numbers(timid, y)["calibration_error"] > 0.05


def test_the_pit_at_a_jump_is_spread_over_it():
    pit = torch.tensor([[0.1]]).double(), torch.tensor([[0.6]]).double()
    assert quantile_curve(pit, (0.05, 0.35, 0.9)) == pytest.approx([0.0, 0.5, 1.0])
    assert float(coverage(pit, 0.5)) == pytest.approx((0.6 - 0.25) / 0.5)
    assert pit_histogram(pit, 4) == pytest.approx([0.3, 0.5, 0.2, 0.0])
    assert calibration_error(pit, (0.35,)) == pytest.approx(0.15)
    assert sum(pit_histogram((pit[0], pit[0]))) == pytest.approx(1.0)


def test_errors_against_scikit_learn():
    mixture, y = gaussians(n=50, targets=3)
    raw = {"multioutput": "raw_values"}
    np.testing.assert_allclose(rmse(mixture.mean, y), root_mean_squared_error(y, mixture.mean, **raw))
    np.testing.assert_allclose(mae(mixture.mean, y), mean_absolute_error(y, mixture.mean, **raw))
    scores = score_numbers(mixture, y)
    assert scores["rmse"] == pytest.approx(np.mean(scores["rmse_each"]))
    assert scores["nll"] == pytest.approx(-float(mixture.log_density(y).mean()))
    assert scores["nll_each"] == pytest.approx((-mixture.marginal_log_density(y)).mean(0).tolist())
    assert not [name for name in score_numbers(*gaussians(targets=1)) if name.endswith("_each")]


# Poissons


def test_a_mixture_of_poissons_against_scipy():
    mixture, y = poissons(n=30)
    each = stats.poisson(mixture.rates.numpy())
    k = y.numpy()[:, None]
    np.testing.assert_allclose(mixture.cdf(y), each.cdf(k).mean(1), rtol=1e-10)
    np.testing.assert_allclose(mixture.cdf(y + 0.7), each.cdf(k).mean(1), rtol=1e-10)
    np.testing.assert_allclose(mixture.cdf(-torch.ones_like(y)), 0.0)
    np.testing.assert_allclose(mixture.log_density(y), np.log(each.pmf(k).prod(2).mean(1)), rtol=1e-9)
    np.testing.assert_allclose(mixture.marginal_log_density(y), np.log(each.pmf(k).mean(1)), rtol=1e-9)
    low, high = mixture.pit(y)
    np.testing.assert_allclose(high - low, each.pmf(k).mean(1), rtol=1e-6)
    assert isinstance(mixture, Predicted)


@pytest.mark.parametrize("center", [-3.0, 0.0, 2.0, 8.0])
@pytest.mark.parametrize("level", [0.025, 0.5, 0.95])
def test_quantiles_of_counts(center, level):
    mixture, _ = poissons(n=20, center=center)
    quantile = mixture.quantile(level)
    assert (mixture.cdf(quantile) >= level).all()
    assert (mixture.cdf(quantile - 1) < level).all()
    alone = PoissonMixture(mixture.log_rates[:, :1])
    np.testing.assert_array_equal(alone.quantile(level), stats.poisson(alone.rates[:, 0].numpy()).ppf(level))


@pytest.mark.parametrize("center", [-2.0, 1.0, 4.0])
def test_crps_of_counts_is_the_sum(center):
    mixture, y = poissons(n=10, center=center)
    y[0] = 3000  # far above all that is expected
    k = np.arange(5000)
    f = stats.poisson(mixture.rates.numpy()[..., None]).cdf(k).mean(1)
    expected = ((f - (k >= y.numpy()[..., None])) ** 2).sum(-1)
    many = mixture.rates.amax(1) > 900  # more than 1,024 counts above the target: in groups
    assert int(many.sum()) == (center == 4.0)
    crps = mixture.crps(y)
    np.testing.assert_allclose(crps[~many], expected[~many.numpy()], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(crps[many], expected[many.numpy()], rtol=1e-3)


def test_crps_of_counts_far_below_what_is_expected():
    mixture = PoissonMixture(torch.full((1, 1, 1), math.log(1e4), dtype=torch.float64))
    k = np.arange(20_000)
    expected = ((1 - stats.poisson(1e4).cdf(k)) ** 2)[3:].sum()
    assert float(mixture.crps(torch.tensor([[3.0]]))) == pytest.approx(expected, rel=1e-6)


def test_crps_of_many_counts_is_within_a_group():
    """Rates of 20 and of 300,000: 256 groups of about 1,200 counts."""
    log_rates = torch.tensor([20.0, 3e5]).double().log().reshape(1, 2, 1)
    y = torch.tensor([[1000.0]]).double()
    k = np.arange(400_000)
    f = stats.poisson(np.array([[20.0], [3e5]])).cdf(k).mean(0)
    expected = ((f - (k >= 1000)) ** 2).sum()
    assert float(PoissonMixture(log_rates).crps(y)) == pytest.approx(expected, abs=1200)
    assert abs(float(PoissonMixture(log_rates).crps(y)) - expected) > 1e-6  # it is an approximation here
    one = PoissonMixture(torch.tensor(1e6).double().log().reshape(1, 1, 1))
    assert float(one.crps(torch.tensor([[1.001e6]]))) == pytest.approx(602.4, rel=2e-3)  # of N(1e6, 1e6), one std off


def test_counts_that_were_drawn_are_covered(generator):
    mixture, _ = poissons(n=30_000, targets=1, center=0.0)
    y = torch.poisson(mixture.log_rates[:, 0].exp(), generator=generator)
    alone = PoissonMixture(mixture.log_rates[:, :1])
    scores = score_numbers(alone, y)
    for percent in (50, 80, 90, 95):
        assert scores[f"coverage_{percent}"] == pytest.approx(percent / 100, abs=0.01)
    assert scores["pit"] == pytest.approx([0.05] * 20, abs=0.005)
    draws = torch.rand(y.shape, generator=generator, dtype=torch.float64)
    low, high = alone.pit(y)
    randomised = low + draws * (high - low)
    inside = ((randomised > 0.05) & (randomised < 0.95)).double().mean()
    assert float(coverage((low, high), 0.9)) == pytest.approx(float(inside), abs=0.005)


def test_deviance_against_scikit_learn():
    mixture, y = poissons(n=200, targets=1)
    assert float(poisson_deviance(mixture.mean, y)) == pytest.approx(mean_poisson_deviance(y[:, 0], mixture.mean[:, 0]))
    assert torch.isfinite(poisson_deviance(torch.zeros(1, 1), torch.ones(1, 1)))


@pytest.mark.parametrize("y", [0, 1, 7, 1000, 10**6, 2**24])
@pytest.mark.parametrize("times", [1e-3, 0.5, 0.999, 1.0, 1.001, 3.0])
def test_log_poisson_keeps_its_digits(y, times):
    """In float32: y log(rate) - rate - log(y!) as it stands would be off by whole numbers at a million."""
    rate = max(y, 1) * times
    ours = log_poisson(torch.tensor(math.log(rate), dtype=torch.float32), torch.tensor(float(y)))
    rounded = float(torch.tensor(math.log(rate), dtype=torch.float32).double().exp())
    assert float(ours) == pytest.approx(stats.poisson(rounded).logpmf(y), rel=1e-3, abs=0.05)
    exact = log_poisson(torch.tensor(math.log(rate), dtype=torch.float64), torch.tensor(float(y)).double())
    assert float(exact) == pytest.approx(stats.poisson(rate).logpmf(y), rel=1e-6, abs=1e-5)


def test_extremes_of_counts():
    log_rates = torch.tensor([[-1e4, -1e4], [-800.0, 30.0], [80.0, 80.0], [16.0, 16.0]]).double()[..., None]
    mixture = PoissonMixture(log_rates)
    for y in (0.0, 2.0**24):
        for name, value in score_numbers(mixture, torch.full((4, 1), y)).items():
            assert np.isfinite(value).all(), name
    assert "inputs" in mixture._repr_html_()
    assert torch.isfinite(mixture.doubt).all()


# Rows


@pytest.mark.parametrize("kind", [gaussians, poissons])
def test_rows_and_join(kind):
    mixture, y = kind(n=7)
    whole = join([mixture.rows(torch.arange(3)), mixture.rows(torch.arange(7) >= 3)])
    assert torch.equal(whole.log_density(y), mixture.log_density(y))
    assert len(whole) == 7
    assert repr(mixture).startswith(type(mixture).__name__ + "(7 inputs, 2 targets: mean ")
    assert "<td>" in mixture._repr_html_()
