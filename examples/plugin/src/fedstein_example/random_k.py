"""random-k: k entries that both ends draw from the same stream, so that no position is ever sent.

Konečný et al., "Federated learning: strategies for improving communication efficiency" (2016), call it a random mask.
All bits go into values; with error feedback every entry gets its turn.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedstein.coding import Shared

__all__ = ["RANDOM_K"]


class RandomK:
    """A sparsifier that does not look at the update."""

    sends_positions = False
    needs_first = False

    def ranked(self, update: NDArray[np.float32], groups: int, most: int, shared: Shared | None) -> NDArray[np.int64]:
        """The first `most` entries of a permutation, for each group its own."""
        return self._draw(groups, update.shape[1], shared)[:, :most]

    def known(self, groups: int, kept: int, dim: int, shared: Shared | None) -> NDArray[np.int64]:
        """The same permutation, at the other end."""
        return np.sort(self._draw(groups, dim, shared)[:, :kept], axis=1)

    @staticmethod
    def _draw(groups: int, dim: int, shared: Shared | None) -> NDArray[np.int64]:
        assert shared is not None, "random-k needs what both ends know"
        random = shared.random("random-k")
        return np.stack([random.permutation(dim) for _ in range(groups)]).astype(np.int64)


RANDOM_K = RandomK()
