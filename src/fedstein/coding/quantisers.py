r"""Quantisers: the kept values as a few levels (section III-B of the letter).

- ``stochastic`` (Alistarh et al., "QSGD", 2017): an entry is one sign and a magnitude of N_b - 1 bits. The letter
  divides the range by 2^N_b - 1, but those levels do not fit into N_b - 1 bits; ours are 0 ... 2^(N_b-1) - 1 with a
  step of :math:`\delta = a_{\max} / (2^{N_b-1} - 1)`. Rounding up happens with the probability of the remainder, so
  the quantiser is unbiased inside the range; beyond a fixed a_max values clip.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedstein.registry import Registry

__all__ = ["QUANTISERS", "Quantiser", "Stochastic", "largest_level"]


def largest_level(bits_per_entry: int) -> int:
    """2^(N_b - 1) - 1."""
    return (1 << (bits_per_entry - 1)) - 1


class Quantiser(Protocol):
    """Turns values into signed levels, and levels into values."""

    def quantise(
        self, values: NDArray[np.float32], a_max: float, bits_per_entry: int, generator: np.random.Generator
    ) -> NDArray[np.int32]:
        """At the agent.

        Args:
            values: finite numbers of any shape.
            a_max: end of the range; 0 if all values are 0.
            bits_per_entry: N_b, 2 to 16.
            generator: of the rounding.

        Returns:
            Levels in -largest ... largest, with largest = 2^(N_b - 1) - 1, in the shape of the values.
        """
        ...

    def restore(self, levels: NDArray[np.int32], a_max: float, bits_per_entry: int) -> NDArray[np.float32]:
        """At both ends: the values that the levels stand for.

        Args:
            levels: any in -largest ... largest.
            a_max: end of the range.
            bits_per_entry: N_b.

        Returns:
            Finite values in the shape of the levels.
        """
        ...


class Stochastic(Quantiser):
    """Equal steps, rounded up with the probability of the remainder."""

    def quantise(
        self, values: NDArray[np.float32], a_max: float, bits_per_entry: int, generator: np.random.Generator
    ) -> NDArray[np.int32]:
        if a_max == 0.0:
            return np.zeros(values.shape, np.int32)
        top = largest_level(bits_per_entry)
        scaled = np.minimum(np.abs(values.astype(np.float64)) * (top / a_max), top)
        levels = np.minimum(np.floor(scaled + generator.random(values.shape)), top).astype(np.int32)
        return np.where(values < 0, -levels, levels)

    def restore(self, levels: NDArray[np.int32], a_max: float, bits_per_entry: int) -> NDArray[np.float32]:
        return (levels * (a_max / largest_level(bits_per_entry))).astype(np.float32)


QUANTISERS: Registry[Quantiser] = Registry("quantiser", "values as a few levels", {"stochastic": Stochastic()})
