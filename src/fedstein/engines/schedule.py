"""Schedulers: which agents visit in a round. A pure function of the round, so that a run can resume anywhere."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field

from fedstein.errors import UserError
from fedstein.streams import stream

__all__ = ["Schedule"]


class Schedule(BaseModel):
    """Who visits, and how much of each difference is applied when several do."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    order: Literal["round-robin", "random"] = Field("round-robin", description="in turn, or drawn without repetition")
    agents_per_round: int = Field(1, ge=1, description="how many visit in one round, from the same particles")
    weights: Literal["equal", "examples"] = Field(
        "equal", description="of their differences: 1/m each, or in proportion to their examples"
    )

    def pick(self, round: int, agents: int, seed: int) -> list[int]:
        """The agents of a round, counted from 0.

        >>> Schedule(agents_per_round=2).pick(2, 5, seed=0)
        [4, 0]
        """
        count = self.agents_per_round
        if count > agents:
            raise UserError(
                f"The 'schedule.agents_per_round' must be at most the {agents} agents. Got {count} instead."
            )
        if self.order == "round-robin":
            return [(round * count + i) % agents for i in range(count)]
        return torch.randperm(agents, generator=stream(seed, "schedule", round))[:count].tolist()

    def shares(self, sizes: list[int]) -> list[float]:
        """The weight of each picked agent's difference; they sum to 1."""
        if self.weights == "equal":
            return [1.0 / len(sizes)] * len(sizes)
        return [size / sum(sizes) for size in sizes]
