r"""Sparsifiers: which entries of an update are sent (section III-A of the letter).

- ``top-k``: within a group of particles, the entries with the largest sums of absolute values.

A sparsifier that draws its entries from `Shared.random`, whatever the update is, needs to send no positions: the
reader draws the same.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedstein.coding.shared import Shared
from fedstein.errors import UserError
from fedstein.registry import Registry

__all__ = ["SPARSIFIERS", "Sparsifier", "TopK", "importance", "ranked"]


class Sparsifier(Protocol):
    """Ranks the entries of an update. A class from outside may inherit from it, but need not."""

    sends_positions: bool = True  # False: the reader finds them itself, by `known`
    needs_first: bool = False  # whether `Shared.first` must be given; may be left out

    def ranked(self, update: NDArray[np.float32], groups: int, most: int, shared: Shared | None) -> NDArray[np.int64]:
        """The entries to keep first.

        Args:
            update: (particles, d); the particles of a group are neighbours.
            groups: how many patterns there are.
            most: so many positions of each group are asked for, at the most d.
            shared: what both ends know; None where the caller has nothing of it.

        Returns:
            (groups, most) distinct positions in each row: its first k are what is kept, for every k.
        """
        ...

    def known(self, groups: int, kept: int, dim: int, shared: Shared | None) -> NDArray[np.int64]:
        """Only where no positions are sent: what was kept, without having seen the update.

        Args:
            groups: how many patterns there are.
            kept: so many entries of each group were kept.
            dim: so many entries there are.
            shared: what both ends know.

        Returns:
            (groups, kept) positions, each row increasing: the first `kept` of `ranked`.
        """
        raise UserError(f"The sparsifier {type(self).__name__} sends its positions: nobody knows them without.")


class TopK(Sparsifier):
    """The heaviest entries of each group."""

    sends_positions = True

    def ranked(self, update: NDArray[np.float32], groups: int, most: int, shared: Shared | None) -> NDArray[np.int64]:
        return ranked(importance(update, groups), most)


def importance(update: NDArray[np.float32], groups: int) -> NDArray[np.float32]:
    """The weight of each entry in each group.

    Args:
        update: (particles, d).
        groups: of particles, which are neighbours in order.

    Returns:
        (groups, d) sums of absolute values.
    """
    particles, dim = update.shape
    total = np.abs(update[:: particles // groups])
    for member in range(1, particles // groups):
        total += np.abs(update[member :: particles // groups])
    return total.reshape(groups, dim)


def ranked(weights: NDArray[np.float32], most: int) -> NDArray[np.int64]:
    """The heaviest entries of each group.

    Args:
        weights: (groups, d).
        most: so many are asked for.

    Returns:
        (groups, most) positions, the heaviest first; the first k of a row are its top k, for every k.
    """
    dim = weights.shape[1]
    if most < dim:
        top = np.argpartition(weights, dim - most, axis=1)[:, dim - most :]
    else:
        top = np.broadcast_to(np.arange(dim), weights.shape)
    order = np.argsort(-np.take_along_axis(weights, top, 1), axis=1, kind="stable")
    return np.take_along_axis(top, order, 1).astype(np.int64)


SPARSIFIERS: Registry[Sparsifier] = Registry("sparsifier", "which entries of an update are sent", {"top-k": TopK()})
