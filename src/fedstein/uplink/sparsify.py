r"""Sparsifiers: which entries of an update are sent (section III-A of the letter).

`sharing` (the letter's alpha) is the fraction of the particles that share one sparsity pattern, so there are
groups = 1/sharing patterns. Within a group the entries with the largest sums of absolute values are kept.
sharing = 1 is shared sparsification, sharing = 1/N_p is top-k for each particle.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fedstein.errors import UserError

__all__ = ["groups_of", "importance", "ranked", "valid_sharings"]


def valid_sharings(particles: int) -> list[Fraction]:
    """Every sharing that is possible with so many particles, from 1 down to 1/N_p.

    >>> [str(sharing) for sharing in valid_sharings(10)]
    ['1', '1/2', '1/5', '1/10']
    """
    return [Fraction(1, groups) for groups in range(1, particles + 1) if particles % groups == 0]


def groups_of(sharing: float, particles: int) -> int:
    """1/sharing, which must divide the number of particles."""
    for valid in valid_sharings(particles):
        if abs(float(valid) - sharing) < 1e-3 * float(valid):
            return valid.denominator
    known = ", ".join(f"{sharing} ({float(sharing):.4g})" for sharing in valid_sharings(particles))
    raise UserError(
        f"The 'uplink.sharing' must be 1/groups with a number of groups that divides {particles} particles: "
        f"{known}. Got {sharing:g} instead."
    )


def importance(update: NDArray[np.float32], groups: int) -> NDArray[np.float32]:
    """(groups, d) sums of absolute values over the particles of each group, which are neighbours in order."""
    particles, dim = update.shape
    total = np.abs(update[:: particles // groups])
    for member in range(1, particles // groups):
        total += np.abs(update[member :: particles // groups])
    return total.reshape(groups, dim)


def ranked(weights: NDArray[np.float32], most: int) -> NDArray[np.int64]:
    """(groups, most) positions, the heaviest first; the first k of a row are its top k, for every k."""
    dim = weights.shape[1]
    if most < dim:
        top = np.argpartition(weights, dim - most, axis=1)[:, dim - most :]
    else:
        top = np.broadcast_to(np.arange(dim), weights.shape)
    order = np.argsort(-np.take_along_axis(weights, top, 1), axis=1, kind="stable")
    return np.take_along_axis(top, order, 1).astype(np.int64)
