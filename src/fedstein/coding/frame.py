"""The frame: one upload as one byte string, version 2.

    byte 0       version (3 bits), kept is sent (1), values are common to all particles of a group (1),
                 position coder (3): its place among those that the contract allows; 0 if no positions are sent
    bytes 1-3    check: the upper 24 bits of a CRC-32 of all other bytes and of what they *mean* (contract with the
                 names of its parts, scale, positions, levels), so that a wrong contract or other shared knowledge
                 is noticed as well
    2 bytes      scale a_max, unless it is fixed by the contract
    1-5 bytes    kept, if it is not the planned number
    the rest     positions and entries, see `body`

Which coder the entries have is in the contract. No positions are sent where none or all entries are kept, and where
the sparsifier sends none. An update has one frame: whatever could be said in two ways is refused in the other.

Golden bytes are in tests/coding/test_frame.py; a change of them is a new version.
"""

from __future__ import annotations

import math
import zlib

import numpy as np

from fedstein.coding.body import has_positions, read_body, write_body
from fedstein.coding.budget import plan
from fedstein.coding.contract import CHECK_BYTES, ENUMERATIVE_KEPT, HEADER_BYTES, Contract
from fedstein.coding.numbers import read_number, write_number
from fedstein.coding.scale import SCALE_BYTES, pack_scale, unpack_scale
from fedstein.coding.shared import Shared
from fedstein.coding.sparse import Sparse
from fedstein.errors import PayloadError

__all__ = ["decode", "pack"]

VERSION = 2


def pack(sparse: Sparse, shared: Shared | None) -> tuple[bytes, int]:
    """The frame of a sparse update, however long it gets.

    Args:
        sparse: what to say.
        shared: what the reader knows too.

    Returns:
        The bytes, and how many of their bits are positions.
    """
    rows, kept = sparse.rows, sparse.kept
    name, body, position_bits = write_body(sparse.positions, sparse.levels, rows, shared)
    planned = plan(rows).kept
    number = b"" if kept == planned else write_number(kept)
    scale = pack_scale(sparse.scale)[0] if rows.a_max is None else b""
    tail = scale + number + body
    head = VERSION << 5 | (kept != planned) << 4 | (sparse.copies > 1) << 3 | rows.allowed.index(name)
    return bytes([head]) + _check(sparse, bytes([head]) + tail) + tail, position_bits


def decode(frame: bytes, contract: Contract, shared: Shared | None = None) -> Sparse:
    """What a frame means.

    Args:
        frame: bytes from anybody.
        contract: what both ends agreed on.
        shared: what the sender knew too, for parts that use it.

    Returns:
        An update that keeps the contract.

    Raises:
        PayloadError: the bytes are too long for the budget, or no frame of this contract.
    """
    if 8 * len(frame) > contract.budget_bits:
        raise PayloadError(f"The frame has {8 * len(frame)} bits, the budget is {contract.budget_bits}.")
    if len(frame) < contract.overhead_bytes:
        raise PayloadError(f"The frame has {len(frame)} bytes, shorter than any frame.")
    plan(contract)  # a contract that cannot be is no fault of the frame
    try:
        return _decode(frame, contract, shared)
    except PayloadError:
        raise
    except Exception as error:  # whatever a part, perhaps from outside, raises at bytes that it cannot read
        raise PayloadError(f"The frame cannot be read: {type(error).__name__}: {error}.") from error


def _decode(frame: bytes, contract: Contract, shared: Shared | None) -> Sparse:
    head, copies, rows = frame[0], 1, contract
    if head >> 5 != VERSION:
        raise PayloadError(f"The frame is of version {head >> 5}, not {VERSION} (first byte {head:#04x}).")
    if head >> 3 & 1:
        if not contract.can_be_common:
            raise PayloadError("The frame has common values, which the contract does not allow.")
        rows, copies = contract.per_group(), contract.particles // contract.groups
    scale, rest = rows.a_max, frame[HEADER_BYTES + CHECK_BYTES :]
    if scale is None:
        scale, rest = unpack_scale(rest[:SCALE_BYTES]), rest[SCALE_BYTES:]
        if not math.isfinite(scale) or scale < 0:
            raise PayloadError("The frame's scale is not a finite positive number.")
    kept = planned = plan(rows).kept
    if head >> 4 & 1:
        kept, rest = read_number(rest)
        if kept == planned or kept > rows.dim:
            raise PayloadError(f"The frame keeps {kept} of {rows.dim} entries, and {planned} were planned.")
    name = _position_coder(head & 7, kept, rows)
    positions, levels = read_body(rest, name, kept, rows, shared)
    sparse = Sparse(positions, levels, scale, contract, copies)
    others = frame[:HEADER_BYTES] + frame[HEADER_BYTES + CHECK_BYTES :]
    if _check(sparse, others) != frame[HEADER_BYTES : HEADER_BYTES + CHECK_BYTES]:
        raise PayloadError("The frame is damaged, or of another contract: its check does not fit its content.")
    if sparse.values.shape != levels.shape or not np.isfinite(sparse.values).all():
        raise PayloadError("The frame has values that are not finite.")
    return sparse


def _position_coder(index: int, kept: int, contract: Contract) -> str:
    """The name that an index in a frame stands for."""
    allowed = contract.allowed if has_positions(contract, kept) else contract.allowed[:1]
    if index >= len(allowed):
        raise PayloadError(f"The frame's positions are coded in way {index}, which the contract does not allow.")
    if contract.positions == "auto" and allowed[index] == "enumerative" and kept > ENUMERATIVE_KEPT:
        raise PayloadError(f"The frame's pattern of {kept} positions is too large for one number.")
    return allowed[index]


def _check(sparse: Sparse, content: bytes) -> bytes:
    """Of all other bytes of the frame, and of what they mean under the contract."""
    contract = sparse.contract
    sizes = (contract.dim, contract.particles, contract.groups, contract.bits_per_entry, sparse.scale)
    names = (contract.sparsifier, contract.quantiser, contract.positions, contract.entries)
    crc = zlib.crc32(repr(sizes + names).encode(), zlib.crc32(content))
    crc = zlib.crc32(np.ascontiguousarray(sparse.positions, "<i8").data, crc)
    crc = zlib.crc32(np.ascontiguousarray(sparse.levels, "<i4").data, crc)
    return (crc >> 8).to_bytes(CHECK_BYTES, "big")
