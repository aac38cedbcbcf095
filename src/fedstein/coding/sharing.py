r"""Sharing: how many particles have one sparsity pattern (section III-A of the letter).

`sharing` (the letter's alpha) is the fraction of the particles that share one sparsity pattern, so there are
groups = 1/sharing patterns. sharing = 1 is shared sparsification, sharing = 1/N_p a pattern for each particle.
"""

from __future__ import annotations

from fractions import Fraction

from fedstein.errors import UserError

__all__ = ["groups_of", "valid_sharings"]


def valid_sharings(particles: int) -> list[Fraction]:
    """Every sharing that is possible with so many particles, from 1 down to 1/N_p.

    >>> [str(sharing) for sharing in valid_sharings(10)]
    ['1', '1/2', '1/5', '1/10']
    """
    return [Fraction(1, groups) for groups in range(1, particles + 1) if particles % groups == 0]


def groups_of(sharing: float, particles: int) -> int:
    """1/sharing, which must divide the number of particles.

    Args:
        sharing: the fraction of the particles that share one pattern.
        particles: how many there are.

    Returns:
        The number of groups.

    Raises:
        UserError: no such number of groups divides the particles.
    """
    for valid in valid_sharings(particles):
        if abs(float(valid) - sharing) < 1e-3 * float(valid):
            return valid.denominator
    known = ", ".join(f"{sharing} ({float(sharing):.4g})" for sharing in valid_sharings(particles))
    raise UserError(
        f"The 'uplink.sharing' must be 1/groups with a number of groups that divides {particles} particles: "
        f"{known}. Got {sharing:g} instead."
    )
