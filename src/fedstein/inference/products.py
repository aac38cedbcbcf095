"""Thin products: a small (N, M) matrix times M long rows, a cache-full of columns at a time."""

from __future__ import annotations

from torch import Tensor

__all__ = ["add_product"]

_ENTRIES = 1 << 19  # of one block of rows: 2 MB, so that it is still in the cache when it is used again


def add_product(to: Tensor, small: Tensor, rows: Tensor, scale: float = 1.0, keep: float = 1.0) -> Tensor:
    """`to` = keep * to + scale * small @ rows, in place.

    Args:
        to: (N, d), changed; not `rows`.
        small: (N, M).
        rows: (M, d).
        scale: of the product.
        keep: of what is in `to`; with 0 it may hold anything.

    Returns:
        `to`.
    """
    # Other devices than the CPU divide the work themselves.
    width = max(_ENTRIES // len(rows), 1024) if rows.device.type == "cpu" else rows.shape[1]
    for start in range(0, rows.shape[1], width):
        columns = slice(start, start + width)
        to[:, columns].addmm_(small, rows[:, columns], beta=keep, alpha=scale)
    return to
