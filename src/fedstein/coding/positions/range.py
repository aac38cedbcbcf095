"""Range coding of the gaps under the geometric model with p = k/d.

A gap is `gap >> b` under the model and b plain bits, with b so small that this costs nothing. A long gap is
the last symbol of the alphabet, as often as needed, and then the rest: the geometric law has no memory, so
that is exact too. Gaps add up to at most d - k, so *every* pattern costs at most about d H(k/d) bits, half of
log2(2 pi k) above the bound.
"""

from __future__ import annotations

import math

import numpy as np

from fedstein.coding.positions.base import PositionCoder, Positions, from_gaps, gaps_of
from fedstein.coding.rangecoder import Decoder, Encoder, categorical, uniform
from fedstein.coding.shared import Shared
from fedstein.errors import PayloadError

__all__ = ["Range"]


class Range(PositionCoder):
    """Range coding of the gaps."""

    streams = True
    certain = True
    needs_first = False

    def encode(self, positions: Positions, dim: int, shared: Shared | None = None) -> bytes:
        encoder = Encoder()
        self.write(encoder, positions, dim)
        return encoder.finish()

    def decode(self, content: bytes, groups: int, kept: int, dim: int, shared: Shared | None = None) -> Positions:
        return self.read(Decoder(content), groups, kept, dim)

    def write(self, encoder: Encoder, positions: Positions, dim: int, shared: Shared | None = None) -> None:
        b, last, model = _model(positions.shape[1], dim)
        gaps = gaps_of(positions)
        times, rest = np.divmod(gaps >> b, last)
        symbols = np.full(int(times.sum()) + len(gaps), last, np.int32)
        symbols[np.cumsum(times + 1) - 1] = rest
        encoder.write(symbols, model)
        for shift, width in _plain(b):
            encoder.write((gaps >> shift) & ((1 << width) - 1), uniform(1 << width))

    def read(self, decoder: Decoder, groups: int, kept: int, dim: int, shared: Shared | None = None) -> Positions:
        b, last, model = _model(kept, dim)
        count = groups * kept
        room = groups * (((dim - kept) >> b) // last + 1)  # long-gap symbols that a true message can have
        symbols = np.zeros(0, np.int32)
        ends = np.zeros(0, np.int64)
        while len(ends) < count:
            if len(symbols) - len(ends) > room:
                raise PayloadError("The frame has longer gaps than there are parameters.")
            symbols = np.concatenate([symbols, decoder.read(count - len(ends), model)])
            ends = np.flatnonzero(symbols != last)
        times = np.diff(ends, prepend=-1) - 1
        gaps = (times * last + symbols[ends]).astype(np.int64) << b
        for shift, width in _plain(b):
            gaps += decoder.read(count, uniform(1 << width)).astype(np.int64) << shift
        return from_gaps(gaps, groups, kept, dim)

    def most_bits(self, groups: int, kept: int, dim: int) -> int:
        p = kept / dim
        skipped = 0.0 if kept == dim else (dim - kept) * -math.log2(1 - p)
        return math.ceil(groups * (kept * -math.log2(p) + skipped) * 1.0003) + 24 if kept else 0


def _model(kept: int, dim: int) -> tuple[int, int, object]:
    """(b, the last symbol, the law of a gap)."""
    p = max(kept, 1) / dim
    b = max(0, math.floor(-math.log2(p)) - 7)
    per_step = -math.expm1((1 << b) * math.log1p(-p)) if p < 1 else 1.0
    last = max(1, min(1 << 11, math.ceil(8.0 / per_step)))
    law = np.power(1.0 - per_step, np.arange(last + 1, dtype=np.float64))
    law[:-1] *= per_step
    return b, last, categorical(law)


def _plain(b: int) -> list[tuple[int, int]]:
    """(shift, width) of the pieces of b plain bits, each small enough for the range coder."""
    return [(shift, min(16, b - shift)) for shift in range(0, b, 16)]
