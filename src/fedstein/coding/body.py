"""The body of a frame: positions and entries, by the coders of the contract.

Coders that stream have one range-coded stream of positions, then entries. Others have the entries, filled up to a
byte, then positions; entries of no certain length have their number of bytes before them.
"""

from __future__ import annotations

import math

import numpy as np

from fedstein.coding.contract import Contract
from fedstein.coding.entries import Levels
from fedstein.coding.numbers import read_number, write_number
from fedstein.coding.positions import POSITION_CODERS, Positions
from fedstein.coding.quantisers import largest_level
from fedstein.coding.rangecoder import Decoder, Encoder
from fedstein.coding.shared import Shared
from fedstein.errors import PayloadError

__all__ = ["has_positions", "read_body", "write_body"]


def has_positions(contract: Contract, kept: int) -> bool:
    """Whether a frame says where its entries are: not if they are none, all, or known to the reader anyway."""
    return 0 < kept < contract.dim and contract.chooser.sends_positions


def write_body(
    positions: Positions, levels: Levels, contract: Contract, shared: Shared | None
) -> tuple[str, bytes, int]:
    """Code positions and entries.

    Args:
        positions: (groups, kept).
        levels: (particles, kept).
        contract: of these rows.
        shared: what the reader knows too.

    Returns:
        The name of the position coder, the bytes, and how many of their bits are positions.
    """
    entries, bits = contract.entry_coder, contract.bits_per_entry
    name = contract.allowed[0]
    sent = has_positions(contract, levels.shape[1])
    if entries.streams:
        encoder = Encoder()
        if sent:
            POSITION_CODERS[name].write(encoder, positions, contract.dim, shared)
        position_bits = encoder.bits()
        entries.write(encoder, levels, contract.groups, bits)
        return name, encoder.finish(), position_bits
    coded = b""
    if sent:
        name, coded = _shortest(positions, contract, shared)
    content = entries.encode(levels, contract.groups, bits)
    length = b"" if entries.certain else write_number(len(content))
    return name, length + content + coded, 8 * len(coded)


def read_body(
    content: bytes, name: str, kept: int, contract: Contract, shared: Shared | None
) -> tuple[Positions, Levels]:
    """Positions and levels again, whoever wrote the bytes.

    Args:
        content: the body.
        name: of the position coder.
        kept: entries in each row.
        contract: of the rows.
        shared: what the writer knew too.

    Returns:
        (groups, kept) positions and (particles, kept) levels that keep the contract.

    Raises:
        PayloadError: the body does not. A coder from outside may raise anything else.
    """
    particles, groups, bits, entries = (
        contract.particles,
        contract.groups,
        contract.bits_per_entry,
        contract.entry_coder,
    )
    coder, sent = POSITION_CODERS[name], has_positions(contract, kept)
    if entries.streams:
        decoder = Decoder(content)
        positions = coder.read(decoder, groups, kept, contract.dim, shared) if sent else _unsent(kept, contract, shared)
        levels = entries.read(decoder, particles, kept, groups, bits)
    else:
        if entries.certain:
            length = math.ceil(entries.planned_bits(particles, kept, bits) / 8)
        else:
            length, content = read_number(content)
        if len(content) < length:
            raise PayloadError("The entries of the frame are cut short.")
        levels, coded = entries.decode(content[:length], particles, kept, groups, bits), content[length:]
        if sent:
            positions = coder.decode(coded, groups, kept, contract.dim, shared)
        elif coded:
            raise PayloadError("The frame has positions, and its entries need none.")
        else:
            positions = _unsent(kept, contract, shared)
    return _sound_positions(positions, kept, contract), _sound_levels(levels, kept, contract)


def _shortest(positions: Positions, contract: Contract, shared: Shared | None) -> tuple[str, bytes]:
    """The name and bytes of the shortest position code that the contract allows."""
    names = contract.coders(positions.shape[1])
    coded = {name: POSITION_CODERS[name].encode(positions, contract.dim, shared) for name in names}
    return min(coded.items(), key=lambda item: len(item[1]))


def _unsent(kept: int, contract: Contract, shared: Shared | None) -> Positions:
    """Positions that take no bits."""
    if kept in (0, contract.dim):
        return np.tile(np.arange(kept, dtype=np.int64), (contract.groups, 1))
    return contract.chooser.known(contract.groups, kept, contract.dim, shared)


def _sound_positions(positions: Positions, kept: int, contract: Contract) -> Positions:
    """The same, if they are what every decoder must give: parts from outside are not trusted either."""
    if positions.shape != (contract.groups, kept) or positions.dtype.kind not in "iu":
        raise PayloadError(f"The frame's positions are not {kept} whole numbers for each of {contract.groups} groups.")
    positions = positions.astype(np.int64, copy=False)
    if kept and (int(positions[:, 0].min()) < 0 or int(positions[:, -1].max()) >= contract.dim):
        raise PayloadError("The frame has a position beyond the last parameter.")
    if (positions[:, 1:] <= positions[:, :-1]).any():
        raise PayloadError("The frame's positions do not increase.")
    return positions


def _sound_levels(levels: Levels, kept: int, contract: Contract) -> Levels:
    """The same for levels."""
    if levels.shape != (contract.particles, kept) or levels.dtype.kind != "i":
        raise PayloadError(f"The frame's levels are not {kept} whole numbers for each of {contract.particles} rows.")
    top = largest_level(contract.bits_per_entry)
    if int(levels.max(initial=0)) > top or int(levels.min(initial=0)) < -top:
        raise PayloadError(f"The frame has a level beyond {top}.")
    return levels.astype(np.int32, copy=False)
