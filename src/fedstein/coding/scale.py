"""The scale of a frame in two bytes."""

from __future__ import annotations

import numpy as np

__all__ = ["SCALE_BYTES", "pack_scale", "unpack_scale"]

SCALE_BYTES = 2


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
