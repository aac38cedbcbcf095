r"""The budget: what an upload may cost, and how many entries are guaranteed to fit.

The letter's formula is :math:`R_u = \frac1\alpha \log_2 \binom dk + N_p N_b k`. We bill everything: positions by
a real coder, entries, the scale, the header and the check, in whole bytes.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import lru_cache

from fedstein.errors import UserError
from fedstein.uplink.positions import CODERS, bound_bits

__all__ = ["Contract", "Plan", "letter_bits", "parse_budget", "plan"]

HEADER_BYTES = 1
CHECK_BYTES = 3
SCALE_BYTES = 2
_ENUMERATIVE_BITS = 600  # beyond this the exact coder is slower than it is worth


@dataclass(frozen=True)
class Contract:
    """What both ends know before anything is sent, and so never send."""

    dim: int
    particles: int
    groups: int
    bits_per_entry: int
    budget_bits: int
    a_max: float | None = None  # None: the largest magnitude, sent with the frame
    positions: str = "auto"  # auto, golomb, range, enumerative, informed
    entries: str = "fixed"  # fixed, adaptive
    common: bool = False  # a frame may give all particles of a group the same values

    @property
    def can_be_common(self) -> bool:
        """Whether a frame with common values is of this contract, and has room for one entry."""
        if not self.common or self.particles == self.groups:
            return False
        return cost(self.per_group(), 1).bits <= self.budget_bits

    def per_group(self) -> Contract:
        """The terms of a frame with common values: one particle stands for its group."""
        positions = "range" if self.positions == "auto" else self.positions
        return replace(self, particles=self.groups, positions=positions, common=False)

    @property
    def overhead_bytes(self) -> int:
        """Header, check, and the scale if it is sent."""
        return HEADER_BYTES + CHECK_BYTES + (SCALE_BYTES if self.a_max is None else 0)

    def coders(self, kept: int) -> list[str]:
        """The position coders that may be used for so many kept entries, the quickest first."""
        if self.positions not in ("auto", "informed"):
            return [self.positions]
        tiny = kept <= 64 and self.groups * bound_bits(self.dim, kept) <= _ENUMERATIVE_BITS
        return ["range", "golomb", "enumerative"] if tiny else ["range", "golomb"]


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
    """The letter's R_u, which counts no header and no scale, and positions at the bound."""
    return contract.groups * bound_bits(contract.dim, kept) + contract.particles * contract.bits_per_entry * kept


def cost(contract: Contract, kept: int) -> Plan:
    """What `kept` entries cost at the most, with fixed entries and the best coder for the worst pattern."""
    names = contract.coders(kept)
    positions = min(CODERS[name].most_bits(contract.groups, kept, contract.dim) for name in names) if kept else 0
    entries = contract.particles * contract.bits_per_entry * kept
    return Plan(
        groups=contract.groups,
        kept=kept,
        position_bits=8 * math.ceil(positions / 8) if kept < contract.dim else 0,
        entry_bits=8 * math.ceil(entries / 8),
        overhead_bits=8 * contract.overhead_bytes,
        bound_bits=letter_bits(contract, kept),
    )


@lru_cache(maxsize=256)
def plan(contract: Contract) -> Plan:
    """The largest plan within the budget.

    Raises:
        UserError: the budget is too small for one entry of each particle.

    >>> plan(Contract(dim=79510, particles=10, groups=1, bits_per_entry=5, budget_bits=79510)).kept
    1386
    """
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
