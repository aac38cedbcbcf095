r"""Position coders: which k of d entries were kept, in close to :math:`\log_2 \binom dk` bits.

- ``golomb``: Golomb-Rice codes of the gaps, the letter's choice. All unary parts come first, so that both
  directions are array operations.
- ``range``: range coding of the gaps under a geometric model. Gaps add up to at most d - k, so *every* pattern
  costs at most about d H(k/d) bits, half of log2(2 pi k) above the bound.
- ``enumerative``: the number of the pattern among all patterns. Exactly the bound, rounded up, but the time
  grows with the square of k: for tiny cases only.

Positions are (groups, k), each row strictly increasing; the rows are coded one behind the other.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from fedstein.errors import PayloadError
from fedstein.uplink.rangecoder import Decoder, Encoder, categorical, uniform

__all__ = ["CODERS", "PositionCoder", "Positions", "bound_bits"]

Positions = NDArray[np.int64]


def bound_bits(dim: int, kept: int) -> float:
    r""":math:`\log_2 \binom dk`.

    >>> round(bound_bits(10, 3), 3)  # 120 patterns
    6.907
    """
    return float(gammaln(dim + 1) - gammaln(kept + 1) - gammaln(dim - kept + 1)) / math.log(2)


class PositionCoder(Protocol):
    """What the frame asks of a coder."""

    def encode(self, positions: Positions, dim: int) -> bytes:
        """Bytes for (groups, k) positions below `dim`."""
        ...

    def decode(self, content: bytes, groups: int, kept: int, dim: int) -> Positions:
        """The positions again; PayloadError for bytes that no encoder wrote."""
        ...

    def most_bits(self, groups: int, kept: int, dim: int) -> int:
        """No pattern costs more than this."""
        ...


def _gaps(positions: Positions) -> NDArray[np.int64]:
    """How many entries are skipped before each kept one, all rows one behind the other."""
    return (np.diff(positions, axis=1, prepend=-1) - 1).ravel()


def _from_gaps(gaps: NDArray[np.int64], groups: int, kept: int, dim: int) -> Positions:
    positions = np.cumsum(gaps.reshape(groups, kept) + 1, axis=1) - 1
    if positions.size and int(positions[:, -1].max()) >= dim:
        raise PayloadError("The frame has a position beyond the last parameter.")
    return positions


class Golomb:
    """Golomb-Rice: a gap is `gap >> b` in unary and b plain bits."""

    def encode(self, positions: Positions, dim: int) -> bytes:
        b = self._parameter(positions.shape[1], dim)
        gaps = _gaps(positions)
        ends = np.cumsum((gaps >> b) + 1)  # a unary number is so many ones, then a zero
        bits = np.ones(int(ends[-1]) if len(ends) else 0, np.uint8)
        bits[ends - 1] = 0
        low = ((gaps[:, None] >> np.arange(b - 1, -1, -1)) & 1).astype(np.uint8).ravel()
        return np.packbits(np.concatenate([bits, low])).tobytes()

    def decode(self, content: bytes, groups: int, kept: int, dim: int) -> Positions:
        b, count = self._parameter(kept, dim), groups * kept
        bits = np.unpackbits(np.frombuffer(content, np.uint8))
        ends = np.flatnonzero(bits == 0)[:count]
        used = int(ends[-1]) + 1 if len(ends) else 0
        if len(ends) < count or used + count * b > len(bits) or len(bits) - used - count * b > 7:
            raise PayloadError("The positions of the frame are cut short or too long.")
        if bits[used + count * b :].any():
            raise PayloadError("The frame has bits set behind its end.")
        high = np.diff(ends, prepend=-1) - 1
        low = bits[used : used + count * b].reshape(count, b).astype(np.int64) @ (1 << np.arange(b - 1, -1, -1))
        return _from_gaps((high << b) + low, groups, kept, dim)

    def most_bits(self, groups: int, kept: int, dim: int) -> int:
        b = self._parameter(kept, dim)
        return groups * (kept * (1 + b) + ((dim - kept) >> b))

    @staticmethod
    def _parameter(kept: int, dim: int) -> int:
        """The b that is shortest in the worst case, hence the same at both ends."""
        return min(range(41), key=lambda b: kept * (1 + b) + ((dim - kept) >> b))


class Range:
    """Range coding under the geometric model with p = k/d.

    A gap is `gap >> b` under the model and b plain bits, with b so small that this costs nothing. A long gap is
    the last symbol of the alphabet, as often as needed, and then the rest: the geometric law has no memory, so
    that is exact too.
    """

    def encode(self, positions: Positions, dim: int) -> bytes:
        encoder = Encoder()
        self.write(encoder, positions, dim)
        return encoder.finish()

    def decode(self, content: bytes, groups: int, kept: int, dim: int) -> Positions:
        return self.read(Decoder(content), groups, kept, dim)

    def write(self, encoder: Encoder, positions: Positions, dim: int) -> None:
        """Append to a stream that others use too."""
        b, last, model = self._model(positions.shape[1], dim)
        gaps = _gaps(positions)
        times, rest = np.divmod(gaps >> b, last)
        symbols = np.full(int(times.sum()) + len(gaps), last, np.int32)
        symbols[np.cumsum(times + 1) - 1] = rest
        encoder.write(symbols, model)
        for shift, width in _plain(b):
            encoder.write((gaps >> shift) & ((1 << width) - 1), uniform(1 << width))

    def read(self, decoder: Decoder, groups: int, kept: int, dim: int) -> Positions:
        """Read from a stream that others use too."""
        b, last, model = self._model(kept, dim)
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
        return _from_gaps(gaps, groups, kept, dim)

    def most_bits(self, groups: int, kept: int, dim: int) -> int:
        p = kept / dim
        skipped = 0.0 if kept == dim else (dim - kept) * -math.log2(1 - p)
        return math.ceil(groups * (kept * -math.log2(p) + skipped) * 1.0003) + 24 if kept else 0

    @staticmethod
    def _model(kept: int, dim: int) -> tuple[int, int, object]:
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


class Enumerative:
    """The combinatorial number system: one number below C(d, k) for each row, all rows in one number."""

    def encode(self, positions: Positions, dim: int) -> bytes:
        groups, kept = positions.shape
        patterns, total = math.comb(dim, kept), 0
        for row in positions.tolist():
            total = total * patterns + sum(math.comb(place, i + 1) for i, place in enumerate(row))
        return total.to_bytes(self._bytes(groups, patterns), "big")

    def decode(self, content: bytes, groups: int, kept: int, dim: int) -> Positions:
        patterns = math.comb(dim, kept)
        total = int.from_bytes(content, "big")
        if len(content) != self._bytes(groups, patterns) or total >= patterns**groups:
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
        return 8 * self._bytes(groups, math.comb(dim, kept))

    @staticmethod
    def _bytes(groups: int, patterns: int) -> int:
        bits = int(patterns**groups - 1).bit_length()
        return (bits + 7) // 8


CODERS: dict[str, PositionCoder] = {"golomb": Golomb(), "range": Range(), "enumerative": Enumerative()}
