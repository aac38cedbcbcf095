from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedstein.errors import PayloadError, UserError
from fedstein.uplink import Contract, decode, encode, groups_of, parse_budget, plan, valid_sharings, what_both_know
from fedstein.uplink.frame import Sparse

MODES = [("auto", "fixed"), ("golomb", "fixed"), ("range", "fixed"), ("informed", "fixed"), ("auto", "adaptive"),
         ("informed", "adaptive")]  # fmt: skip
KINDS = ("normal", "zero", "constant", "outlier", "heavy", "one row", "alike")


def make_update(kind, particles, dim, seed):
    random = np.random.default_rng(seed)
    update = random.normal(size=(particles, dim))
    if kind == "zero":
        update *= 0
    elif kind == "constant":
        update = np.full((particles, dim), -0.25)
    elif kind == "outlier":
        update[random.integers(particles), random.integers(dim)] = 1e20
    elif kind == "heavy":
        update = random.standard_cauchy((particles, dim)) * 1e-6
    elif kind == "one row":
        update[1:] = 0
    elif kind == "alike":
        update = update[:1] + 0.01 * update
    return update.astype(np.float32)


@st.composite
def problems(draw):
    particles = draw(st.integers(1, 6))
    dim = draw(st.integers(1, 400))
    groups = draw(st.sampled_from([sharing.denominator for sharing in valid_sharings(particles)]))
    positions, entries = draw(st.sampled_from(MODES))
    a_max = draw(st.none() | st.just(0.5))
    contract = Contract(dim, particles, groups, draw(st.integers(2, 16)), 1, a_max, positions, entries)
    contract = replace(contract, common=positions != "golomb" and draw(st.booleans()))
    contract = replace(contract, budget_bits=draw(st.integers(1, 40 * particles * dim + 400)))
    kind, seed = draw(st.sampled_from(KINDS)), draw(st.integers(0, 2**32))
    update = make_update(kind, particles, dim, seed)
    start = make_update("normal", particles, dim, seed + 1)
    known = what_both_know(start + (np.arange(dim) % 3 == 0).astype(np.float32), start, groups)
    return contract, update, known


@given(problems())
@settings(deadline=None, max_examples=400)
def test_every_frame_is_within_the_budget_and_means_the_same_at_both_ends(problem):
    contract, update, known = problem
    try:
        frame, sent, _ = encode(update, contract, np.random.default_rng(0), known)
    except UserError:
        assert contract.budget_bits < 8 * contract.overhead_bytes + 40 * contract.particles + 100
        return
    assert 8 * len(frame) <= contract.budget_bits
    found = decode(frame, contract, known)
    np.testing.assert_array_equal(found.positions, sent.positions)
    np.testing.assert_array_equal(found.levels, sent.levels)
    assert found.scale == sent.scale
    np.testing.assert_array_equal(found.dense(), sent.dense())
    # Support: what is kept is the heaviest of each group.
    each = update.reshape(contract.groups, -1, contract.dim)
    each = each if found.copies == 1 else each.mean(1, keepdims=True)
    weights = np.abs(each).sum(1, dtype=np.float32)
    for row, weight in zip(found.positions, weights, strict=True):
        others = np.delete(weight, row)
        if len(row) and len(others):
            assert weight[row].min() >= others.max() * (1 - 1e-5)


@given(problems(), st.data())
@settings(deadline=None, max_examples=300)
def test_damaged_frames_are_refused(problem, data):
    contract, update, known = problem
    try:
        frame, _, _ = encode(update, contract, np.random.default_rng(0), known)
    except UserError:
        return
    wide = replace(contract, budget_bits=contract.budget_bits + 800)
    pairs = [(wide, contract)]
    if contract.can_be_common:
        pairs.append((wide.per_group(), contract.per_group()))
    wide_plan = all(plan(a).kept == plan(b).kept for a, b in pairs)
    damage = data.draw(st.sampled_from(["flip", "cut", "extend", "random"]))
    if damage == "flip":
        bit = data.draw(st.integers(0, 8 * len(frame) - 1))
        bad = bytes(byte ^ (1 << bit % 8 if index == bit // 8 else 0) for index, byte in enumerate(frame))
    elif damage == "cut":
        bad = frame[: data.draw(st.integers(0, len(frame) - 1))]
    elif damage == "extend":
        bad = frame + data.draw(st.binary(min_size=1, max_size=8))
    else:
        bad = data.draw(st.binary(max_size=len(frame)))
    with pytest.raises(PayloadError):
        decode(bad, wide if wide_plan else contract, known)


def test_a_frame_beyond_the_budget_is_refused():
    contract = Contract(100, 2, 1, 5, 400)
    frame, _, _ = encode(make_update("normal", 2, 100, 0), contract, np.random.default_rng(0))
    with pytest.raises(PayloadError, match="budget"):
        decode(frame, replace(contract, budget_bits=8 * len(frame) - 1))


def test_another_contract_or_other_knowledge_is_noticed():
    update = make_update("normal", 4, 300, 0)
    contract = Contract(300, 4, 2, 5, 2000, positions="informed", entries="adaptive")
    start = np.zeros((4, 300), np.float32)
    known = what_both_know(make_update("heavy", 4, 300, 1) * 1e6, start, 2)
    frame, _, _ = encode(update, contract, np.random.default_rng(0), known)
    other = what_both_know(make_update("heavy", 4, 300, 2) * 1e6, start, 2)
    with pytest.raises(PayloadError):
        decode(frame, contract, other)
    with pytest.raises(PayloadError):
        decode(frame, contract, None)
    with pytest.raises(PayloadError):
        decode(frame, replace(contract, entries="fixed"), known)
    with pytest.raises(PayloadError):
        decode(frame, replace(contract, bits_per_entry=6), known)


@pytest.mark.parametrize("entries", ["fixed", "adaptive"])
def test_common_values_are_sent_where_they_carry_more(entries):
    own = Contract(400, 8, 2, 5, 900, entries=entries)
    contract = replace(own, common=True)
    alike = make_update("alike", 8, 400, 5)
    opposed = alike * np.array([[1], [-1]] * 4, np.float32)
    for update, copies in ((alike, 4), (opposed, 1)):
        found = [encode(update, terms, np.random.default_rng(0)) for terms in (contract, own)]
        errors = [float(np.square(update - sparse.dense()).sum()) for _, sparse, _ in found]
        assert found[0][1].copies == copies
        assert errors[0] < 0.8 * errors[1] if copies > 1 else errors[0] == errors[1]
        assert decode(found[0][0], contract).dense().shape == (8, 400)
        if copies > 1:
            with pytest.raises(PayloadError, match="common"):
                decode(found[0][0], own)


def test_the_two_ends_of_sharing():
    update = make_update("normal", 4, 50, 3)
    shared = encode(update, Contract(50, 4, 1, 5, 500), np.random.default_rng(0))[1]
    np.testing.assert_array_equal(shared.positions[0], np.sort(np.argsort(-np.abs(update).sum(0))[: shared.kept]))
    alone = encode(update, Contract(50, 4, 4, 5, 500), np.random.default_rng(0))[1]
    for row, values in zip(alone.positions, update, strict=True):
        np.testing.assert_array_equal(row, np.sort(np.argsort(-np.abs(values))[: alone.kept]))


GOLDEN = {
    ("auto", "fixed"): "2119bb813f40fda57fd7fda7fd257f57fd22ba",
    ("golomb", "fixed"): "20b1dc6d3f40fda57fd7fda7fd257f57fd187800",
    ("range", "fixed"): "21dcc0983f40fd7fd7fd7f57f57f23f3",
    ("auto", "adaptive"): "3920842e3f400823f3313dc17138cdf4dba5b758",
}
COMMON = "2fba6cab3f40fe7e3bff75656adf00fdbb"


def golden_update():
    return (np.arange(40).reshape(2, 20) % 7 - 3).astype(np.float32) / 4


@pytest.mark.parametrize(("positions", "entries"), GOLDEN)
def test_golden_bytes(positions, entries):
    """The format of version 1. A change here breaks every deployed agent: it must be a new version."""
    contract = Contract(20, 2, 1, 4, 160, positions=positions, entries=entries)
    frame, _, _ = encode(golden_update(), contract, _Half())
    assert frame.hex() == GOLDEN[positions, entries]
    assert isinstance(decode(bytes.fromhex(GOLDEN[positions, entries]), contract), Sparse)


def test_golden_bytes_of_common_values():
    contract = Contract(20, 2, 1, 4, 160, entries="adaptive", common=True)
    update = np.repeat(golden_update()[:1], 2, axis=0)
    frame, sparse, _ = encode(update, contract, _Half())
    assert sparse.copies == 2
    assert frame.hex() == COMMON


class _Half:
    """Rounds to nearest, so that golden bytes do not hang on a random generator."""

    def random(self, shape):
        return np.full(shape, 0.5)


def test_overhead_is_at_most_eight_bytes():
    for positions, entries in (("auto", "fixed"), ("golomb", "fixed")):
        for dim, particles, kept_budget in ((1010, 40, 1010), (1010, 40, 505), (79_510, 10, 79_510), (300, 1, 900)):
            contract = Contract(dim, particles, 1, 5, kept_budget, positions=positions, entries=entries)
            update = make_update("normal", particles, dim, 0)
            frame, sent, _ = encode(update, contract, np.random.default_rng(0))
            from fedstein.uplink.positions import CODERS

            coded = min(len(CODERS[name].encode(sent.positions, dim)) for name in contract.coders(sent.kept))
            assert len(frame) - coded - math.ceil(particles * 5 * sent.kept / 8) <= 6


def test_budgets_in_many_units():
    assert parse_budget("79510", 1) == 79510
    assert parse_budget("0.5d", 1010) == 505
    assert parse_budget("1.0d", 79510) == 79510
    assert parse_budget("10kB", 1) == 80_000
    assert parse_budget("63B", 1) == 504
    for bad in ("", "d", "-1", "1x", "0", "nan", "1e99", "0.5 dd"):
        with pytest.raises(UserError, match=r"uplink\.budget"):
            parse_budget(bad, 100)


def test_sharing_must_divide():
    assert groups_of(0.5, 10) == 2
    assert groups_of(0.333333, 3) == 3
    with pytest.raises(UserError, match="1/5"):
        groups_of(0.3, 10)


@given(st.integers(1, 2000), st.integers(1, 12), st.integers(2, 16), st.integers(1, 200_000), st.data())
@settings(deadline=None, max_examples=150)
def test_the_plan_is_the_largest_that_fits(dim, particles, bits, budget, data):
    from fedstein.uplink.budget import cost

    groups = data.draw(st.sampled_from([s.denominator for s in valid_sharings(particles)]))
    contract = Contract(dim, particles, groups, bits, budget)
    try:
        found = plan(contract)
    except UserError:
        assert cost(contract, 1).bits > budget
        return
    assert found.bits <= budget
    if found.kept < dim:
        assert cost(contract, dim).bits > budget
        assert cost(contract, found.kept + 1).bits > budget
