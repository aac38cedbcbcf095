"""One suite for every position coder, and the bound for the best of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedstein.coding import POSITION_CODERS, Shared
from fedstein.coding.positions import bound_bits
from fedstein.coding.rangecoder import Decoder, Encoder, uniform
from fedstein.errors import PayloadError

SHAPES = ("spread", "first", "last", "clustered")


def pattern(dim, kept, groups, shape, seed):
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(groups):
        if shape == "first":
            row = np.arange(kept)
        elif shape == "last":
            row = np.arange(dim - kept, dim)
        elif shape == "clustered":
            row = (np.arange(kept) + random.integers(0, dim - kept + 1)) if kept < dim else np.arange(dim)
        else:
            row = np.sort(random.choice(dim, kept, replace=False))
        rows.append(row)
    return np.array(rows, np.int64).reshape(groups, kept)


cases = st.integers(1, 3000).flatmap(
    lambda dim: st.tuples(
        st.just(dim), st.integers(1, dim), st.integers(1, 3), st.sampled_from(SHAPES), st.integers(0, 2**32)
    )
)


@given(cases)
@settings(deadline=None, max_examples=150)
@pytest.mark.parametrize("name", ["golomb", "range"])
def test_round_trip_and_worst_case(name, case):
    dim, kept, groups = case[:3]
    positions, coder = pattern(*case), POSITION_CODERS[name]
    content = coder.encode(positions, dim, None)
    np.testing.assert_array_equal(coder.decode(content, groups, kept, dim, None), positions)
    assert len(content) <= -(-coder.most_bits(groups, kept, dim) // 8)


@given(cases.filter(lambda case: bound_bits(case[0], case[1]) * case[2] < 600))
@settings(deadline=None, max_examples=100)
def test_enumerative_is_exact(case):
    dim, kept, groups = case[:3]
    positions, coder = pattern(*case), POSITION_CODERS["enumerative"]
    content = coder.encode(positions, dim, None)
    np.testing.assert_array_equal(coder.decode(content, groups, kept, dim, None), positions)
    assert 8 * len(content) < groups * bound_bits(dim, kept) + 8 + 1e-6


@pytest.mark.parametrize("dim", [10, 100, 1010, 79_510, 1_000_000, 11_000_000])
def test_the_best_coder_is_near_the_bound(dim):
    """At most 0.2 % + 16 bits above log2 C(d, kept), for kept from 1 to d."""
    ladder = {1, 2, 4, dim // 1000, dim // 100, dim // 57, dim // 10, dim // 3, dim // 2, dim * 9 // 10, dim - 1, dim}
    for kept in sorted(k for k in ladder if 1 <= k <= min(dim, 2_000_000)):
        positions = pattern(dim, kept, 1, "spread", kept)
        bound = bound_bits(dim, kept)
        names = ["golomb", "range"] + (["enumerative"] if kept <= 64 else [])
        best = min(8 * len(POSITION_CODERS[name].encode(positions, dim, None)) for name in names)
        assert best <= 1.002 * bound + 16, (dim, kept, best, bound)


@given(cases)
@settings(deadline=None, max_examples=150)
def test_informed_round_trip(case):
    dim, kept, groups, _, seed = case
    random = np.random.default_rng(seed)
    start = random.normal(size=(groups * 2, dim)).astype(np.float32)
    now = start + (random.random(dim) < 0.3) * np.exp(random.normal(size=dim)).astype(np.float32)
    here, there = (Shared(now.astype(np.float32), start) for _ in range(2))
    positions, coder = pattern(*case), POSITION_CODERS["informed"]
    encoder = Encoder()
    coder.write(encoder, positions, dim, here)
    content = encoder.finish()
    assert content == coder.encode(positions, dim, here)
    assert len(content) <= -(-coder.most_bits(groups, kept, dim) // 8)
    np.testing.assert_array_equal(coder.read(Decoder(content), groups, kept, dim, there), positions)
    np.testing.assert_array_equal(coder.decode(content, groups, kept, dim, there), positions)


def test_informed_goes_below_the_bound_when_movers_move_again():
    random = np.random.default_rng(0)
    dim, kept = 79_510, 1386
    scale = np.exp(1.5 * random.normal(size=dim))
    start = np.zeros((5, dim), np.float32)
    now = (scale * random.normal(size=(5, dim))).astype(np.float32)
    update = np.abs(scale * random.normal(size=(5, dim))).sum(0)
    positions = np.sort(np.argsort(-update)[:kept])[None]
    content = POSITION_CODERS["informed"].encode(positions, dim, Shared(now, start))
    assert 8 * len(content) < 0.8 * bound_bits(dim, kept)


@given(st.binary(max_size=60), st.integers(1, 200), st.integers(1, 3), st.data())
@settings(deadline=None, max_examples=300)
@pytest.mark.parametrize("name", POSITION_CODERS)
def test_any_bytes_give_positions_or_a_payload_error(name, content, dim, groups, data):
    kept = data.draw(st.integers(1, dim))
    now = np.random.default_rng(dim).standard_cauchy((groups, dim)).astype(np.float32)
    try:
        positions = POSITION_CODERS[name].decode(content, groups, kept, dim, Shared(now, np.zeros_like(now)))
    except PayloadError:
        return
    assert positions.shape == (groups, kept)
    assert positions.min() >= 0
    assert positions.max() < dim
    assert (np.diff(positions, axis=1) > 0).all()


@given(st.lists(st.tuples(st.integers(2, 300), st.integers(0, 40), st.integers(0, 2**32)), max_size=6))
@settings(deadline=None, max_examples=100)
def test_the_range_coder_ends_tightly(parts):
    encoder, written, information = Encoder(), [], 0.0
    for size, count, seed in parts:
        symbols = np.random.default_rng(seed).integers(0, size, count).astype(np.int32)
        encoder.write(symbols, uniform(size))
        written.append((size, symbols))
        information += count * np.log2(size)
    content = encoder.finish()
    decoder = Decoder(content)
    for size, symbols in written:
        np.testing.assert_array_equal(decoder.read(len(symbols), uniform(size)), symbols)
    assert 8 * len(content) <= information + 16
