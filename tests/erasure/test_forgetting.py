"""The measures of forgetting: pure functions against what they must be."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedstein.metrics import js, kl, likelihood_ratio, membership_auc, true_positives


@given(st.integers(0, 2**31), st.integers(2, 6))
@settings(deadline=None)
def test_divergences_are_zero_for_the_same_and_bounded(seed, classes):
    generator = torch.Generator().manual_seed(seed)
    p, q = torch.randn(2, 5, classes, generator=generator).mul(3).softmax(2)
    assert float(kl(p, p).max()) == 0.0
    assert (kl(p, q) >= 0).all()
    assert (js(p, q) >= 0).all()
    assert (js(p, q) <= math.log(2) + 1e-9).all()
    torch.testing.assert_close(js(p, q), js(q, p))


def test_kl_in_closed_form():
    p, q = torch.tensor([[0.5, 0.5]]), torch.tensor([[0.9, 0.1]])
    assert float(kl(p, q)) == pytest.approx(0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1), rel=1e-6)
    assert math.isfinite(float(kl(p, torch.tensor([[1.0, 0.0]]))))


def test_membership_is_two_sided(generator):
    low, high = torch.randn(500, generator=generator), torch.randn(500, generator=generator) + 3
    assert membership_auc(high, low) > 0.95
    assert membership_auc(low, high) < 0.05
    assert abs(membership_auc(low, torch.randn(500, generator=generator)) - 0.5) < 0.07
    assert true_positives(high, low) > 0.5
    assert true_positives(low, high) < 0.01


def test_the_likelihood_ratio_attack_finds_members_and_only_them(generator):
    """Scores N(hardness + 2 inside, 1): the attack must see past the hardness, which a loss threshold does not."""
    examples, shadows = 400, 16
    hardness = 5 * torch.randn(examples, generator=generator).double()
    inside = torch.rand(shadows, examples, generator=generator) < 0.5
    scores = hardness + 2 * inside + torch.randn(shadows, examples, generator=generator)
    member, clean = (hardness + 2 * there + torch.randn(examples, generator=generator) for there in (1, 0))
    attack = [likelihood_ratio(score, scores, inside) for score in (member, clean)]
    assert membership_auc(*attack) > 0.85
    assert membership_auc(member, clean) < 0.7
    # The best there is, for a difference of 2 standard deviations: Phi(2 / sqrt 2) = 0.921.
    assert membership_auc(*attack) < 0.95
