"""The contract: what both ends agree on before anything is sent. Parts are named, so that a contract is hashable."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from fedstein.coding.entries import ENTRY_CODERS, EntryCoder
from fedstein.coding.positions import POSITION_CODERS, bound_bits
from fedstein.coding.quantisers import QUANTISERS, Quantiser
from fedstein.coding.scale import SCALE_BYTES
from fedstein.coding.sparsifiers import SPARSIFIERS, Sparsifier
from fedstein.errors import UserError, nearest

__all__ = ["AUTO", "CHECK_BYTES", "HEADER_BYTES", "Contract"]

HEADER_BYTES = 1
CHECK_BYTES = 3

AUTO = ("range", "golomb", "enumerative")  # what "auto" chooses from, the quickest first
ENUMERATIVE_KEPT = 64  # beyond these two the exact coder is slower than it is worth
_ENUMERATIVE_BITS = 600


@dataclass(frozen=True)
class Contract:
    """What both ends know before anything is sent, and so never send."""

    dim: int
    particles: int
    groups: int
    bits_per_entry: int
    budget_bits: int
    a_max: float | None = None  # None: the largest magnitude, sent with the frame
    positions: str = "auto"  # or a name in POSITION_CODERS
    entries: str = "fixed"  # a name in ENTRY_CODERS
    common: bool = False  # a frame may give all particles of a group the same values
    sparsifier: str = "top-k"  # a name in SPARSIFIERS
    quantiser: str = "stochastic"  # a name in QUANTISERS

    @property
    def entry_coder(self) -> EntryCoder:
        """The part of that name."""
        return ENTRY_CODERS[self.entries]

    @property
    def chooser(self) -> Sparsifier:
        """The sparsifier of that name."""
        return SPARSIFIERS[self.sparsifier]

    @property
    def rounder(self) -> Quantiser:
        """The quantiser of that name."""
        return QUANTISERS[self.quantiser]

    @property
    def overhead_bytes(self) -> int:
        """Header, check, and the scale if it is sent."""
        return HEADER_BYTES + CHECK_BYTES + (SCALE_BYTES if self.a_max is None else 0)

    @property
    def allowed(self) -> tuple[str, ...]:
        """The position coders that a frame may name, in the order in which it counts them."""
        if self.positions != "auto":
            return (self.positions,)
        return tuple(name for name in AUTO if POSITION_CODERS[name].streams) if self.entry_coder.streams else AUTO

    def coders(self, kept: int) -> list[str]:
        """The position coders that are worth trying for so many kept entries, the quickest first."""
        return [name for name in self.allowed if self.positions != "auto" or _worth(name, self, kept)]

    def planned_coders(self, kept: int) -> list[str]:
        """The position coders that a plan counts on: where a search follows, those of "auto" to begin with."""
        if self.positions != "auto" and is_certain(self.positions):
            return [self.positions]
        return [name for name in AUTO if _worth(name, self, kept)]

    @property
    def searches(self) -> bool:
        """Whether the length of a frame is known only after coding."""
        unsure = self.chooser.sends_positions and not all(is_certain(name) for name in self.allowed)
        return unsure or not self.entry_coder.certain

    def position_bits(self, kept: int) -> int:
        """What the positions of `kept` entries are planned with, in whole bytes: the best coder, its worst pattern."""
        if not 0 < kept < self.dim or not self.chooser.sends_positions:
            return 0
        coders = [POSITION_CODERS[name] for name in self.planned_coders(kept)]
        return 8 * math.ceil(min(coder.most_bits(self.groups, kept, self.dim) for coder in coders) / 8)

    def entry_bits(self, kept: int) -> int:
        """What `kept` entries of each particle are planned with, in whole bytes."""
        return 8 * math.ceil(self.entry_coder.planned_bits(self.particles, kept, self.bits_per_entry) / 8)

    @property
    def needs_first(self) -> bool:
        """Whether some part needs `Shared.first`."""
        parts: list[object] = [self.chooser]
        if self.chooser.sends_positions:
            parts += [POSITION_CODERS[name] for name in self.allowed]
        return any(getattr(part, "needs_first", False) for part in parts)

    @property
    def can_be_common(self) -> bool:
        """Whether a frame with common values is of this contract, and has room for one entry."""
        if not self.common or self.particles == self.groups:
            return False
        rows = self.per_group()
        return rows.position_bits(1) + rows.entry_bits(1) + 8 * rows.overhead_bytes <= self.budget_bits

    def per_group(self) -> Contract:
        """The terms of a frame with common values: one particle stands for its group."""
        positions = AUTO[0] if self.positions == "auto" else self.positions
        return replace(self, particles=self.groups, positions=positions, common=False)

    def check(self) -> None:
        """See that there are such parts, and that they fit each other.

        Raises:
            UserError: a name is unknown, or two parts cannot be used together.
        """
        _exists("sparsifier", self.sparsifier, SPARSIFIERS)
        _exists("quantiser", self.quantiser, QUANTISERS)
        _exists("entries", self.entries, ENTRY_CODERS)
        _exists("positions", self.positions, ["auto", *POSITION_CODERS])
        if not self.chooser.sends_positions or self.positions == "auto" or POSITION_CODERS[self.positions].streams:
            return
        others = ["auto", *(name for name in POSITION_CODERS if POSITION_CODERS[name].streams)]
        for unfit, what in ((self.entry_coder.streams, f"{self.entries} entries"), (self.common, "common values")):
            if unfit:
                raise UserError(
                    f"The 'uplink.positions' must be {', '.join(others[:-1])} or {others[-1]} with {what}. "
                    f"Got '{self.positions}'."
                )


def is_certain(name: str) -> bool:
    """Whether a plan can count on the `most_bits` of a position coder."""
    return bool(getattr(POSITION_CODERS[name], "certain", True))


def _worth(name: str, contract: Contract, kept: int) -> bool:
    """Whether "auto" tries a coder: all of them, except that the exact one is for tiny cases."""
    if name != "enumerative":
        return True
    return kept <= ENUMERATIVE_KEPT and contract.groups * bound_bits(contract.dim, kept) <= _ENUMERATIVE_BITS


def _exists(key: str, name: str, known: Iterable[str]) -> None:
    names = list(known)
    if name not in names:
        raise UserError(
            f"The 'uplink.{key}' must be one of {', '.join(names)}. Got '{name}' instead. {nearest(name, names)}"
        )
