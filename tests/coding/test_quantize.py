from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedstein.coding import QUANTISERS
from fedstein.coding.quantisers import largest_level
from fedstein.coding.scale import pack_scale, unpack_scale

quantise, restore = QUANTISERS["stochastic"].quantise, QUANTISERS["stochastic"].restore

finite = st.floats(-(2.0**100), 2.0**100, width=32)


@given(arrays(np.float32, st.integers(1, 30), elements=finite), st.integers(2, 16), st.integers(0, 2**32))
@settings(deadline=None)
def test_levels_fit_and_values_are_near(values, bits, seed):
    scale = pack_scale(float(np.abs(values).max()))[1]
    levels = quantise(values, scale, bits, np.random.default_rng(seed))
    assert np.abs(levels).max() <= largest_level(bits) == 2 ** (bits - 1) - 1
    step = scale / largest_level(bits)
    assert np.abs(restore(levels, scale, bits).astype(np.float64) - values).max() <= step * (1 + 1e-5)


@pytest.mark.parametrize("bits", [2, 5, 9])
def test_unbiased_inside_the_range_and_clipped_outside(bits):
    values = np.array([0.0, 0.013, -0.4, 0.77, 1.0, -1.0, 3.0, -9.0], np.float32)
    random = np.random.default_rng(0)
    draws = np.stack([restore(quantise(values, 1.0, bits, random), 1.0, bits) for _ in range(20_000)])
    error = np.abs(draws.mean(0, dtype=np.float64) - np.clip(values, -1, 1))
    assert error.max() < 4 * 0.5 / largest_level(bits) / np.sqrt(20_000) + 1e-6
    assert (draws[:, -2:] == [1, -1]).all()


@given(st.floats(0, 2.0**127, width=32))
def test_a_scale_in_two_bytes_is_never_too_small(largest):
    packed, scale = pack_scale(largest)
    assert len(packed) == 2
    assert scale == unpack_scale(packed)
    assert largest <= scale <= largest * 1.0079 + 1e-37


def test_zero_constant_and_outlier():
    random = np.random.default_rng(0)
    assert not quantise(np.zeros(5, np.float32), 0.0, 5, random).any()
    assert (quantise(np.full(5, -2.5, np.float32), 2.5, 5, random) == -15).all()
    levels = quantise(np.array([1e30, 1.0, -1.0], np.float32), 1e30, 5, random)
    assert levels.tolist() == [15, 0, 0]
