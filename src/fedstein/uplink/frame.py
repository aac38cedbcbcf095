"""The frame: one upload as one byte string.

    byte 0       version (3 bits), kept is sent (1), entries are adaptive (1), position coder (3)
                 (5, 6, 7: range, informed, all, and the values are common to all particles of a group)
    bytes 1-3    check: the upper 24 bits of a CRC-32 of all other bytes and of what they *mean* (contract, scale,
                 positions, levels), so that a wrong contract or other shared knowledge is noticed as well
    2 bytes      scale a_max, unless it is fixed by the contract
    1-4 bytes    kept, if it is not the planned number
    the rest     fixed entries: N_b bits each, filled up to a byte; then positions
                 adaptive entries: one range-coded stream of positions, then entries

Golden bytes are in tests/uplink/test_frame.py; a change of them is a new version.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedstein.errors import PayloadError
from fedstein.uplink.budget import CHECK_BYTES, HEADER_BYTES, SCALE_BYTES, Contract, plan
from fedstein.uplink.entries import pack_fixed, read_adaptive, unpack_fixed, write_adaptive
from fedstein.uplink.informed import Known, read_informed, write_informed
from fedstein.uplink.positions import CODERS, Positions, Range
from fedstein.uplink.quantize import dequantize, pack_scale, quantize, unpack_scale
from fedstein.uplink.rangecoder import Decoder, Encoder
from fedstein.uplink.sparsify import importance, ranked

__all__ = ["Sparse", "decode", "encode"]

VERSION = 1
_NAMES = ("golomb", "range", "enumerative", "informed", "all")
_COMMON_NAMES = {5: "range", 6: "informed", 7: "all"}
_RANGE = Range()


@dataclass(frozen=True)
class Sparse:
    """An update as it is sent: (groups, kept) positions, (particles, kept) levels, and the scale.

    With common values the contract is that of `Contract.per_group`.
    """

    positions: Positions
    levels: NDArray[np.int32]
    scale: float
    contract: Contract
    copies: int = 1  # particles that each row of levels is for

    @property
    def kept(self) -> int:
        """Entries kept for each particle."""
        return int(self.levels.shape[1])

    def dense(self) -> NDArray[np.float32]:
        """(particles, d), 0 where nothing was sent."""
        found = np.zeros((self.contract.particles, self.contract.dim), np.float32)
        values = dequantize(self.levels, self.scale, self.contract.bits_per_entry)
        places = np.repeat(self.positions, self.contract.particles // self.contract.groups, axis=0)
        np.put_along_axis(found, places, values, axis=1)
        return np.repeat(found, self.copies, axis=0)


def encode(
    update: NDArray[np.float32],
    contract: Contract,
    generator: np.random.Generator,
    known: list[Known] | None = None,
) -> tuple[bytes, Sparse, int]:
    """The frame of an update, never longer than the budget.

    With fixed entries the planned number is kept. With adaptive entries, or informed positions, the length is
    known only after coding, and the largest number that fits is looked for.

    Args:
        update: (particles, d), finite.
        contract: what both ends know.
        generator: of the stochastic rounding.
        known: from `what_both_know`, for informed positions.

    Returns:
        The bytes, what they mean, and how many bits the positions took.
    """
    own = _encode(update, contract, generator, known)
    if not contract.can_be_common:
        return own
    copies = contract.particles // contract.groups
    mean = update.reshape(contract.groups, copies, -1).mean(axis=1)
    common = _encode(mean, contract.per_group(), generator, known, copies)
    return min(own, common, key=lambda found: float(np.square(update.astype(np.float64) - found[1].dense()).sum()))


def _encode(
    update: NDArray[np.float32],
    contract: Contract,
    generator: np.random.Generator,
    known: list[Known] | None,
    copies: int = 1,
) -> _Attempt:
    planned = plan(contract).kept
    searching = contract.entries == "adaptive" or contract.positions == "informed"
    order = ranked(importance(update, contract.groups), min(contract.dim, planned * 4) if searching else planned)

    def attempt(kept: int) -> _Attempt:
        sparse = _sparsify(update, np.sort(order[:, :kept], axis=1), contract, generator, copies)
        frame, position_bits = _pack(sparse, planned, known)
        return frame, sparse, position_bits

    found = _search(attempt, planned, order.shape[1], contract) if searching else attempt(planned)
    while 8 * len(found[0]) > contract.budget_bits:  # cannot happen by plan(); never send it if it does
        found = attempt(found[1].kept * 9 // 10)
    assert 8 * len(found[0]) <= contract.budget_bits
    return found


_Attempt = tuple[bytes, Sparse, int]


def _search(attempt: Callable[[int], _Attempt], planned: int, most: int, contract: Contract) -> _Attempt:
    """The largest number of entries that fits, or nearly: three attempts as a rule.

    The length grows like a power of the number kept, a little slower than in proportion.
    """
    budget, overhead = contract.budget_bits // 8, contract.overhead_bytes
    too_many, power = most + 1, 0.85
    best: _Attempt | None = None
    kept, points = min(2 * planned, most), list[tuple[float, float]]()
    for _ in range(6):
        found = attempt(kept)
        length = len(found[0])
        if length <= budget:
            best = found if best is None or kept > best[1].kept else best
            if length >= 0.99 * budget:
                break
        else:
            too_many = min(too_many, kept)
        points.append((math.log(kept), math.log(max(length - overhead, 1))))
        if len(points) > 1 and points[-1][0] != points[-2][0]:
            slope = (points[-1][1] - points[-2][1]) / (points[-1][0] - points[-2][0])
            power = min(max(slope, 0.5), 1.2)
        wanted = math.log(max(0.996 * budget - overhead, 1)) - points[-1][1]
        guess = math.floor(kept * math.exp(wanted / power))
        least = best[1].kept + 1 if best is not None else 1
        if least >= too_many:
            break
        kept = min(max(guess, least), too_many - 1)
    return best if best is not None else attempt(min(planned, too_many - 1))


def decode(frame: bytes, contract: Contract, known: list[Known] | None = None) -> Sparse:
    """What a frame means.

    Raises:
        PayloadError: the bytes are too long for the budget, or no frame of this contract.
    """
    if 8 * len(frame) > contract.budget_bits:
        raise PayloadError(f"The frame has {8 * len(frame)} bits, the budget is {contract.budget_bits}.")
    if len(frame) < contract.overhead_bytes:
        raise PayloadError(f"The frame has {len(frame)} bytes, shorter than any frame.")
    head, copies = frame[0], 1
    name = _NAMES[head & 7] if head & 7 < len(_NAMES) else _COMMON_NAMES[head & 7]
    if head & 7 >= len(_NAMES):
        if not contract.can_be_common:
            raise PayloadError("The frame has common values, which the contract does not allow.")
        contract, copies = contract.per_group(), contract.particles // contract.groups
    adaptive = bool(head >> 3 & 1)
    if head >> 5 != VERSION or adaptive != (contract.entries == "adaptive"):
        raise PayloadError(f"The frame is of another version or contract (first byte {head:#04x}).")
    if name not in _allowed(contract):
        raise PayloadError(f"The frame's positions are coded as '{name}', which the contract does not allow.")
    rest = frame[HEADER_BYTES + CHECK_BYTES :]
    scale = contract.a_max
    if scale is None:
        scale, rest = unpack_scale(rest[:SCALE_BYTES]), rest[SCALE_BYTES:]
        if not math.isfinite(scale) or scale < 0:
            raise PayloadError("The frame's scale is not a finite positive number.")
    kept = plan(contract).kept
    if head >> 4 & 1:
        kept, rest = _read_number(rest)
    if kept > contract.dim or (name == "all") != (kept == contract.dim):
        raise PayloadError(f"The frame keeps {kept} of {contract.dim} entries, coded as '{name}'.")
    try:
        positions, levels = _read_body(rest, contract, name, kept, known)
    except (ValueError, OverflowError, MemoryError) as error:
        if isinstance(error, PayloadError):
            raise
        raise PayloadError(f"The frame cannot be read: {error}.") from error
    sparse = Sparse(positions, levels, scale, contract, copies)
    others = frame[:HEADER_BYTES] + frame[HEADER_BYTES + CHECK_BYTES :]
    if _check(sparse, others) != frame[HEADER_BYTES : HEADER_BYTES + CHECK_BYTES]:
        raise PayloadError("The frame is damaged: its check does not fit its content.")
    return sparse


def _sparsify(
    update: NDArray[np.float32], positions: Positions, contract: Contract, generator: np.random.Generator, copies: int
) -> Sparse:
    places = np.repeat(positions, contract.particles // contract.groups, axis=0)
    values = np.take_along_axis(update, places, axis=1)
    scale = contract.a_max
    if scale is None:
        scale = pack_scale(float(np.abs(values).max(initial=0.0)))[1]
    return Sparse(positions, quantize(values, scale, contract.bits_per_entry, generator), scale, contract, copies)


def _allowed(contract: Contract) -> set[str]:
    if contract.positions == "auto":
        return {"range", "all"} if contract.entries == "adaptive" else {"golomb", "range", "enumerative", "all"}
    return {contract.positions, "all"}


def _pack(sparse: Sparse, planned: int, known: list[Known] | None) -> tuple[bytes, int]:
    """The frame, and how many of its bits are positions."""
    contract, kept = sparse.contract, sparse.kept
    if contract.entries == "adaptive":
        name = "all" if kept == contract.dim else "informed" if contract.positions == "informed" else "range"
        encoder = Encoder()
        _write_positions(encoder, name, sparse, known)
        position_bits = encoder.bits()
        write_adaptive(encoder, sparse.levels, contract.groups, contract.bits_per_entry)
        body = encoder.finish()
    else:
        name, coded = _shortest(sparse, known)
        body = pack_fixed(sparse.levels, contract.bits_per_entry) + coded
        position_bits = 8 * len(coded)
    number = b"" if kept == planned else _write_number(kept)
    scale = pack_scale(sparse.scale)[0] if contract.a_max is None else b""
    tail = scale + number + body
    code = _NAMES.index(name)
    if sparse.copies > 1:
        code = next(code for code, common in _COMMON_NAMES.items() if common == name)
    head = VERSION << 5 | (kept != planned) << 4 | (contract.entries == "adaptive") << 3 | code
    return bytes([head]) + _check(sparse, bytes([head]) + tail) + tail, position_bits


def _shortest(sparse: Sparse, known: list[Known] | None) -> tuple[str, bytes]:
    """The name and bytes of the shortest position code that the contract allows."""
    contract = sparse.contract
    if sparse.kept == contract.dim:
        return "all", b""
    if sparse.kept == 0:
        return ("range" if contract.positions == "auto" else contract.positions), b""
    if contract.positions == "informed":
        encoder = Encoder()
        _write_positions(encoder, "informed", sparse, known)
        return "informed", encoder.finish()
    coded = {name: CODERS[name].encode(sparse.positions, contract.dim) for name in contract.coders(sparse.kept)}
    return min(coded.items(), key=lambda item: len(item[1]))


def _write_positions(encoder: Encoder, name: str, sparse: Sparse, known: list[Known] | None) -> None:
    if name == "informed":
        assert known is not None, "informed positions need what both ends know"
        write_informed(encoder, sparse.positions, known)
    elif name == "range" and sparse.kept:
        _RANGE.write(encoder, sparse.positions, sparse.contract.dim)


def _read_body(
    rest: bytes, contract: Contract, name: str, kept: int, known: list[Known] | None
) -> tuple[Positions, NDArray[np.int32]]:
    particles, groups, bits = contract.particles, contract.groups, contract.bits_per_entry
    if contract.entries == "adaptive":
        decoder = Decoder(rest)
        positions = _read_positions(decoder, name, contract, kept, known)
        return positions, read_adaptive(decoder, particles, kept, groups, bits)
    length = (particles * kept * bits + 7) // 8
    if len(rest) < length:
        raise PayloadError("The entries of the frame are cut short.")
    levels = unpack_fixed(rest[:length], particles, kept, bits)
    coded = rest[length:]
    if name in ("all", "informed") or kept == 0:
        return _read_positions(Decoder(coded), name, contract, kept, known), levels
    return CODERS[name].decode(coded, groups, kept, contract.dim), levels


def _read_positions(decoder: Decoder, name: str, contract: Contract, kept: int, known: list[Known] | None) -> Positions:
    if name == "all":
        return np.tile(np.arange(contract.dim), (contract.groups, 1))
    if kept == 0:
        return np.zeros((contract.groups, 0), np.int64)
    if name == "informed":
        if known is None:
            raise PayloadError("The frame's positions need what both ends know, and it was not given.")
        return read_informed(decoder, kept, known)
    return _RANGE.read(decoder, contract.groups, kept, contract.dim)


def _check(sparse: Sparse, content: bytes) -> bytes:
    """Of all other bytes of the frame, and of what they mean under the contract."""
    contract = sparse.contract
    terms = (contract.dim, contract.particles, contract.groups, contract.bits_per_entry, sparse.scale)
    crc = zlib.crc32(repr(terms).encode(), zlib.crc32(content))
    crc = zlib.crc32(sparse.positions.astype("<i8").tobytes(), crc)
    crc = zlib.crc32(sparse.levels.astype("<i4").tobytes(), crc)
    return (crc >> 8).to_bytes(CHECK_BYTES, "big")


def _write_number(number: int) -> bytes:
    """Seven bits a byte, the last byte without its upper bit."""
    found = [number & 0x7F]
    while number := number >> 7:
        found.append(number & 0x7F | 0x80)
    return bytes(found[::-1])


def _read_number(content: bytes) -> tuple[int, bytes]:
    number = 0
    for index, byte in enumerate(content[:5]):
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            return number, content[index + 1 :]
    raise PayloadError("The frame's number of kept entries is cut short or too long.")
