"""What an entry coder is.

Levels are (particles, kept) in -largest ... largest; particles of a group are neighbours.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedstein.coding.rangecoder import Decoder, Encoder
from fedstein.errors import UserError

__all__ = ["EntryCoder", "Levels"]

Levels = NDArray[np.int32]


class EntryCoder(Protocol):
    """Codes the signed levels of the kept entries. A class from outside may inherit from it, but need not."""

    streams: bool = False  # positions and entries are in one range-coded stream, by `write` and `read`
    certain: bool = True  # the length is known before coding; False: the number kept is searched for

    def encode(self, levels: Levels, groups: int, bits_per_entry: int) -> bytes:
        """Bytes of their own.

        Args:
            levels: (particles, kept); kept may be 0.
            groups: of particles.
            bits_per_entry: N_b.

        Returns:
            Exactly `planned_bits` in whole bytes, if the length is certain.
        """
        ...

    def decode(self, content: bytes, particles: int, kept: int, groups: int, bits_per_entry: int) -> Levels:
        """The levels again.

        Args:
            content: from `encode`, or from anybody.
            particles: rows.
            kept: levels in each row.
            groups: of particles.
            bits_per_entry: N_b.

        Returns:
            (particles, kept) levels, all in range.

        Raises:
            PayloadError: no encoder wrote these bytes.
        """
        ...

    def write(self, encoder: Encoder, levels: Levels, groups: int, bits_per_entry: int) -> None:
        """Only where it `streams`: append to the stream that has the positions.

        Args:
            encoder: the stream.
            levels: as in `encode`.
            groups: as in `encode`.
            bits_per_entry: as in `encode`.
        """
        raise UserError(f"The entry coder {type(self).__name__} writes to no stream.")

    def read(self, decoder: Decoder, particles: int, kept: int, groups: int, bits_per_entry: int) -> Levels:
        """Only where it `streams`: read from the stream that has the positions.

        Args:
            decoder: the stream.
            particles: as in `decode`.
            kept: as in `decode`.
            groups: as in `decode`.
            bits_per_entry: as in `decode`.

        Returns:
            As in `decode`.
        """
        raise UserError(f"The entry coder {type(self).__name__} reads from no stream.")

    def planned_bits(self, particles: int, kept: int, bits_per_entry: int) -> int:
        """What a plan counts for so many levels.

        Args:
            particles: rows.
            kept: levels in each row.
            bits_per_entry: N_b.

        Returns:
            The exact length if it is certain; otherwise where a search begins.
        """
        ...
