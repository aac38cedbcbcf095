"""What a budget is guaranteed to carry, for every number of patterns that the particles can have."""

from __future__ import annotations

from dataclasses import replace

from fedstein.coding import Contract, Plan, parse_budget, plan, valid_sharings
from fedstein.errors import UserError

__all__ = ["plans_for"]


def plans_for(
    dim: int, particles: int = 10, budget: str | int = "1.0d", bits_per_entry: int = 5
) -> tuple[list[tuple[Contract, Plan]], list[UserError]]:
    """For every valid sharing, how many entries fit into a budget whatever the update is.

    Args:
        dim: d, parameters of the model.
        particles: N_p.
        budget: R_u, as in uplink.budget.
        bits_per_entry: N_b.

    Returns:
        Contracts with their plans, and why there is none for the others.

    Raises:
        UserError: nothing fits.

    >>> [plan.kept for _, plan in plans_for(79510)[0]]
    [1386, 1223, 886, 587]
    """
    base = Contract(dim, particles, 1, bits_per_entry, parse_budget(budget, dim))
    plans: list[tuple[Contract, Plan]] = []
    refusals: list[UserError] = []
    for sharing in valid_sharings(particles):
        contract = replace(base, groups=sharing.denominator)
        try:
            plans.append((contract, plan(contract)))
        except UserError as error:
            refusals.append(error)
    if not plans:
        raise refusals[0]  # of sharing 1, which needs the least
    return plans, refusals
