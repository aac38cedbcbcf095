"""The section `uplink` of a config, and the link that it means for a run."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field

from fedstein.checked import Checked
from fedstein.coding import (
    ENTRY_CODERS,
    POSITION_CODERS,
    QUANTISERS,
    SPARSIFIERS,
    Contract,
    Link,
    groups_of,
    parse_budget,
    plan,
)
from fedstein.errors import UserError
from fedstein.methods import Method

__all__ = ["Uplink"]

_LARGEST = 1 << 48  # bits of a budget, and parameters of a model


def _position_coder(name: str) -> str:
    """One of the coders, or `auto`, which is none of them."""
    return POSITION_CODERS.check(name, "auto")


def _readable(budget: Any) -> Any:
    """A budget that means something for some dimension; whether it is enough for a run's own is told by `link`."""
    if budget is None:
        return None
    for dim in (1, _LARGEST):  # a large multiple fits a small dimension, a small one a large dimension
        with suppress(UserError, OverflowError):  # 1e999d is no number
            parse_budget(budget, dim)
            if isinstance(budget, str | int):
                return budget
    raise ValueError(
        f"must be bits (79510), a multiple of the dimension (0.5d) or bytes (10kB). Got {budget!r} instead."
    )


class Uplink(Checked):
    """What an upload may cost, and how it is made: ``Uplink("1.0d", feedback=True)``."""

    positional: ClassVar[tuple[str, ...]] = ("budget",)

    budget: Annotated[str | int | None, BeforeValidator(_readable)] = Field(
        None, description="bits (79510), multiples of the dimension (0.5d) or bytes (10kB); no limit if left out"
    )
    sharing: float = Field(1.0, gt=0, le=1, description="fraction of the particles that share one sparsity pattern")
    bits_per_entry: int = Field(5, ge=2, le=16, description="N_b: one sign bit, the rest magnitude")
    feedback: bool = Field(False, description="agents keep what they could not send and add it next time")
    sparsifier: Annotated[str, AfterValidator(SPARSIFIERS.check)] = Field(
        "top-k", description="which entries of an update are sent"
    )
    quantiser: Annotated[str, AfterValidator(QUANTISERS.check)] = Field(
        "stochastic", description="how an entry becomes N_b bits"
    )
    positions: Annotated[str, AfterValidator(_position_coder)] = Field(
        "auto",
        description="position coder: golomb, range, enumerative, informed (uses how far entries have moved); "
        "auto: the shortest",
    )
    entries: Annotated[str, AfterValidator(ENTRY_CODERS.check)] = Field(
        "fixed", description="fixed: N_b bits an entry; adaptive: entropy coding, and as many entries as fit"
    )
    common: bool = Field(
        False,
        description="a frame may give all particles of a group the same values, where that carries more of the update",
    )
    a_max: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="end of the quantiser's range; the largest magnitude if left out"
    )
    record_frames: bool = Field(False, description="keep every frame in the run folder")

    if TYPE_CHECKING:  # for who checks types: the budget may stand first, without its name

        def __init__(
            self,
            budget: str | int | None = None,
            *,
            sharing: float = 1.0,
            bits_per_entry: int = 5,
            feedback: bool = False,
            sparsifier: str = "top-k",
            quantiser: str = "stochastic",
            positions: str = "auto",
            entries: str = "fixed",
            common: bool = False,
            a_max: float | None = None,
            record_frames: bool = False,
        ) -> None: ...

    def link(self, method: Method, dim: int) -> Link | None:
        """The link of a run with this method and so many parameters; None without a budget.

        Raises:
            UserError: the settings do not fit each other, or the budget is too small for one entry.
        """
        if self.budget is None:
            return None
        if method.central:
            raise UserError(f"The 'uplink.budget' has no meaning with method '{method.name}': nothing is uploaded.")
        contract = Contract(
            dim=dim,
            particles=method.particles,
            groups=groups_of(self.sharing, method.particles),
            bits_per_entry=self.bits_per_entry,
            budget_bits=parse_budget(self.budget, dim),
            a_max=self.a_max,
            positions=self.positions,
            entries=self.entries,
            common=self.common,
            sparsifier=self.sparsifier,
            quantiser=self.quantiser,
        )
        contract.check()
        plan(contract)  # refuses a budget that is too small before any work is done
        return Link(contract, self.feedback)
