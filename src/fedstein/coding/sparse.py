"""An update as it is sent: where its kept entries are, and which levels they have."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedstein.coding.contract import Contract
from fedstein.coding.entries import Levels
from fedstein.coding.positions import Positions
from fedstein.coding.scale import pack_scale

__all__ = ["Sparse", "sparsify"]


@dataclass(frozen=True)
class Sparse:
    """(groups, kept) positions, levels for each row, and the scale.

    Rows are particles; with common values they are groups, and `copies` particles have the values of each.
    """

    positions: Positions
    levels: Levels
    scale: float
    contract: Contract
    copies: int = 1  # particles that each row of levels is for

    @property
    def kept(self) -> int:
        """Entries kept for each particle."""
        return int(self.levels.shape[1])

    @property
    def rows(self) -> Contract:
        """The terms of the rows: those of the contract, or of its groups."""
        return self.contract if self.copies == 1 else self.contract.per_group()

    @cached_property
    def values(self) -> NDArray[np.float32]:
        """What the levels stand for."""
        contract = self.contract
        return np.asarray(contract.rounder.restore(self.levels, self.scale, contract.bits_per_entry), np.float32)

    def dense(self) -> NDArray[np.float32]:
        """(particles, d), 0 where nothing was sent."""
        groups = len(self.positions)
        update = np.zeros((len(self.levels), self.contract.dim), np.float32)
        places = np.repeat(self.positions, len(self.levels) // groups, axis=0)
        np.put_along_axis(update, places, self.values, axis=1)
        return update if self.copies == 1 else np.repeat(update, self.copies, axis=0)


def sparsify(
    update: NDArray[np.float32],
    positions: Positions,
    contract: Contract,
    generator: np.random.Generator,
    copies: int = 1,
) -> Sparse:
    """Quantise the entries at some positions.

    Args:
        update: (rows, d).
        positions: (groups, kept), each row increasing.
        contract: what both ends know.
        generator: of the rounding.
        copies: particles that each row is for.

    Returns:
        What a frame has to say.
    """
    places = np.repeat(positions, len(update) // len(positions), axis=0)
    values = np.take_along_axis(update, places, axis=1)
    scale = contract.a_max
    if scale is None:
        scale = pack_scale(float(np.abs(values).max(initial=0.0)))[1]
    levels = contract.rounder.quantise(values, scale, contract.bits_per_entry, generator)
    return Sparse(positions, levels, scale, contract, copies)
