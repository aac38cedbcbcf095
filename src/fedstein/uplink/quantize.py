r"""The stochastic quantiser (section III-B of the letter; Alistarh et al., "QSGD", 2017).

An entry is one sign and a magnitude of N_b - 1 bits. The letter divides the range by 2^N_b - 1, but those
levels do not fit into N_b - 1 bits; ours are 0 ... 2^(N_b-1) - 1 with a step of
:math:`\delta = a_{\max} / (2^{N_b-1} - 1)`. Rounding up happens with the probability of the remainder, so
the quantiser is unbiased inside the range; beyond a fixed a_max values clip.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["dequantize", "largest_level", "pack_scale", "quantize", "unpack_scale"]


def largest_level(bits_per_entry: int) -> int:
    """2^(N_b - 1) - 1."""
    return (1 << (bits_per_entry - 1)) - 1


def quantize(
    values: NDArray[np.float32], a_max: float, bits_per_entry: int, generator: np.random.Generator
) -> NDArray[np.int32]:
    """Signed levels, in -largest ... largest.

    Args:
        values: finite numbers of any shape.
        a_max: end of the range; 0 if all values are 0.
        bits_per_entry: N_b, 2 to 16.
        generator: of the rounding.
    """
    if a_max == 0.0:
        return np.zeros(values.shape, np.int32)
    top = largest_level(bits_per_entry)
    scaled = np.minimum(np.abs(values.astype(np.float64)) * (top / a_max), top)
    levels = np.minimum(np.floor(scaled + generator.random(values.shape)), top).astype(np.int32)
    return np.where(values < 0, -levels, levels)


def dequantize(levels: NDArray[np.int32], a_max: float, bits_per_entry: int) -> NDArray[np.float32]:
    """The values that the levels stand for."""
    return (levels * (a_max / largest_level(bits_per_entry))).astype(np.float32)


def pack_scale(largest: float) -> tuple[bytes, float]:
    """Two bytes for a scale that is at least `largest` (by less than 0.8 %), and that scale itself.

    The upper half of a float32, rounded up. Zero and everything finite up to 3.3e38 work.
    """
    bits = int(np.float32(largest).view(np.uint32))
    upper = (bits + 0xFFFF) >> 16
    upper = min(upper, 0x7F7F)  # the largest finite one: values beyond it clip
    return upper.to_bytes(2, "big"), unpack_scale(upper.to_bytes(2, "big"))


def unpack_scale(packed: bytes) -> float:
    """The scale in two bytes; NaN and infinity come back as they are, for the caller to refuse."""
    return float(np.uint32(int.from_bytes(packed, "big") << 16).view(np.float32))
