from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedstein.inference import (
    IMQ,
    RBF,
    EmaAdaGrad,
    Gradient,
    NoKernel,
    SmoothedDensity,
    direction,
    log_kde,
    median_bandwidth,
    squared_distances,
    svgd,
)


def phi_by_definition(particles, score, kernel):
    """Equation (6) term by term, with the kernel's gradient by autograd."""
    n = len(particles)
    rows = []
    for i in range(n):
        total = torch.zeros_like(particles[0])
        for j in range(n):
            xj = particles[j].clone().requires_grad_(True)
            value = kernel(xj, particles[i])
            (slope,) = torch.autograd.grad(value, xj)
            total = total + value.detach() * score[j] + slope
        rows.append(total / n)
    return torch.stack(rows)


@pytest.mark.parametrize("n", [2, 3, 10])
@pytest.mark.parametrize(
    ("kernel", "formula"),
    [
        (RBF(3.0), lambda x, y: torch.exp(-(x - y).square().sum() / 3.0)),
        (IMQ(3.0), lambda x, y: (1 + (x - y).square().sum() / 3.0) ** -0.5),
    ],
)
def test_direction_is_equation_6(n, kernel, formula, generator):
    x = torch.randn(n, 7, generator=generator, dtype=torch.float64)
    score = torch.randn(n, 7, generator=generator, dtype=torch.float64)
    expected = phi_by_definition(x, score, formula)
    torch.testing.assert_close(direction(x, score.clone(), kernel), expected)
    torch.testing.assert_close(direction(x, score.clone(), kernel, out=torch.full_like(x, math.nan)), expected)


@pytest.mark.parametrize("bandwidth", [None, 5.0])
def test_direction_agrees_with_blackjax(bandwidth, generator):
    import blackjax
    import jax.numpy as jnp
    import optax

    x = torch.randn(12, 30, generator=generator)

    def score(theta):  # of a standard Gaussian at 1
        return 1.0 - theta

    h = median_bandwidth(squared_distances(x)) if bandwidth is None else bandwidth
    algorithm = blackjax.svgd(score, optax.sgd(1.0))
    state = algorithm.init(jnp.asarray(x.numpy()), {"length_scale": h})
    theirs = np.asarray(algorithm.step(state).particles) - x.numpy()
    ours = direction(x, score(x), RBF(bandwidth))
    assert np.abs(ours.numpy() - theirs).max() < 1e-4 * np.abs(theirs).max()


def test_median_rule_agrees_with_blackjax(generator):
    import jax.numpy as jnp
    from blackjax.vi.svgd import median_heuristic

    for n in (2, 3, 4, 5, 11):
        x = torch.randn(n, 6, generator=generator)
        theirs = float(median_heuristic({}, jnp.asarray(x.numpy()))["length_scale"])
        assert median_bandwidth(squared_distances(x)) == pytest.approx(theirs, rel=1e-4)


def test_one_particle_is_gradient_ascent(generator):
    x, score = torch.randn(1, 5, generator=generator), torch.randn(1, 5, generator=generator)
    for kernel in (RBF(), IMQ(), NoKernel(), SmoothedDensity(0.5)):
        torch.testing.assert_close(direction(x, score.clone(), kernel), score)


def test_coinciding_particles_stay_finite():
    x = torch.ones(4, 3)
    for kernel in (RBF(), IMQ(), SmoothedDensity(0.5)):
        assert torch.isfinite(direction(x, torch.ones(4, 3), kernel)).all()


@given(st.integers(2, 6), st.integers(1, 5), st.floats(0, 1e3), st.floats(1e-2, 10))
@settings(deadline=None, max_examples=200)
def test_distances_survive_a_far_origin(n, d, shift, spread):
    """Points that nearly coincide far from the origin: the naive Gram matrix loses them in float32."""
    base = torch.randn(n, d, generator=torch.Generator().manual_seed(n * 31 + d), dtype=torch.float64) * spread
    x32 = (base + shift).float()
    exact = torch.cdist(x32.double(), x32.double()).square()
    assert (squared_distances(x32).double() - exact).abs().max() <= 1e-3 * exact.max() + 1e-12


def test_distances_between_two_sets(generator):
    x, y = torch.randn(5, 40, generator=generator), torch.randn(3, 40, generator=generator)
    torch.testing.assert_close(squared_distances(x, y), torch.cdist(x, y).square(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kernel", [RBF(), IMQ()])
def test_svgd_finds_a_gaussian(kernel, generator):
    mean, std = torch.tensor([1.0, -2.0]), torch.tensor([0.5, 2.0])
    start = torch.randn(100, 2, generator=generator) * 3
    end = svgd(start, lambda x, _: (mean - x) / std**2, kernel, EmaAdaGrad(0.05), 2000)
    assert (end.mean(0) - mean).abs().max() < 0.06
    assert (end.std(0) / std - 1).abs().max() < 0.15
    assert not torch.equal(start, end)


def test_smoothed_density_ends_where_the_kde_is_the_target(generator):
    """SVGD's particles are like samples, so their KDE is too wide; this flow's KDE is the target itself."""
    bandwidth = 1.0
    grid = torch.linspace(-6, 6, 601)[:, None]
    target = (-0.5 * grid[:, 0] ** 2).softmax(0)

    def distance(particles):
        return 0.5 * float((log_kde(grid, particles, bandwidth).softmax(0) - target).abs().sum())

    start = torch.randn(60, 1, generator=generator) * 2
    flow = svgd(start, lambda x, _: -x, SmoothedDensity(bandwidth), Gradient(0.05), 600)
    plain = svgd(start, lambda x, _: -x, RBF(), Gradient(0.5), 600)
    assert distance(flow) < 0.01
    assert distance(plain) > 0.05
