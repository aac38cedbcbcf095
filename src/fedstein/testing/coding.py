"""Does a part of one's own keep what the coding room asks of it? One check for each seam, for tests of any package.

>>> from fedstein.coding import SPARSIFIERS
>>> check_sparsifier(SPARSIFIERS["top-k"])
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedstein.coding import (
    ENTRY_CODERS,
    POSITION_CODERS,
    QUANTISERS,
    SPARSIFIERS,
    Contract,
    EntryCoder,
    PositionCoder,
    Quantiser,
    Shared,
    Sparsifier,
    decode,
    encode,
)
from fedstein.coding.rangecoder import Decoder, Encoder, uniform
from fedstein.errors import PayloadError
from fedstein.registry import Registry
from fedstein.testing.parts import that, working

__all__ = ["check_entry_coder", "check_position_coder", "check_quantiser", "check_sparsifier"]

_numbers = itertools.count()
_PATTERNS = ((2, 1, 1), (9, 4, 3), (64, 63, 2), (300, 20, 2), (1010, 4, 1), (1010, 60, 1))  # (dim, kept, groups)
_LEVELS = ((1, 0, 1), (1, 1, 1), (4, 7, 2), (6, 50, 1), (5, 33, 5))  # (particles, kept, groups)
_SYMBOLS = np.array([3, 0, 6], np.int32)  # of somebody else in the same stream


@working("The part")
def check_sparsifier(part: Sparsifier) -> None:
    """Positions are distinct and in range, come from the arguments alone, and the reader finds those not sent.

    Raises:
        AssertionError: with a sentence that says what is wrong.
    """
    _has(part, "sparsifier", flags=("sends_positions",), methods=("ranked",))
    if not part.sends_positions:
        _has(part, "sparsifier that sends no positions", flags=(), methods=("known",))
    for (particles, groups, dim), most in itertools.product(((1, 1, 1), (4, 2, 30), (6, 1, 200)), (1, 7, 200)):
        most, shared = min(most, dim), _shared(particles, dim)
        for update in (_update(particles, dim), np.zeros((particles, dim), np.float32)):
            before = update.copy()
            order = part.ranked(update, groups, most, shared)
            again = part.ranked(update.copy(), groups, most, _shared(particles, dim))
            that((update == before).all(), "ranked() changes the update that it is given.")
            that(order.dtype.kind in "iu", f"ranked() must give whole numbers. Got {order.dtype}.")
            that(order.shape == (groups, most), f"ranked() must be {(groups, most)}. Got {order.shape}.")
            that(order.min() >= 0 and order.max() < dim, f"ranked() gives positions outside 0 ... {dim - 1}.")
            that(all(len(set(row)) == most for row in order.tolist()), "ranked() gives a position twice in a row.")
            that((order == again).all(), "ranked() differs between two calls with equal arguments.")
            for kept in () if part.sends_positions else {1, most // 2, most}:
                positions = part.known(groups, kept, dim, _shared(particles, dim))
                kept_ones = np.sort(order[:, :kept], axis=1)
                that(
                    positions.shape == kept_ones.shape and bool((positions == kept_ones).all()),
                    f"known() must give the first {kept} of ranked(), each row increasing.",
                )
    _check_frames("sparsifier", SPARSIFIERS, part, [{}, {"entries": "adaptive"}, {"common": True}])


@working("The part")
def check_quantiser(part: Quantiser) -> None:
    """Levels are in range, come from the arguments alone, and are restored to finite values that are near.

    Raises:
        AssertionError: with a sentence that says what is wrong.
    """
    _has(part, "quantiser", flags=(), methods=("quantise", "restore"))
    values = _update(4, 200)
    for bits, a_max in itertools.product((2, 5, 9, 16), (0.1, 4.0, 3.3e38)):
        top, before = (1 << (bits - 1)) - 1, values.copy()
        for given, end in ((values, a_max), (np.zeros_like(values), 0.0), (values[:, :0], a_max)):
            levels, again = (part.quantise(given, end, bits, np.random.default_rng(3)) for _ in range(2))
            that(levels.dtype == np.int32, f"quantise() must give int32. Got {levels.dtype}.")
            that(levels.shape == given.shape, f"quantise() must keep the shape {given.shape}. Got {levels.shape}.")
            that(
                abs(int(levels.max(initial=0))) <= top and abs(int(levels.min(initial=0))) <= top,
                f"quantise() gives levels outside -{top} ... {top} with {bits} bits an entry.",
            )
            that((levels == again).all(), "quantise() differs between two calls with equal generators.")
        that((values == before).all(), "quantise() changes the values that it is given.")
        every = np.arange(-top, top + 1, dtype=np.int32)
        for end in (0.0, a_max):
            restored = part.restore(every, end, bits)
            that(restored.shape == every.shape, f"restore() must keep the shape {every.shape}. Got {restored.shape}.")
            that(np.isfinite(restored).all(), f"restore() gives NaN or infinity with a_max {end:g}.")
            that((restored == part.restore(every, end, bits)).all(), "restore() differs between two calls.")
    largest = float(np.abs(values).max())
    near = part.restore(part.quantise(values, largest, 8, np.random.default_rng(3)), largest, 8)
    that(
        np.square(near - values).sum() < 0.5 * np.square(values).sum(),
        "restore() of quantise() is as far from the values as nothing at all, with 8 bits an entry.",
    )
    _check_frames("quantiser", QUANTISERS, part, [{}, {"entries": "adaptive"}, {"a_max": 0.5, "common": True}])


@working("The part")
def check_position_coder(part: PositionCoder) -> None:
    """Every pattern comes back and costs no more than `most_bits`; bytes from anybody give positions or PayloadError.

    Raises:
        AssertionError: with a sentence that says what is wrong.
    """
    _has(part, "position coder", flags=("streams", "needs_first"), methods=("encode", "decode", "most_bits"))
    if part.streams:
        _has(part, "position coder that streams", flags=(), methods=("write", "read"))
    random = np.random.default_rng(0)
    for dim, kept, groups in _PATTERNS:
        spread = np.sort([random.choice(dim, kept, replace=False) for _ in range(groups)], axis=1)
        first = np.tile(np.arange(kept), (groups, 1))
        for positions in (spread, first, first + dim - kept):
            _check_pattern(part, positions, dim)
    terms: list[dict[str, Any]] = [{}, {"entries": "adaptive"}, {"common": True}]
    _check_frames("positions", POSITION_CODERS, part, terms if part.streams else terms[:1])


def _check_pattern(part: PositionCoder, positions: NDArray[np.int64], dim: int) -> None:
    groups, kept = positions.shape
    here, there = (_shared(2 * groups, dim, part.needs_first) for _ in range(2))
    name, most = f"{kept} of {dim} positions in {groups} groups", math.ceil(part.most_bits(groups, kept, dim) / 8)

    def sound(read: NDArray[np.int64]) -> bool:
        inside = read.shape == positions.shape and read.min() >= 0 and read.max() < dim
        return bool(inside and (np.diff(read, axis=1) > 0).all())

    content = part.encode(positions, dim, here)
    that(content == part.encode(positions, dim, there), f"encode() of {name} differs between two calls.")
    that(len(content) <= most, f"encode() of {name} has {len(content)} bytes, above the {most} of most_bits().")
    _same(part.decode(content, groups, kept, dim, there), positions, f"decode() of {name}")
    _check_hostile(content, lambda bad: part.decode(bad, groups, kept, dim, there), sound)
    if part.streams:
        _check_stream(
            lambda stream: part.write(stream, positions, dim, here),
            lambda stream: part.read(stream, groups, kept, dim, there),
            positions,
            f"read() of {name}",
        )


@working("The part")
def check_entry_coder(part: EntryCoder) -> None:
    """All levels come back, in the length that was said; bytes from anybody give levels in range or PayloadError.

    Raises:
        AssertionError: with a sentence that says what is wrong.
    """
    _has(part, "entry coder", flags=("streams", "certain"), methods=("encode", "decode", "planned_bits"))
    if part.streams:
        _has(part, "entry coder that streams", flags=(), methods=("write", "read"))
    random = np.random.default_rng(0)
    for (particles, kept, groups), bits in itertools.product(_LEVELS, (2, 5, 9, 16)):
        top = (1 << (bits - 1)) - 1
        mixed = random.integers(-top, top + 1, (particles, kept)).astype(np.int32)
        for levels in (mixed, 0 * mixed, np.full_like(mixed, -top)):
            _check_levels(part, levels, groups, bits)
    _check_frames("entries", ENTRY_CODERS, part, [{}, {"positions": "informed"}, {"common": True}])


def _check_levels(part: EntryCoder, levels: NDArray[np.int32], groups: int, bits: int) -> None:
    particles, kept = levels.shape
    name, said = f"{particles} x {kept} levels of {bits} bits", part.planned_bits(particles, kept, bits)

    def sound(read: NDArray[np.int32]) -> bool:
        return bool(read.shape == levels.shape and np.abs(read).max(initial=0) < 1 << (bits - 1))

    content = part.encode(levels, groups, bits)
    that(content == part.encode(levels, groups, bits), f"encode() of {name} differs between two calls.")
    _same(part.decode(content, particles, kept, groups, bits), levels, f"decode() of {name}")
    _check_hostile(content, lambda bad: part.decode(bad, particles, kept, groups, bits), sound)
    that(
        not part.certain or len(content) == math.ceil(said / 8),
        f"encode() of {name} has {len(content)} bytes, and planned_bits() says {said} bits.",
    )
    if part.streams:
        _check_stream(
            lambda stream: part.write(stream, levels, groups, bits),
            lambda stream: part.read(stream, particles, kept, groups, bits),
            levels,
            f"read() of {name}",
        )


def _same(ours: NDArray[Any], theirs: NDArray[Any], what: str) -> None:
    that(ours.shape == theirs.shape and bool((ours == theirs).all()), f"{what} is not what was written.")


def _has(part: object, what: str, flags: tuple[str, ...], methods: tuple[str, ...]) -> None:
    for flag in flags:
        that(isinstance(getattr(part, flag, None), bool), f"A {what} must say {flag}: True or False.")
    for method in methods:
        that(callable(getattr(part, method, None)), f"A {what} must have the method {method}().")


def _update(particles: int, dim: int) -> NDArray[np.float32]:
    random = np.random.default_rng(1)
    return (random.normal(size=(particles, dim)) * np.exp(random.normal(size=dim))).astype(np.float32)


def _shared(particles: int, dim: int, with_first: bool = True) -> Shared:
    """Equal ones for equal arguments, but each an object of its own, as the two ends have them."""
    now = _update(particles, dim)
    return Shared(now, np.round(now) if with_first else None, seed=5, round=3, agent=2)


def _check_hostile(
    content: bytes, read: Callable[[bytes], NDArray[Any]], sound: Callable[[NDArray[Any]], bool]
) -> None:
    """Bytes that nobody encoded, some of them nearly those that somebody did."""
    random, size = np.random.default_rng(len(content)), len(content)
    near = [b"", content[:-1], content + b"\x01", bytes(size), b"\xff" * size]
    for bad in [*near, *(random.bytes(int(random.integers(0, size + 5))) for _ in range(5))]:
        try:
            that(sound(read(bad)), "decode() of bytes that nobody encoded gives what the contract does not allow.")
        except PayloadError:
            continue
        except AssertionError:
            raise
        except Exception as error:
            text = f"decode() must raise PayloadError for bytes that nobody encoded. It raises {type(error).__name__}"
            raise AssertionError(f"{text}: {error}.") from error


def _check_stream(
    write: Callable[[Encoder], None], read: Callable[[Decoder], NDArray[Any]], content: NDArray[Any], what: str
) -> None:
    """With somebody else before and behind in the stream."""
    encoder = Encoder()
    encoder.write(_SYMBOLS, uniform(7))
    write(encoder)
    encoder.write(_SYMBOLS, uniform(7))
    decoder = Decoder(encoder.finish())
    decoder.read(len(_SYMBOLS), uniform(7))
    _same(read(decoder), content, what)
    rest = decoder.read(len(_SYMBOLS), uniform(7))
    that((rest == _SYMBOLS).all(), f"{what} does not end in the stream where write() has ended.")


@contextmanager
def registered(registry: Registry[Any], part: object) -> Iterator[str]:
    """A name for a part, while it is checked."""
    name = f"checked-{next(_numbers)}"
    registry._own[name] = part
    try:
        yield name
    finally:
        registry._own.pop(name)
        registry._loaded.pop(name, None)


def _check_frames(field: str, registry: Registry[Any], part: object, terms: list[dict[str, Any]]) -> None:
    """Whole frames with this part: within the budget, the same at both ends, and every damage is noticed."""
    with registered(registry, part) as name:
        for more, groups, budget in itertools.product(terms, (1, 2), (400, 1500, 100_000)):
            contract = replace(Contract(120, 4, groups, 5, budget), **{**more, field: name})
            for update in (_update(4, 120), np.repeat(_update(1, 120), 4, axis=0), np.zeros((4, 120), np.float32)):
                frame, sparse, _ = encode(update, contract, np.random.default_rng(2), _shared(4, 120))
                that(8 * len(frame) <= budget, f"A frame has {8 * len(frame)} bits, above its budget of {budget}.")
                try:
                    there = decode(frame, contract, _shared(4, 120))
                except PayloadError as error:
                    raise AssertionError(f"The reader refuses a true frame: {error}") from error
                _same(there.dense(), sparse.dense(), "The update in a frame")
                bad = bytearray(frame)
                bad[len(bad) // 2] ^= 4
                for content in (bytes(bad), frame[:-1], frame + b"\x00"):
                    try:
                        decode(content, contract, _shared(4, 120))
                    except PayloadError:
                        continue
                    raise AssertionError("The reader takes a damaged frame for a true one.")
