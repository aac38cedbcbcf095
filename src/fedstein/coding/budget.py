r"""The budget: what an upload may cost, and how many entries are guaranteed to fit.

The letter's formula is :math:`R_u = \frac1\alpha \log_2 \binom dk + N_p N_b k`. We bill everything: positions by
a real coder, entries, the scale, the header and the check, in whole bytes.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache

from fedstein.coding.contract import Contract
from fedstein.coding.positions import bound_bits
from fedstein.errors import UserError

__all__ = ["Plan", "cost", "letter_bits", "parse_budget", "plan"]


@dataclass(frozen=True)
class Plan:
    """The largest number of kept entries that fits whatever the update is, and where its bits go."""

    groups: int
    kept: int
    position_bits: int
    entry_bits: int
    overhead_bits: int
    bound_bits: float

    @property
    def bits(self) -> int:
        """What an upload costs at the most: whole bytes."""
        return self.position_bits + self.entry_bits + self.overhead_bits


def letter_bits(contract: Contract, kept: int) -> float:
    """The letter's R_u, which counts no header and no scale, and positions at the bound.

    Args:
        contract: of the upload.
        kept: entries of each particle.

    Returns:
        Bits; without positions where none are sent.
    """
    positions = contract.groups * bound_bits(contract.dim, kept) if contract.chooser.sends_positions else 0.0
    return positions + contract.particles * contract.bits_per_entry * kept


def cost(contract: Contract, kept: int) -> Plan:
    """What `kept` entries cost at the most, with the best coder for the worst pattern.

    Args:
        contract: of the upload.
        kept: entries of each particle.

    Returns:
        The bits; where the contract `searches`, only where the search begins.
    """
    return Plan(
        groups=contract.groups,
        kept=kept,
        position_bits=contract.position_bits(kept),
        entry_bits=contract.entry_bits(kept),
        overhead_bits=8 * contract.overhead_bytes,
        bound_bits=letter_bits(contract, kept),
    )


@lru_cache(maxsize=256)
def plan(contract: Contract) -> Plan:
    """The largest plan within the budget.

    With adaptive entries or informed positions it is where a search begins, no promise: a frame keeps more as a
    rule, and less, down to nothing, where an update is hard to code within a very small budget.

    Raises:
        UserError: the parts do not fit each other, or the budget is too small for one entry of each particle.

    >>> plan(Contract(dim=79510, particles=10, groups=1, bits_per_entry=5, budget_bits=79510)).kept
    1386
    """
    contract.check()
    smallest = cost(contract, 1).bits
    if smallest > contract.budget_bits:
        raise UserError(
            f"The 'uplink.budget' must be at least {smallest} bits for one entry of {contract.particles} particles "
            f"in {contract.groups} groups at {contract.bits_per_entry} bits. Got {contract.budget_bits} bits instead."
        )
    if cost(contract, contract.dim).bits <= contract.budget_bits:
        return cost(contract, contract.dim)
    # The cost rises up to at least 4/5 of the entries, and comes down only to that of all entries, which is too much.
    low, high = 1, contract.dim
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cost(contract, middle).bits <= contract.budget_bits else (low, middle)
    return cost(contract, low)


_UNITS = {"": 1, "b": 1, "bit": 1, "bits": 1, "B": 8, "kB": 8_000, "KB": 8_000, "KiB": 8_192, "MB": 8_000_000}


def parse_budget(text: str | int, dim: int) -> int:
    """Bits: `79510`, a multiple of the dimension `0.5d`, or bytes `63B`, `10kB`.

    Args:
        text: as in a config.
        dim: d.

    Returns:
        Bits.

    Raises:
        UserError: it is none of these.

    >>> parse_budget("0.5d", 1010), parse_budget("10kB", 1010), parse_budget(79510, 1010)
    (505, 80000, 79510)
    """
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+(?:e[0-9]+)?)\s*([A-Za-z]*)\s*", str(text))
    unit = match[2] if match else None
    bits = None
    if match and unit == "d":
        bits = math.floor(float(match[1]) * dim + 1e-9)
    elif match and unit in _UNITS:
        bits = math.floor(float(match[1]) * _UNITS[unit])
    if bits is None or not 1 <= bits <= 1 << 48:
        raise UserError(
            f"The 'uplink.budget' must be bits (79510), a multiple of the dimension (0.5d) or bytes (10kB). "
            f"Got {text!r} instead."
        )
    return bits
