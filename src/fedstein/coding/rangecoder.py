"""A range coder that ends as tightly as possible, around `constriction`.

constriction ends a message on a 32-bit word. Knowing the coder's interval we write only the bytes that are
needed to point into it; the decoder sees zeros behind them. That saves two bytes on average.
"""

from __future__ import annotations

import math
from typing import Any

import constriction
import numpy as np
from numpy.typing import NDArray

from fedstein.errors import PayloadError

__all__ = ["Decoder", "Encoder", "categorical", "uniform"]

Symbols = NDArray[np.int32]


def categorical(probabilities: NDArray[np.float64]) -> Any:
    """A model over 0 ... len - 1. `perfect` is explicit: its default changes between versions, and so the bytes."""
    return constriction.stream.model.Categorical(probabilities, perfect=False)


def uniform(size: int) -> Any:
    """Equal probabilities over 0 ... size - 1."""
    return constriction.stream.model.Uniform(size)


class Encoder:
    """Write symbols, then take the bytes."""

    def __init__(self) -> None:
        self._coder = constriction.stream.queue.RangeEncoder()

    def write(self, symbols: Symbols, model: Any) -> None:
        """Append symbols under one model."""
        if len(symbols):
            self._coder.encode(np.ascontiguousarray(symbols, dtype=np.int32), model)

    def bits(self) -> int:
        """The information written so far, in whole bits."""
        words, (_, width) = self._coder.pos()
        return int(32 * words + 64 - math.log2(width))

    def finish(self) -> bytes:
        """The shortest byte string that decodes to what was written."""
        words, (lower, width) = self._coder.pos()
        head: bytes = self._coder.get_compressed()[:words].astype(">u4").tobytes()
        for length in range(9):
            shift = 64 - 8 * length
            point = -(-lower >> shift) << shift  # the first value with that many bytes that is not below
            if point < lower + width:
                break
        if point >> 64:  # a carry into the words before
            head = (int.from_bytes(head, "big") + 1).to_bytes(len(head), "big")
            point &= (1 << 64) - 1
        tail: bytes = (point >> shift).to_bytes(length, "big")
        return head + tail


class Decoder:
    """Read symbols back. Any bytes decode to something; only what the models allow ever comes out."""

    def __init__(self, content: bytes) -> None:
        padded = content + bytes(-len(content) % 4)
        self._coder = constriction.stream.queue.RangeDecoder(np.frombuffer(padded, ">u4").astype(np.uint32))

    def read(self, count: int, model: Any) -> Symbols:
        """The next `count` symbols."""
        try:
            return np.asarray(self._coder.decode(model, count), dtype=np.int32) if count else np.zeros(0, np.int32)
        except AssertionError as error:  # how constriction says that these bytes are no message
            raise PayloadError("The range-coded part of the frame is damaged.") from error
