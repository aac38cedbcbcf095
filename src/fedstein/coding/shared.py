"""What both ends of an upload know without sending it."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Shared"]


@dataclass(frozen=True, eq=False)
class Shared:
    """What the agent and the server both have when an upload is made, and so never send.

    Args:
        particles: (N_p, d) as the agent has downloaded them.
        first: (N_p, d) before the first round; only where a part of the contract needs it.
        seed: of the run.
        round: of the upload.
        agent: that uploads.
    """

    particles: NDArray[np.float32]
    first: NDArray[np.float32] | None = None
    seed: int = 0
    round: int = 0
    agent: int = 0

    def random(self, purpose: str) -> np.random.Generator:
        """Numbers that are the same at both ends, others for each purpose, round and agent.

        >>> here, there = (Shared(np.zeros((1, 3)), seed=7, round=2) for _ in range(2))
        >>> bool((here.random("sparsifier").permutation(9) == there.random("sparsifier").permutation(9)).all())
        True
        """
        entropy = [self.seed, zlib.crc32(purpose.encode()), self.round, self.agent]
        return np.random.default_rng(np.random.SeedSequence(entropy))
