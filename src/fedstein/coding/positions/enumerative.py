"""The combinatorial number system: one number below C(d, k) for each row, all rows in one number.

Exactly the bound, rounded up, but the time grows with the square of k: for tiny cases only.
"""

from __future__ import annotations

import math

import numpy as np

from fedstein.coding.positions.base import PositionCoder, Positions
from fedstein.coding.shared import Shared
from fedstein.errors import PayloadError

__all__ = ["Enumerative"]


class Enumerative(PositionCoder):
    """The number of the pattern among all patterns."""

    streams = False
    certain = True
    needs_first = False

    def encode(self, positions: Positions, dim: int, shared: Shared | None = None) -> bytes:
        groups, kept = positions.shape
        patterns, total = math.comb(dim, kept), 0
        for row in positions.tolist():
            total = total * patterns + sum(math.comb(place, i + 1) for i, place in enumerate(row))
        return total.to_bytes(_length(groups, patterns), "big")

    def decode(self, content: bytes, groups: int, kept: int, dim: int, shared: Shared | None = None) -> Positions:
        patterns = math.comb(dim, kept)
        total = int.from_bytes(content, "big")
        if len(content) != _length(groups, patterns) or total >= patterns**groups:
            raise PayloadError("The frame's pattern does not exist.")
        rows = []
        for _ in range(groups):
            total, number = divmod(total, patterns)
            row = []
            high = dim
            for i in range(kept, 0, -1):
                low = i - 1  # the largest place with comb(place, i) <= number, by bisection
                while high - low > 1:
                    middle = (low + high) // 2
                    low, high = (middle, high) if math.comb(middle, i) <= number else (low, middle)
                number -= math.comb(low, i)
                row.append(low)
                high = low
            rows.append(row[::-1])
        return np.array(rows[::-1], np.int64).reshape(groups, kept)

    def most_bits(self, groups: int, kept: int, dim: int) -> int:
        return 8 * _length(groups, math.comb(dim, kept))


def _length(groups: int, patterns: int) -> int:
    """In bytes."""
    bits = int(patterns**groups - 1).bit_length()
    return (bits + 7) // 8
