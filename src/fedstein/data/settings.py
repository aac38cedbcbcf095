"""The section `data` of a config: where the examples come from, and who holds them."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from fedstein.checked import Checked
from fedstein.data.partition import PARTITIONERS
from fedstein.data.sources import SOURCES

__all__ = ["DataConfig"]


class DataConfig(Checked):
    """Where the examples come from and who holds them."""

    name: Annotated[str, AfterValidator(SOURCES.check)] = Field(
        "fashion-mnist", description="source; 'fedstein data list' describes them"
    )
    path: str | None = Field(None, description="folder of Fashion-MNIST, your .npz file, or your folder of them")
    agents: int = Field(10, ge=1, le=10_000_000, description="K, how many agents")
    partition: Annotated[str, AfterValidator(PARTITIONERS.check)] = Field("iid", description="who holds what")
    examples: int | None = Field(None, ge=1, description="examples of each agent; all, in equal parts, if left out")
    concentration: float = Field(0.5, gt=0, allow_inf_nan=False, description="of partition dirichlet; small = unequal")
    indices: str | None = Field(None, description="JSON file with one list of indices an agent (partition indices)")
    validation: int = Field(0, ge=0, description="training examples held out from all agents, to choose settings on")
    seed: int | None = Field(None, ge=0, description="of who holds what; the run's seed if left out")

    @property
    def synthetic(self) -> bool:
        """Whether the posterior is known, and there is nothing to classify."""
        return self.name.startswith("synthetic")
