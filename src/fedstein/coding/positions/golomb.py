"""Golomb-Rice codes of the gaps, the letter's choice: `gap >> b` in unary and b plain bits.

All unary parts come first, so that both directions are array operations.
"""

from __future__ import annotations

import numpy as np

from fedstein.coding.positions.base import PositionCoder, Positions, from_gaps, gaps_of
from fedstein.coding.shared import Shared
from fedstein.errors import PayloadError

__all__ = ["Golomb"]


class Golomb(PositionCoder):
    """Golomb-Rice codes, with the b that is shortest in the worst case."""

    streams = False
    certain = True
    needs_first = False

    def encode(self, positions: Positions, dim: int, shared: Shared | None = None) -> bytes:
        b = _parameter(positions.shape[1], dim)
        gaps = gaps_of(positions)
        ends = np.cumsum((gaps >> b) + 1)  # a unary number is so many ones, then a zero
        bits = np.ones(int(ends[-1]) if len(ends) else 0, np.uint8)
        bits[ends - 1] = 0
        low = ((gaps[:, None] >> np.arange(b - 1, -1, -1)) & 1).astype(np.uint8).ravel()
        return np.packbits(np.concatenate([bits, low])).tobytes()

    def decode(self, content: bytes, groups: int, kept: int, dim: int, shared: Shared | None = None) -> Positions:
        b, count = _parameter(kept, dim), groups * kept
        bits = np.unpackbits(np.frombuffer(content, np.uint8))
        ends = np.flatnonzero(bits == 0)[:count]
        used = int(ends[-1]) + 1 if len(ends) else 0
        if len(ends) < count or used + count * b > len(bits) or len(bits) - used - count * b > 7:
            raise PayloadError("The positions of the frame are cut short or too long.")
        if bits[used + count * b :].any():
            raise PayloadError("The frame has bits set behind its end.")
        high = np.diff(ends, prepend=-1) - 1
        low = bits[used : used + count * b].reshape(count, b).astype(np.int64) @ (1 << np.arange(b - 1, -1, -1))
        return from_gaps((high << b) + low, groups, kept, dim)

    def most_bits(self, groups: int, kept: int, dim: int) -> int:
        b = _parameter(kept, dim)
        return groups * (kept * (1 + b) + ((dim - kept) >> b))


def _parameter(kept: int, dim: int) -> int:
    """The b that is shortest in the worst case, hence the same at both ends."""
    return min(range(41), key=lambda b: kept * (1 + b) + ((dim - kept) >> b))
