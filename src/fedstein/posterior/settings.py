"""The section `posterior` of a config: what predicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Self

from pydantic import AfterValidator, ConfigDict, Field

from fedstein.checked import Checked
from fedstein.posterior.members import POSTERIORS

__all__ = ["Posterior"]

MEMBERS = 20  # networks that a window which nobody asked for stands for, at most


class Posterior(Checked):
    """What predicts: made of the way of the chains."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)
    positional: ClassVar[tuple[str, ...]] = ("from_",)

    from_: Annotated[str, AfterValidator(POSTERIORS.check)] = Field(
        "window",
        alias="from",
        description="the mixture of the last turn means (window), one network at their mean (mean), draws of a "
        "Gaussian fitted to them (gaussian), or the last particles (last)",
    )
    window: int | None = Field(
        None, ge=1, le=1000, description="S, turn means that are kept; if left out, 10, and fewer with many particles"
    )
    draws: int = Field(10, ge=1, le=1000, description="members that are drawn of each particle's Gaussian")
    scale: float | None = Field(
        None,
        ge=0,
        le=1e3,
        allow_inf_nan=False,
        description="what deviations from each chain's middle are multiplied with, of the window and of that Gaussian; "
        "if left out, 2 with one chain, 1 with several",
    )

    if TYPE_CHECKING:  # for who checks types: `from` may stand first, without its name

        def __init__(
            self, from_: str = "window", *, window: int | None = None, draws: int = 10, scale: float | None = None
        ) -> None: ...

    def length(self, chains: int) -> int:
        """How many turn means are kept: none where only the last particles count."""
        if self.from_ == "last":
            return 0
        return min(10, -(-MEMBERS // chains)) if self.window is None else self.window

    def whole(self, chains: int) -> Self:
        """With the numbers that were left out, so that they stay what they are."""
        if self.from_ == "last":
            return self
        return self.model_copy(update={"window": self.length(chains), "scale": self.widening(chains)})

    def short(self, chains: int) -> Self:
        """Without the numbers that it would have anyway."""
        plain = self.model_copy(update={"window": None, "scale": None})
        return plain if plain.whole(chains) == self else self

    def widening(self, chains: int) -> float:
        """What deviations are multiplied with. Turn means are too near to each other; several chains are not."""
        return (2.0 if chains == 1 else 1.0) if self.scale is None else self.scale
