r"""What a position coder is, and what several of them use.

Positions are (groups, k), each row strictly increasing; the rows are coded one behind the other.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedstein.coding.rangecoder import Decoder, Encoder
from fedstein.coding.shared import Shared
from fedstein.errors import PayloadError, UserError

__all__ = ["PositionCoder", "Positions", "bound_bits", "from_gaps", "gaps_of"]

Positions = NDArray[np.int64]


class PositionCoder(Protocol):
    """Codes which k of d entries were kept. A class from outside may inherit from it, but need not.

    It is asked only for 0 < k < d: none and all need no bits.
    """

    streams: bool = False  # can also `write` to and `read` from a stream that the entries share
    certain: bool = True  # plans by `most_bits`; False: k is searched for, since most patterns cost far less
    needs_first: bool = False  # `Shared.first` must be given

    def encode(self, positions: Positions, dim: int, shared: Shared | None) -> bytes:
        """Bytes of their own.

        Args:
            positions: (groups, k), each row increasing.
            dim: d, above every position.
            shared: what the reader knows too.

        Returns:
            At the most `most_bits`, in whole bytes.
        """
        ...

    def decode(self, content: bytes, groups: int, kept: int, dim: int, shared: Shared | None) -> Positions:
        """The positions again.

        Args:
            content: from `encode`, or from anybody.
            groups: rows.
            kept: k, positions in each row.
            dim: d.
            shared: what the writer knew too.

        Returns:
            (groups, k), each row increasing and below d.

        Raises:
            PayloadError: no encoder wrote these bytes.
        """
        ...

    def write(self, encoder: Encoder, positions: Positions, dim: int, shared: Shared | None) -> None:
        """Only where it `streams`: append to a stream that others use too.

        Args:
            encoder: the stream.
            positions: as in `encode`.
            dim: as in `encode`.
            shared: as in `encode`.
        """
        raise UserError(f"The position coder {type(self).__name__} writes to no stream.")

    def read(self, decoder: Decoder, groups: int, kept: int, dim: int, shared: Shared | None) -> Positions:
        """Only where it `streams`: read from a stream that others use too.

        Args:
            decoder: the stream.
            groups: as in `decode`.
            kept: as in `decode`.
            dim: as in `decode`.
            shared: as in `decode`.

        Returns:
            As in `decode`.
        """
        raise UserError(f"The position coder {type(self).__name__} reads from no stream.")

    def most_bits(self, groups: int, kept: int, dim: int) -> int:
        """What the worst pattern costs.

        Args:
            groups: rows.
            kept: k.
            dim: d.

        Returns:
            No pattern costs more, up to a whole byte.
        """
        ...


def bound_bits(dim: int, kept: int) -> float:
    r""":math:`\log_2 \binom dk`.

    >>> round(bound_bits(10, 3), 3)  # 120 patterns
    6.907
    """
    return (math.lgamma(dim + 1) - math.lgamma(kept + 1) - math.lgamma(dim - kept + 1)) / math.log(2)


def gaps_of(positions: Positions) -> NDArray[np.int64]:
    """How many entries are skipped before each kept one, all rows one behind the other."""
    return (np.diff(positions, axis=1, prepend=-1) - 1).ravel()


def from_gaps(gaps: NDArray[np.int64], groups: int, kept: int, dim: int) -> Positions:
    """The positions again.

    Args:
        gaps: groups * kept of them, none below 0.
        groups: rows.
        kept: positions in each row.
        dim: d.

    Returns:
        (groups, kept) positions.

    Raises:
        PayloadError: a position is beyond the last parameter.
    """
    positions = np.cumsum(gaps.reshape(groups, kept) + 1, axis=1) - 1
    if positions.size and int(positions[:, -1].max()) >= dim:
        raise PayloadError("The frame has a position beyond the last parameter.")
    return positions
