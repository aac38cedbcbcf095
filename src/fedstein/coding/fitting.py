"""From an update to the frame that says most of it within the budget."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fedstein.coding.budget import plan
from fedstein.coding.contract import Contract
from fedstein.coding.frame import pack
from fedstein.coding.shared import Shared
from fedstein.coding.sparse import Sparse, sparsify
from fedstein.errors import UserError

__all__ = ["encode"]

_Attempt = tuple[bytes, Sparse, int]  # the frame, what it means, and how many bits its positions took


def encode(
    update: NDArray[np.float32],
    contract: Contract,
    generator: np.random.Generator,
    shared: Shared | None = None,
) -> tuple[bytes, Sparse, int]:
    """The frame of an update, never longer than the budget.

    If the length is known before coding, the planned number of entries is kept. Otherwise, with adaptive entries or
    informed positions, the largest number that fits is looked for. Nothing is kept if not even one entry fits.

    Args:
        update: (particles, d), finite.
        contract: what both ends know.
        generator: of the stochastic rounding.
        shared: what both ends know of this upload, for parts that use it.

    Returns:
        The bytes, what they mean, and how many bits the positions took.

    Raises:
        UserError: the contract cannot be, or a part of it needs `shared`.
    """
    own = _encode(update, contract, contract, generator, shared)
    if not contract.can_be_common:
        return own
    copies = contract.particles // contract.groups
    mean = update.reshape(contract.groups, copies, -1).mean(axis=1)
    common = _encode(mean, contract, contract.per_group(), generator, shared)
    return min(own, common, key=lambda frame: float(np.square(update.astype(np.float64) - frame[1].dense()).sum()))


def _encode(
    update: NDArray[np.float32],
    contract: Contract,
    rows: Contract,
    generator: np.random.Generator,
    shared: Shared | None,
) -> _Attempt:
    """`rows` are the terms of the rows of `update`: particles, or groups that have common values."""
    planned, copies = plan(rows).kept, contract.particles // rows.particles
    most = min(rows.dim, planned * 4) if rows.searches else planned
    order = rows.chooser.ranked(update, rows.groups, most, shared)

    def attempt(kept: int) -> _Attempt:
        sparse = sparsify(update, np.sort(order[:, :kept], axis=1), contract, generator, copies)
        frame, position_bits = pack(sparse, shared)
        return frame, sparse, position_bits

    best = _search(attempt, planned, order.shape[1], rows) if rows.searches else attempt(planned)
    while 8 * len(best[0]) > rows.budget_bits:  # cannot happen by plan(), with parts that keep their word
        if best[1].kept == 0:
            raise UserError(
                f"The 'uplink.budget' of {rows.budget_bits} bits is too small for a frame without entries: it has "
                f"{8 * len(best[0])} bits. Check the {rows.entries} entries with fedstein.testing.coding."
            )
        best = attempt(best[1].kept * 9 // 10)
    return best


def _search(attempt: Callable[[int], _Attempt], planned: int, most: int, contract: Contract) -> _Attempt:
    """The largest number of entries that fits, or nearly: three attempts as a rule.

    The length grows like a power of the number kept, a little slower than in proportion.
    """
    budget, overhead = contract.budget_bits // 8, contract.overhead_bytes
    too_many, power = most + 1, 0.85
    best: _Attempt | None = None
    kept, points = min(2 * planned, most), list[tuple[float, float]]()
    for _ in range(6):
        tried = attempt(kept)
        length = len(tried[0])
        if length <= budget:
            best = tried if best is None or kept > best[1].kept else best
            if length >= 0.99 * budget:
                break
        else:
            too_many = min(too_many, kept)
        points.append((math.log(kept), math.log(max(length - overhead, 1))))
        if len(points) > 1 and points[-1][0] != points[-2][0]:
            slope = (points[-1][1] - points[-2][1]) / (points[-1][0] - points[-2][0])
            power = min(max(slope, 0.5), 1.2)
        wanted = math.log(max(0.996 * budget - overhead, 1)) - points[-1][1]
        guess = math.floor(kept * math.exp(wanted / power))
        least = best[1].kept + 1 if best is not None else 1
        if least >= too_many:
            break
        kept = min(max(guess, least), too_many - 1)
    return best if best is not None else attempt(min(planned, too_many - 1))
