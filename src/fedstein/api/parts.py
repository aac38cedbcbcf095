"""What there is to choose from, and what a budget carries."""

from __future__ import annotations

from typing import Any

from fedstein.api.arguments import check_whole, refuse
from fedstein.coding import ENTRY_CODERS, POSITION_CODERS, QUANTISERS, SPARSIFIERS, Plan
from fedstein.data import PARTITIONERS, SOURCES
from fedstein.engines import ENGINES
from fedstein.inference import KERNELS, STEP_RULES
from fedstein.likelihoods import LIKELIHOODS
from fedstein.methods import FACTORS, METHODS
from fedstein.posterior import POSTERIORS
from fedstein.protocol.planning import plans_for
from fedstein.protocol.schedule import SCHEDULERS
from fedstein.registry import Registry
from fedstein.trackers import TRACKERS

__all__ = ["plan", "seams"]


def plan(dim: int, particles: int = 10, budget: str | int = "1.0d", bits_per_entry: int = 5) -> list[Plan]:
    """For every valid sharing, how many entries fit into a budget whatever the update is.

    Args:
        dim: d, parameters of the model.
        particles: N_p.
        budget: R_u: bits (79510), multiples of d (``"0.5d"``) or bytes (``"10kB"``).
        bits_per_entry: N_b.

    >>> [one.kept for one in plan(79510)]
    [1386, 1223, 886, 587]
    """
    check_whole("dim", dim, 1)
    check_whole("particles", particles, 1)
    check_whole("bits_per_entry", bits_per_entry, 2, 16)
    if not isinstance(budget, str | int):
        raise refuse("budget", "bits (79510), a multiple of the dimension ('0.5d') or bytes ('10kB')", budget)
    return [one for _, one in plans_for(dim, particles, budget, bits_per_entry)[0]]


def seams() -> dict[str, Registry[Any]]:
    """Every seam, by its name, with the parts that are registered in it."""
    registries = (
        SPARSIFIERS, QUANTISERS, POSITION_CODERS, ENTRY_CODERS, FACTORS, METHODS, KERNELS, STEP_RULES, SCHEDULERS,
        SOURCES, PARTITIONERS, TRACKERS, ENGINES, LIKELIHOODS, POSTERIORS,
    )  # fmt: skip
    return {registry.seam.replace(" ", "_"): registry for registry in registries}
