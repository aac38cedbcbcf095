"""Range coding of the entries, under counts of what came before.

Magnitudes of a top-k update crowd at the low levels, and particles that share a pattern have alike magnitudes at
the same entry; so a magnitude is coded under counts of what came before it, chosen by the mean magnitude of the
particles before it at that entry. Signs are plain bits, none for level 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedstein.coding.entries.base import EntryCoder, Levels
from fedstein.coding.quantisers import largest_level
from fedstein.coding.rangecoder import Decoder, Encoder, categorical, uniform

__all__ = ["Adaptive"]

_ALPHABET_BITS = 8  # of a magnitude under the counts; what is below is plain bits
_CONTEXTS = 6


class Adaptive(EntryCoder):
    """As many bits as the levels are surprising."""

    streams = True
    certain = False

    def encode(self, levels: Levels, groups: int, bits_per_entry: int) -> bytes:
        encoder = Encoder()
        self.write(encoder, levels, groups, bits_per_entry)
        return encoder.finish()

    def decode(self, content: bytes, particles: int, kept: int, groups: int, bits_per_entry: int) -> Levels:
        return self.read(Decoder(content), particles, kept, groups, bits_per_entry)

    def write(self, encoder: Encoder, levels: Levels, groups: int, bits_per_entry: int) -> None:
        """Group by group, particle by particle."""
        model = _Model(bits_per_entry)
        particles, kept = levels.shape
        magnitudes = np.abs(levels)
        for rows in magnitudes.reshape(groups, particles // groups, kept):
            total = np.zeros(kept, np.int64)
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

    def read(self, decoder: Decoder, particles: int, kept: int, groups: int, bits_per_entry: int) -> Levels:
        model = _Model(bits_per_entry)
        grouped = np.zeros((groups, particles // groups, kept), np.int32)
        for rows in grouped:
            total = np.zeros(kept, np.int64)
            for index, row in enumerate(rows):
                contexts = model.context(total, index)
                for context in range(int(contexts.min(initial=0)), int(contexts.max(initial=0)) + 1):
                    places = contexts == context
                    if places.any():
                        row[places] = mine = decoder.read(int(places.sum()), categorical(model.law(context)))
                        model.learn(context, mine)
                total += row
        magnitudes = grouped.reshape(particles, kept)
        if model.plain:
            low = decoder.read(magnitudes.size, uniform(1 << model.plain)).reshape(magnitudes.shape)
            magnitudes = (magnitudes << model.plain) | low
        negative = np.zeros(magnitudes.shape, bool)
        nonzero = magnitudes != 0
        negative[nonzero] = decoder.read(int(nonzero.sum()), uniform(2)) == 1
        return np.where(negative, -magnitudes, magnitudes)

    def planned_bits(self, particles: int, kept: int, bits_per_entry: int) -> int:
        return particles * kept * bits_per_entry  # as fixed: seldom more


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
        contexts = np.ones(len(total), np.int64)
        for edge in (3, 6, 12, 24):
            contexts += scaled >= edge * unit
        return contexts

    def law(self, context: int) -> NDArray[np.float64]:
        law: NDArray[np.float64] = self._counts[context] / self._counts[context].sum()
        return law

    def learn(self, context: int, symbols: NDArray[np.int32]) -> None:
        self._counts[context] += np.bincount(symbols, minlength=self.size)
