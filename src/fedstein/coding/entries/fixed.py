"""N_b bits for each entry, as in the letter: one sign bit and N_b - 1 bits of magnitude."""

from __future__ import annotations

import numpy as np

from fedstein.coding.entries.base import EntryCoder, Levels
from fedstein.errors import PayloadError

__all__ = ["Fixed"]


class Fixed(EntryCoder):
    """N_b bits each."""

    streams = False
    certain = True

    def encode(self, levels: Levels, groups: int, bits_per_entry: int) -> bytes:
        flat = levels.ravel()
        coded = np.abs(flat).astype(np.uint16) | ((flat < 0).astype(np.uint16) << (bits_per_entry - 1))
        shifts = np.arange(bits_per_entry - 1, -1, -1, dtype=np.uint16)
        return np.packbits(((coded[:, None] >> shifts) & 1).astype(np.uint8)).tobytes()

    def decode(self, content: bytes, particles: int, kept: int, groups: int, bits_per_entry: int) -> Levels:
        count = self.planned_bits(particles, kept, bits_per_entry)
        bits = np.unpackbits(np.frombuffer(content, np.uint8))
        if len(bits) < count or len(bits) - count > 7 or bits[count:].any():
            raise PayloadError("The entries of the frame are cut short, too long or have bits set behind their end.")
        table = bits[:count].reshape(particles, kept, bits_per_entry)
        magnitude = np.zeros((particles, kept), np.int32)
        for column in range(1, bits_per_entry):
            magnitude = (magnitude << 1) | table[:, :, column]
        negative = table[:, :, 0] == 1
        if (negative & (magnitude == 0)).any():
            raise PayloadError("The frame has a zero with a minus sign.")
        return np.where(negative, -magnitude, magnitude).astype(np.int32)

    def planned_bits(self, particles: int, kept: int, bits_per_entry: int) -> int:
        return particles * kept * bits_per_entry
