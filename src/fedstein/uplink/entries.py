"""Entry coders: the signed levels of the kept entries.

- ``fixed``: N_b bits each, as in the letter.
- ``adaptive``: range coding. Magnitudes of a top-k update crowd at the low levels, and particles that share a
  pattern have alike magnitudes at the same entry; so a magnitude is coded under counts of what came before it,
  chosen by the mean magnitude of the particles before it at that entry. Signs are plain bits, none for level 0.

Levels are (particles, kept); particles of a group are neighbours.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedstein.errors import PayloadError
from fedstein.uplink.quantize import largest_level
from fedstein.uplink.rangecoder import Decoder, Encoder, categorical, uniform

__all__ = ["pack_fixed", "read_adaptive", "unpack_fixed", "write_adaptive"]

Levels = NDArray[np.int32]

_ALPHABET_BITS = 8  # of a magnitude under the counts; what is below is plain bits
_CONTEXTS = 6


def pack_fixed(levels: Levels, bits_per_entry: int) -> bytes:
    """One sign bit and N_b - 1 bits of magnitude for each level."""
    coded = np.abs(levels).ravel().astype(np.uint32) | ((levels.ravel() < 0).astype(np.uint32) << (bits_per_entry - 1))
    shifts = np.arange(bits_per_entry - 1, -1, -1, dtype=np.uint32)
    return np.packbits(((coded[:, None] >> shifts) & 1).astype(np.uint8)).tobytes()


def unpack_fixed(content: bytes, particles: int, kept: int, bits_per_entry: int) -> Levels:
    """The levels again."""
    count = particles * kept * bits_per_entry
    bits = np.unpackbits(np.frombuffer(content, np.uint8))
    if len(bits) < count or bits[count:].any():
        raise PayloadError("The entries of the frame are cut short or have bits set behind their end.")
    table = bits[:count].reshape(particles, kept, bits_per_entry)
    magnitude = np.zeros((particles, kept), np.int32)
    for column in range(1, bits_per_entry):
        magnitude = (magnitude << 1) | table[:, :, column]
    negative = table[:, :, 0] == 1
    if (negative & (magnitude == 0)).any():
        raise PayloadError("The frame has a zero with a minus sign.")
    return np.where(negative, -magnitude, magnitude).astype(np.int32)


class _Model:
    """Counts of magnitudes in each context; the same at both ends, because both have seen the same."""

    def __init__(self, bits_per_entry: int) -> None:
        self.plain = max(0, bits_per_entry - 1 - _ALPHABET_BITS)
        self.size = (largest_level(bits_per_entry) >> self.plain) + 1
        # Before anything is seen, low levels are likelier: a quarter, an eighth, ... of the range.
        self._counts = np.tile(16.0 / (1.0 + np.arange(self.size)) + 0.05, (_CONTEXTS, 1))

    def context(self, total: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
        """By the mean magnitude of the rows before: none yet, then five bins, wider as they get higher."""
        if rows == 0:
            return np.zeros(len(total), np.int64)
        unit = rows * self.size  # whole numbers: no rounding that could differ between machines
        scaled = total * 64
        found = np.ones(len(total), np.int64)
        for edge in (3, 6, 12, 24):
            found += scaled >= edge * unit
        return found

    def law(self, context: int) -> NDArray[np.float64]:
        law: NDArray[np.float64] = self._counts[context] / self._counts[context].sum()
        return law

    def learn(self, context: int, symbols: NDArray[np.int32]) -> None:
        self._counts[context] += np.bincount(symbols, minlength=self.size)


def write_adaptive(encoder: Encoder, levels: Levels, groups: int, bits_per_entry: int) -> None:
    """Append the levels to a stream, group by group, particle by particle."""
    model = _Model(bits_per_entry)
    magnitudes = np.abs(levels)
    for rows in magnitudes.reshape(groups, -1, levels.shape[1]):
        total = np.zeros(levels.shape[1], np.int64)
        for index, row in enumerate(rows):
            symbols, contexts = row >> model.plain, model.context(total, index)
            for context in range(int(contexts.min(initial=0)), int(contexts.max(initial=0)) + 1):
                mine = symbols[contexts == context]
                if len(mine):
                    encoder.write(mine, categorical(model.law(context)))
                    model.learn(context, mine)
            total += symbols
    if model.plain:
        encoder.write((magnitudes & ((1 << model.plain) - 1)).ravel(), uniform(1 << model.plain))
    signs = levels.ravel()
    encoder.write((signs[signs != 0] < 0).astype(np.int32), uniform(2))


def read_adaptive(decoder: Decoder, particles: int, kept: int, groups: int, bits_per_entry: int) -> Levels:
    """The levels again."""
    model = _Model(bits_per_entry)
    magnitudes = np.zeros((groups, particles // groups, kept), np.int32)
    for rows in magnitudes:
        total = np.zeros(kept, np.int64)
        for index, row in enumerate(rows):
            contexts = model.context(total, index)
            for context in range(int(contexts.min(initial=0)), int(contexts.max(initial=0)) + 1):
                places = contexts == context
                if places.any():
                    row[places] = mine = decoder.read(int(places.sum()), categorical(model.law(context)))
                    model.learn(context, mine)
            total += row
    found = magnitudes.reshape(particles, kept)
    if model.plain:
        low = decoder.read(found.size, uniform(1 << model.plain)).reshape(found.shape)
        found = (found << model.plain) | low
    negative = np.zeros(found.shape, bool)
    nonzero = found != 0
    negative[nonzero] = decoder.read(int(nonzero.sum()), uniform(2)) == 1
    return np.where(negative, -found, found)
