"""Random streams: one for each (seed, purpose, round, agent), derived, never global.

So an agent draws the same numbers whichever engine or machine it runs on, and a resumed run goes on as if
it had never stopped.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch

__all__ = ["seeded", "stream"]


def stream(seed: int, purpose: str, round: int = 0, agent: int = 0) -> torch.Generator:
    """The generator of one purpose, at the same place in every run.

    >>> a, b = stream(7, "batches", round=3, agent=1), stream(7, "batches", round=3, agent=1)
    >>> bool(torch.rand(1, generator=a) == torch.rand(1, generator=b))
    True
    """
    entropy = [seed, zlib.crc32(purpose.encode()), round, agent]
    state = int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0])
    return torch.Generator().manual_seed(state >> 1)


@contextmanager
def seeded() -> Iterator[Callable[[int], None]]:
    """Lend the global generators of torch, numpy and Python to code of a user's, and put them back.

    They are never ours: what we draw comes from `stream`.
    """

    def seed_with(seed: int) -> None:
        torch.default_generator.manual_seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002  (the one that users' code uses)
        random.seed(seed)

    ours, numbers, plain = torch.random.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        yield seed_with
    finally:
        torch.random.set_rng_state(ours)
        np.random.set_state(numbers)  # noqa: NPY002
        random.setstate(plain)
