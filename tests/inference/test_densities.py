from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import gaussian_kde, multivariate_normal

from fedstein.inference import GaussianPrior, UniformPrior, add_log_kde_score, log_kde, log_kde_score


def test_log_kde_agrees_with_scipy(generator):
    points = torch.randn(20, 3, generator=generator, dtype=torch.float64)
    at = torch.randn(7, 3, generator=generator, dtype=torch.float64)
    bandwidth = 0.55
    parts = [multivariate_normal(p.numpy(), bandwidth / 2).pdf(at.numpy()) for p in points]
    torch.testing.assert_close(log_kde(at, points, bandwidth).exp(), torch.as_tensor(sum(parts) / 20))
    one = torch.randn(30, 1, generator=generator, dtype=torch.float64)
    theirs = gaussian_kde(one[:, 0].numpy(), bw_method=math.sqrt(bandwidth / 2) / float(one.std()))
    torch.testing.assert_close(log_kde(at[:, :1], one, bandwidth).exp(), torch.as_tensor(theirs(at[:, 0].numpy())))


@pytest.mark.parametrize("d", [1, 5, 200])
def test_score_is_the_gradient(d, generator):
    points = torch.randn(9, d, generator=generator, dtype=torch.float64)
    at = torch.randn(4, d, generator=generator, dtype=torch.float64).requires_grad_(True)
    (expected,) = torch.autograd.grad(torch.logsumexp(-torch.cdist(at, points).square() / 0.55, 1).sum(), at)
    torch.testing.assert_close(log_kde_score(at.detach(), points, 0.55), expected)


def test_score_with_floor_is_the_gradient(generator):
    floor, bandwidth, n = 1e-2, 0.55, 9
    points = torch.randn(n, 2, generator=generator, dtype=torch.float64)
    at = (torch.randn(5, 2, generator=generator, dtype=torch.float64) * 2).requires_grad_(True)
    density = (-torch.cdist(at, points).square() / bandwidth).exp().mean(1) + floor
    (expected,) = torch.autograd.grad(density.log().sum(), at)
    score = add_log_kde_score(torch.zeros_like(at), at.detach(), points, bandwidth, sign=-1.0, floor=floor)
    torch.testing.assert_close(score, -expected)
    far = add_log_kde_score(torch.zeros(1, 2), torch.full((1, 2), 50.0), points.float(), bandwidth, floor=floor)
    assert far.abs().max() == 0.0


def test_high_dimension_does_not_underflow(generator):
    """At d = 80,000 the density itself is exactly 0 in float32; its score is still right."""
    d, bandwidth = 80_000, 0.55
    points = torch.randn(10, d, generator=generator) * 0.1
    at = points + 0.01 * torch.randn(10, d, generator=generator)
    assert torch.exp(-torch.cdist(at, points).square() / bandwidth).mean(1).max() < 1e-6
    score = log_kde_score(at, points, bandwidth)
    torch.testing.assert_close(score, (points - at) * 2 / bandwidth, rtol=1e-3, atol=1e-4)
    assert torch.isfinite(log_kde(at, points, bandwidth)).all()


def test_priors(generator):
    prior = GaussianPrior(2.0)
    at = torch.randn(3, 4, generator=generator)
    normal = torch.distributions.Normal(0.0, 2.0)
    torch.testing.assert_close(prior.log_density(at), normal.log_prob(at).sum(1))
    torch.testing.assert_close(prior.score(at), -at / 4)
    assert prior.draw((20_000, 1), generator).std().item() == pytest.approx(2.0, rel=0.03)
    box = UniformPrior(-6.0, 6.0)
    draws = box.draw((1000, 2), generator)
    assert draws.abs().max() <= 6
    assert box.score(draws).abs().max() == 0
    assert box.log_density(torch.tensor([[0.0], [7.0]])).tolist() == pytest.approx([-math.log(12), -math.inf])
