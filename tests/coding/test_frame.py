from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedstein.coding import (
    ENTRY_CODERS,
    POSITION_CODERS,
    QUANTISERS,
    SPARSIFIERS,
    Contract,
    Link,
    Shared,
    Sparse,
    decode,
    encode,
    groups_of,
    parse_budget,
    plan,
    valid_sharings,
)
from fedstein.coding.budget import cost
from fedstein.coding.frame import VERSION
from fedstein.errors import PayloadError, UserError

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
    shared = Shared(start + (np.arange(dim) % 3 == 0).astype(np.float32), start)
    return contract, update, shared


@given(problems())
@settings(deadline=None, max_examples=400)
def test_every_frame_is_within_the_budget_and_means_the_same_at_both_ends(problem):
    contract, update, shared = problem
    try:
        frame, sent, _ = encode(update, contract, np.random.default_rng(0), shared)
    except UserError:
        assert contract.budget_bits < 8 * contract.overhead_bytes + 40 * contract.particles + 100
        return
    assert 8 * len(frame) <= contract.budget_bits
    there = decode(frame, contract, shared)
    np.testing.assert_array_equal(there.positions, sent.positions)
    np.testing.assert_array_equal(there.levels, sent.levels)
    assert there.scale == sent.scale
    np.testing.assert_array_equal(there.dense(), sent.dense())
    # Support: what is kept is the heaviest of each group.
    each = update.reshape(contract.groups, -1, contract.dim)
    each = each if there.copies == 1 else each.mean(1, keepdims=True)
    weights = np.abs(each).sum(1, dtype=np.float32)
    for row, weight in zip(there.positions, weights, strict=True):
        others = np.delete(weight, row)
        if len(row) and len(others):
            assert weight[row].min() >= others.max() * (1 - 1e-5)


@given(problems(), st.data())
@settings(deadline=None, max_examples=300)
def test_damaged_frames_are_refused(problem, data):
    contract, update, shared = problem
    try:
        frame, _, _ = encode(update, contract, np.random.default_rng(0), shared)
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
        decode(bad, wide if wide_plan else contract, shared)


def test_a_frame_beyond_the_budget_is_refused():
    contract = Contract(100, 2, 1, 5, 400)
    frame, _, _ = encode(make_update("normal", 2, 100, 0), contract, np.random.default_rng(0))
    with pytest.raises(PayloadError, match="budget"):
        decode(frame, replace(contract, budget_bits=8 * len(frame) - 1))


def test_another_contract_or_other_knowledge_is_noticed():
    update = make_update("normal", 4, 300, 0)
    contract = Contract(300, 4, 2, 5, 2000, positions="informed", entries="adaptive")
    start = np.zeros((4, 300), np.float32)
    shared = Shared(make_update("heavy", 4, 300, 1) * 1e6, start)
    frame, _, _ = encode(update, contract, np.random.default_rng(0), shared)
    other = Shared(make_update("heavy", 4, 300, 2) * 1e6, start)
    with pytest.raises(PayloadError):
        decode(frame, contract, other)
    with pytest.raises(PayloadError):
        decode(frame, contract, None)
    with pytest.raises(PayloadError):
        decode(frame, replace(contract, entries="fixed"), shared)
    with pytest.raises(PayloadError):
        decode(frame, replace(contract, bits_per_entry=6), shared)
    with pytest.raises(PayloadError):
        decode(frame, contract, Shared(shared.particles))


@pytest.mark.parametrize("name", ["positions", "entries", "sparsifier", "quantiser"])
def test_the_check_covers_the_names_of_the_parts(name, monkeypatch):
    """The same parts under other names, and bytes that would mean the same: the frame is of another contract."""
    registry = {"positions": POSITION_CODERS, "entries": ENTRY_CODERS, "sparsifier": SPARSIFIERS,
                "quantiser": QUANTISERS}[name]  # fmt: skip
    contract = Contract(100, 2, 1, 5, 400, positions="range")
    monkeypatch.setitem(registry._own, "other", registry[getattr(contract, name)])
    frame, sparse, _ = encode(make_update("normal", 2, 100, 0), contract, np.random.default_rng(0))
    other = replace(contract, **{name: "other"})
    again, same, _ = encode(make_update("normal", 2, 100, 0), other, np.random.default_rng(0))
    assert again[4:] == frame[4:]
    np.testing.assert_array_equal(same.dense(), sparse.dense())
    with pytest.raises(PayloadError, match="contract"):
        decode(frame, other)
    registry._loaded.pop("other")


@pytest.mark.parametrize("entries", ["fixed", "adaptive"])
def test_common_values_are_sent_where_they_carry_more(entries):
    own = Contract(400, 8, 2, 5, 900, entries=entries)
    contract = replace(own, common=True)
    alike = make_update("alike", 8, 400, 5)
    opposed = alike * np.array([[1], [-1]] * 4, np.float32)
    for update, copies in ((alike, 4), (opposed, 1)):
        frames = [encode(update, terms, np.random.default_rng(0)) for terms in (contract, own)]
        errors = [float(np.square(update - sparse.dense()).sum()) for _, sparse, _ in frames]
        assert frames[0][1].copies == copies
        assert errors[0] < 0.8 * errors[1] if copies > 1 else errors[0] == errors[1]
        assert decode(frames[0][0], contract).dense().shape == (8, 400)
        if copies > 1:
            with pytest.raises(PayloadError, match="common"):
                decode(frames[0][0], own)


def test_the_two_ends_of_sharing():
    update = make_update("normal", 4, 50, 3)
    shared = encode(update, Contract(50, 4, 1, 5, 500), np.random.default_rng(0))[1]
    np.testing.assert_array_equal(shared.positions[0], np.sort(np.argsort(-np.abs(update).sum(0))[: shared.kept]))
    alone = encode(update, Contract(50, 4, 4, 5, 500), np.random.default_rng(0))[1]
    for row, values in zip(alone.positions, update, strict=True):
        np.testing.assert_array_equal(row, np.sort(np.argsort(-np.abs(values))[: alone.kept]))


GOLDEN = {
    ("auto", "fixed"): "404003273f40fda57fd7fda7fd257f57fd22ba",
    ("golomb", "fixed"): "401045953f40fda57fd7fda7fd257f57fd187800",
    ("range", "fixed"): "408554b43f40fd7fd7fd7f57f57f23f3",
    ("auto", "adaptive"): "505a39923f400823f3313dc17138cdf4dba5b758",
}
COMMON = "4874b5c03f40fe7e3bff75656adf00fdbb"


def golden_update():
    return (np.arange(40).reshape(2, 20) % 7 - 3).astype(np.float32) / 4


@pytest.mark.parametrize(("positions", "entries"), GOLDEN)
def test_golden_bytes(positions, entries):
    """The format of version 2. A change here breaks every deployed agent: it must be a new version."""
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
            coded = min(
                len(POSITION_CODERS[name].encode(sent.positions, dim, None)) for name in contract.coders(sent.kept)
            )
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
    groups = data.draw(st.sampled_from([s.denominator for s in valid_sharings(particles)]))
    contract = Contract(dim, particles, groups, bits, budget)
    try:
        best = plan(contract)
    except UserError:
        assert cost(contract, 1).bits > budget
        return
    assert best.bits <= budget
    if best.kept < dim:
        assert cost(contract, dim).bits > budget
        assert cost(contract, best.kept + 1).bits > budget


# --- what is new in version 2


def test_version_1_is_refused():
    contract = Contract(20, 2, 1, 4, 160)
    assert VERSION == 2
    with pytest.raises(PayloadError, match="version 1"):
        decode(bytes.fromhex("2119bb813f40fda57fd7fda7fd257f57fd22ba"), contract)


def forged(frame, contract, monkeypatch, shared=None):
    """Decoded as if the sender had computed the check for it."""
    from fedstein.coding import frame as module

    monkeypatch.setattr(module, "_check", lambda sparse, others: frame[1:4])
    return decode(frame, contract, shared)


@pytest.mark.parametrize("budget", [10_000, 160])
def test_a_frame_has_one_way_to_say_a_thing(budget, monkeypatch):
    contract = Contract(20, 2, 1, 4, budget)
    frame, sparse, _ = encode(golden_update(), contract, _Half())
    assert forged(frame, contract, monkeypatch).kept == sparse.kept
    whole = sparse.kept == contract.dim
    for index in range(1 if whole else 3, 8):  # no positions are sent: the coder must be 0
        with pytest.raises(PayloadError, match=f"way {index}"):
            forged(bytes([frame[0] & 0xF8 | index]) + frame[1:], contract, monkeypatch)
    number = bytes([sparse.kept])
    wide = replace(contract, budget_bits=10_000) if whole else replace(contract, budget_bits=budget + 16)
    if plan(wide).kept == sparse.kept:
        with pytest.raises(PayloadError, match="planned"):  # the planned number is not sent
            forged(bytes([frame[0] | 16]) + frame[1:6] + number + frame[6:], wide, monkeypatch)
    with pytest.raises(PayloadError, match="number"):  # nor with zeros before it
        forged(bytes([frame[0] | 16]) + frame[1:6] + b"\x80" + b"\x03" + frame[6:-2], contract, monkeypatch)
    if whole:
        with pytest.raises(PayloadError, match="need none"):
            forged(frame + b"\0", wide, monkeypatch)


def test_a_large_pattern_in_one_number_is_refused_before_it_is_read(monkeypatch):
    contract = Contract(79_510, 1, 1, 2, 79_510)
    assert plan(contract).kept > 64
    frame, _, _ = encode(make_update("normal", 1, 79_510, 0), contract, np.random.default_rng(0))
    with pytest.raises(PayloadError, match="too large"):
        forged(bytes([frame[0] & 0xF8 | 2]) + frame[1:], contract, monkeypatch)


def test_nothing_is_sent_where_not_even_one_entry_fits():
    """Digits without a hidden layer: the plan counts on fixed entries, and adaptive ones may be longer."""
    contract = Contract(650, 10, 10, 8, 224, entries="adaptive")
    kept = set()
    for seed in range(12):
        update = make_update("heavy" if seed % 2 else "normal", 10, 650, seed)
        frame, sparse, position_bits = encode(update, contract, np.random.default_rng(0))
        assert 8 * len(frame) <= 224
        np.testing.assert_array_equal(decode(frame, contract).dense(), sparse.dense())
        kept.add(sparse.kept)
        if sparse.kept == 0:
            assert (len(frame), position_bits, sparse.dense().any()) == (7, 0, False)
    assert kept == {0, 1}


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"positions": "golomb", "entries": "adaptive"},
         "The 'uplink.positions' must be auto, range or informed with adaptive entries. Got 'golomb'."),
        ({"positions": "enumerative", "common": True},
         "The 'uplink.positions' must be auto, range or informed with common values. Got 'enumerative'."),
        ({"positions": "golom"}, "The 'uplink.positions' must be one of auto, golomb, range, enumerative, informed. "
         "Got 'golom' instead. Did you mean 'golomb'?"),
        ({"entries": "x"}, "The 'uplink.entries' must be one of fixed, adaptive. Got 'x' instead."),
        ({"sparsifier": "topk"}, "The 'uplink.sparsifier' must be one of top-k. Got 'topk' instead."),
        ({"quantiser": "x"}, "The 'uplink.quantiser' must be one of stochastic. Got 'x' instead."),
    ],
)  # fmt: skip
def test_parts_that_do_not_fit_are_refused(terms, message):
    contract = Contract(100, 4, 2, 5, 1000, **terms)
    for refuse in (contract.check, lambda: plan(contract)):
        with pytest.raises(UserError) as caught:
            refuse()
        assert str(caught.value).startswith(message)


def test_a_link_says_whether_the_first_particles_are_needed():
    contract = Contract(100, 4, 2, 5, 1000)
    assert not Link(contract).needs_first
    assert Link(replace(contract, positions="informed")).needs_first
    with pytest.raises(UserError, match="first particles"):
        encode(make_update("normal", 4, 100, 0), replace(contract, positions="informed"), np.random.default_rng(0))


def test_both_ends_draw_the_same_numbers():
    here, there = (Shared(np.zeros((1, 2), np.float32), seed=1, round=2, agent=3) for _ in range(2))
    draws = here.random("sparsifier").random(8)
    np.testing.assert_array_equal(draws, there.random("sparsifier").random(8))
    for other in (there.random("other"), *(replace(here, **{name: 9}).random("sparsifier") for name in
                                           ("seed", "round", "agent"))):  # fmt: skip
        assert (other.random(8) != draws).all()
