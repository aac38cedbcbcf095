"""The seams of the coding room: every part keeps its word, broken parts are caught, and parts from outside work."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedstein.coding import (
    ENTRY_CODERS,
    POSITION_CODERS,
    QUANTISERS,
    SPARSIFIERS,
    Contract,
    Link,
    Shared,
    decode,
    encode,
    letter_bits,
    plan,
    receive,
    send,
)
from fedstein.coding.entries.adaptive import Adaptive
from fedstein.coding.entries.fixed import Fixed
from fedstein.coding.positions.golomb import Golomb
from fedstein.coding.positions.range import Range
from fedstein.coding.quantisers import Stochastic
from fedstein.coding.rangecoder import uniform
from fedstein.coding.sparsifiers import TopK
from fedstein.errors import PayloadError, UserError
from fedstein.testing.coding import check_entry_coder, check_position_coder, check_quantiser, check_sparsifier


@contextmanager
def registered(registry, name, part):
    registry._own[name] = part
    try:
        yield
    finally:
        registry._own.pop(name)
        registry._loaded.pop(name, None)
        plan.cache_clear()


class RandomK:
    """From outside: it inherits from nothing. Both ends draw the same entries, so none of them is sent."""

    sends_positions = False

    def ranked(self, update, groups, most, shared):
        return self._order(groups, update.shape[1], shared)[:, :most]

    def known(self, groups, kept, dim, shared):
        return np.sort(self._order(groups, dim, shared)[:, :kept], axis=1)

    def _order(self, groups, dim, shared):
        random = shared.random("sparsifier")
        return np.stack([random.permutation(dim) for _ in range(groups)])


class Plain:
    """A position coder from outside: one bit for each entry, and no range coder."""

    streams = False
    needs_first = False

    def encode(self, positions, dim, shared):
        bits = np.zeros((len(positions), dim), np.uint8)
        np.put_along_axis(bits, positions, 1, axis=1)
        return np.packbits(bits).tobytes()

    def decode(self, content, groups, kept, dim, shared):
        bits = np.unpackbits(np.frombuffer(content, np.uint8))
        table = bits[: groups * dim].reshape(-1, dim) if len(bits) >= groups * dim else np.zeros((0, dim), np.uint8)
        if len(content) != -(-groups * dim // 8) or (table.sum(axis=1) != kept).any() or bits[groups * dim :].any():
            raise PayloadError("These are no positions.")
        return np.nonzero(table)[1].reshape(groups, kept)

    def most_bits(self, groups, kept, dim):
        return groups * dim


class Zipped(Fixed):
    """An entry coder from outside with bytes of its own, and no certain length."""

    certain = False

    def encode(self, levels, groups, bits_per_entry):
        return super().encode(levels, groups, bits_per_entry).rstrip(b"\0")

    def decode(self, content, particles, kept, groups, bits_per_entry):
        length = -(-particles * kept * bits_per_entry // 8)
        return super().decode(content.ljust(length, b"\0"), particles, kept, groups, bits_per_entry)


class Flat(Adaptive):
    """An entry coder from outside in one stream with the positions, and of a certain length."""

    certain = True

    def write(self, encoder, levels, groups, bits_per_entry):
        encoder.write(levels.ravel() + (1 << (bits_per_entry - 1)), uniform(1 << bits_per_entry))

    def read(self, decoder, particles, kept, groups, bits_per_entry):
        levels = decoder.read(particles * kept, uniform(1 << bits_per_entry)) - (1 << (bits_per_entry - 1))
        if levels.min(initial=0) <= -(1 << (bits_per_entry - 1)):
            raise PayloadError("There is no such level.")
        return levels.reshape(particles, kept)


CHECKS = {
    "sparsifier": (SPARSIFIERS, check_sparsifier),
    "quantiser": (QUANTISERS, check_quantiser),
    "positions": (POSITION_CODERS, check_position_coder),
    "entries": (ENTRY_CODERS, check_entry_coder),
}


@pytest.mark.parametrize(
    ("seam", "name"), [(seam, name) for seam, (registry, _) in CHECKS.items() for name in registry]
)
def test_every_part_keeps_its_word(seam, name):
    registry, check = CHECKS[seam]
    before = list(registry)
    check(registry[name])
    assert list(registry) == before


@pytest.mark.parametrize(("seam", "part"), [("sparsifier", RandomK()), ("positions", Plain()), ("entries", Zipped())])
def test_parts_from_outside_keep_their_word(seam, part):
    CHECKS[seam][1](part)


# --- broken parts


class Twice(TopK):
    def ranked(self, update, groups, most, shared):
        return np.zeros((groups, most), np.int64)


class Moody(TopK):
    random = np.random.default_rng(0)

    def ranked(self, update, groups, most, shared):
        return np.stack([self.random.permutation(update.shape[1])[:most] for _ in range(groups)])


class Secretive(RandomK):
    def known(self, groups, kept, dim, shared):
        return np.tile(np.arange(kept), (groups, 1))


class Greedy(TopK):
    def ranked(self, update, groups, most, shared):
        return super().ranked(update, groups, most, shared)[:, : max(1, most - 1)]


class TooHigh(Stochastic):
    """The letter's levels, which do not fit into N_b - 1 bits."""

    def quantise(self, values, a_max, bits_per_entry, generator):
        return super().quantise(values, a_max, bits_per_entry + 1, generator)


class Nothing(Stochastic):
    def quantise(self, values, a_max, bits_per_entry, generator):
        return np.zeros(values.shape, np.int32)


class Divides(Stochastic):
    def restore(self, levels, a_max, bits_per_entry):
        with np.errstate(all="ignore"):
            return (levels / np.float32(a_max)).astype(np.float32)


class Careless(Golomb):
    """Whatever comes is read, with the errors of numpy."""

    def decode(self, content, groups, kept, dim, shared=None):
        try:
            return super().decode(content, groups, kept, dim)
        except PayloadError as error:
            raise IndexError("out of bounds") from error


class Boasting(Golomb):
    def most_bits(self, groups, kept, dim):
        return super().most_bits(groups, kept, dim) // 2


class Shifted(Golomb):
    def decode(self, content, groups, kept, dim, shared=None):
        return super().decode(content, groups, kept, dim)[:, ::-1]


class Straying(Range):
    """Reads more of the stream than it has written."""

    def read(self, decoder, groups, kept, dim, shared=None):
        positions = super().read(decoder, groups, kept, dim)
        decoder.read(1, uniform(7))
        return positions


class Unsigned(Fixed):
    def decode(self, content, particles, kept, groups, bits_per_entry):
        return np.abs(super().decode(content, particles, kept, groups, bits_per_entry))


class Longer(Fixed):
    def encode(self, levels, groups, bits_per_entry):
        return super().encode(levels, groups, bits_per_entry) + b"\0"

    def decode(self, content, particles, kept, groups, bits_per_entry):
        return super().decode(content[:-1], particles, kept, groups, bits_per_entry)


class Silent:
    """Says nothing of itself."""


@pytest.mark.parametrize(
    ("seam", "part", "sentence"),
    [
        ("sparsifier", Silent(), "must say sends_positions"),
        ("sparsifier", Twice(), "twice"),
        ("sparsifier", Moody(), "differs between two calls"),
        ("sparsifier", Secretive(), r"known\(\) must give"),
        ("sparsifier", Greedy(), r"ranked\(\) must be"),
        ("quantiser", Silent(), "must have the method quantise"),
        ("quantiser", TooHigh(), "levels outside"),
        ("quantiser", Nothing(), "as far from the values"),
        ("quantiser", Divides(), "NaN or infinity"),
        ("positions", Silent(), "must say streams"),
        ("positions", Careless(), "must raise PayloadError .* IndexError"),
        ("positions", Boasting(), r"above the \d+ of most_bits"),
        ("positions", Shifted(), "not what was written"),
        ("positions", Straying(), "does not end in the stream"),
        ("entries", Silent(), "must say streams"),
        ("entries", Unsigned(), "not what was written"),
        ("entries", Longer(), r"planned_bits\(\) says"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_every_check_catches_broken_parts(seam, part, sentence):
    registry, check = CHECKS[seam]
    before = list(registry)
    with pytest.raises(AssertionError, match=sentence):
        check(part)
    assert list(registry) == before


# --- frames with parts from outside


def an_update(particles=6, dim=300):
    return np.random.default_rng(4).normal(size=(particles, dim)).astype(np.float32)


@pytest.mark.parametrize("terms", [{}, {"entries": "adaptive"}, {"common": True}, {"positions": "golomb"}])
def test_random_k_sends_no_positions(terms):
    with registered(SPARSIFIERS, "random-k", RandomK()):
        contract = Contract(300, 6, 2, 5, 2000, sparsifier="random-k", **terms)
        contract.check()
        planned = plan(contract)
        assert planned.position_bits == 0
        assert planned.bound_bits == letter_bits(contract, planned.kept) == 6 * 5 * planned.kept
        assert planned.kept > plan(replace(contract, sparsifier="top-k", common=False)).kept
        assert not Link(replace(contract, positions="informed")).needs_first
        update = torch.from_numpy(an_update())
        here, there = (Shared(an_update(), seed=3, round=5, agent=1) for _ in range(2))
        frame, arrives, bill = send(1, update, contract, np.random.default_rng(0), here)
        assert bill.bits == 8 * len(frame) <= 2000
        assert bill.position_bits == 0
        assert bill.kept >= planned.kept
        assert torch.equal(receive(frame, contract, there), arrives)
        sparse = decode(frame, contract, there)
        np.testing.assert_array_equal(sparse.positions, RandomK().known(2, sparse.kept, 300, there))
        for other in (replace(there, seed=4), replace(there, round=6), replace(there, agent=2), None):
            with pytest.raises(PayloadError):
                decode(frame, contract, other)
        if "entries" not in terms:
            assert sparse.copies > 1 or bill.kept == planned.kept


def test_a_position_coder_from_outside():
    with registered(POSITION_CODERS, "plain", Plain()):
        contract = Contract(300, 6, 2, 5, 2000, positions="plain")
        assert plan(contract).position_bits == 600
        frame, sparse, position_bits = encode(an_update(), contract, np.random.default_rng(0))
        assert (frame[0], position_bits) == (2 << 5, 600)
        np.testing.assert_array_equal(decode(frame, contract).dense(), sparse.dense())
        for terms in ({"entries": "adaptive"}, {"common": True}):
            with pytest.raises(UserError, match=r"must be auto, range or informed with .* Got 'plain'"):
                replace(contract, **terms).check()


@pytest.mark.parametrize(("part", "name"), [(Zipped(), "zipped"), (Flat(), "flat")])
@pytest.mark.parametrize("positions", ["auto", "informed"])
def test_entry_coders_from_outside(part, name, positions):
    with registered(ENTRY_CODERS, name, part):
        contract = Contract(300, 6, 2, 5, 2000, entries=name, positions=positions)
        shared = Shared(an_update(), np.zeros((6, 300), np.float32))
        frame, sparse, _ = encode(an_update(), contract, np.random.default_rng(0), shared)
        assert 8 * len(frame) <= 2000
        assert sparse.kept > 0
        np.testing.assert_array_equal(decode(frame, contract, shared).dense(), sparse.dense())
        for length in range(len(frame)):
            with pytest.raises(PayloadError):
                decode(frame[:length], contract, shared)


class Explodes(Plain):
    def __init__(self, error):
        self.error = error

    def decode(self, content, groups, kept, dim, shared):
        if isinstance(self.error, Exception):
            raise self.error
        return self.error


@pytest.mark.parametrize(
    "error",
    [KeyError("x"), ZeroDivisionError(), RecursionError(), MemoryError(), StopIteration(), None,
     np.zeros((2, 3), np.int64), np.zeros((2, 40)), np.full((2, 40), 300), -np.ones((2, 40), np.int64)],
)  # fmt: skip
def test_whatever_a_decoder_does_is_a_payload_error(error):
    with registered(POSITION_CODERS, "explodes", Explodes(error)):
        contract = Contract(300, 6, 2, 5, 2000, positions="explodes")
        frame, _, _ = encode(an_update(), contract, np.random.default_rng(0))
        with pytest.raises(PayloadError):
            decode(frame, contract)


@pytest.mark.parametrize("error", [KeyError("x"), np.full((6, 4), np.nan), np.zeros(3)])
def test_a_quantiser_that_restores_no_values_is_a_payload_error(error):
    class Odd(Stochastic):
        def restore(self, levels, a_max, bits_per_entry):
            if isinstance(error, Exception):
                raise error
            return np.resize(error, levels.shape) if error.ndim == 2 else error

    with registered(QUANTISERS, "odd", Odd()):
        contract = Contract(300, 6, 2, 5, 2000, quantiser="odd")
        frame, _, _ = encode(an_update(), contract, np.random.default_rng(0))
        with pytest.raises(PayloadError):
            receive(frame, contract, None)


def test_levels_out_of_range_are_a_payload_error():
    class High(Fixed):
        def decode(self, content, particles, kept, groups, bits_per_entry):
            return np.full((particles, kept), 16, np.int32)

    with registered(ENTRY_CODERS, "high", High()):
        contract = Contract(300, 6, 2, 5, 2000, entries="high")
        frame, _, _ = encode(an_update(), contract, np.random.default_rng(0))
        with pytest.raises(PayloadError, match="beyond 15"):
            decode(frame, contract)


def test_a_part_that_breaks_its_word_sends_nothing_beyond_the_budget():
    class Endless(Zipped):
        def encode(self, levels, groups, bits_per_entry):
            return bytes(1000)

    with registered(POSITION_CODERS, "boasting", Boasting()), registered(ENTRY_CODERS, "endless", Endless()):
        contract = Contract(300, 6, 2, 5, 2000, positions="boasting")
        frame, sparse, _ = encode(an_update(), contract, np.random.default_rng(0))
        assert 8 * len(frame) <= 2000
        assert 0 < sparse.kept < plan(contract).kept
        with pytest.raises(UserError, match=r"fedstein\.testing"):
            encode(an_update(), Contract(300, 6, 2, 5, 2000, entries="endless"), np.random.default_rng(0))
