"""Schedulers: which agents visit in a round. A pure function of the round, so that a run can resume anywhere."""

from __future__ import annotations

from typing import Annotated, Literal, Protocol

import torch
from pydantic import AfterValidator, Field

from fedstein.checked import Checked
from fedstein.errors import UserError
from fedstein.registry import Registry
from fedstein.streams import stream

__all__ = ["SCHEDULERS", "Schedule", "Scheduler"]


class Scheduler(Protocol):
    """Says who visits in a round."""

    def __call__(self, round: int, agents: int, count: int, seed: int) -> list[int]:
        """The agents of a round.

        Args:
            round: from 0. The same round always gets the same agents: nothing may be remembered from call to call.
            agents: how many there are to choose from.
            count: how many to choose, at most `agents`.
            seed: of the run; random draws come from ``streams.stream(seed, "schedule", round)``.

        Returns:
            `count` different numbers below `agents`, in the order in which their differences are added.
        """
        ...


def round_robin(round: int, agents: int, count: int, seed: int) -> list[int]:
    """In turn."""
    return [(round * count + i) % agents for i in range(count)]


def random(round: int, agents: int, count: int, seed: int) -> list[int]:
    """Drawn without repetition."""
    return torch.randperm(agents, generator=stream(seed, "schedule", round))[:count].tolist()


SCHEDULERS: Registry[Scheduler] = Registry(
    "scheduler", "who visits in a round (schedule.order)", {"round-robin": round_robin, "random": random}
)


class Schedule(Checked):
    """Who visits, and how much of each difference is applied when several do."""

    order: Annotated[str, AfterValidator(SCHEDULERS.check)] = Field(
        "round-robin", description="in turn, or drawn without repetition"
    )
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
        picked = SCHEDULERS[self.order](round, agents, count, seed)
        if len(set(picked)) != count or not all(0 <= agent < agents for agent in picked):
            raise UserError(
                f"The scheduler '{self.order}' must pick {count} different agents in 0..{agents - 1}. Got {picked}."
            )
        return picked

    def shares(self, sizes: list[int]) -> list[float]:
        """The weight of each picked agent's difference; they sum to 1."""
        if self.weights == "equal":
            return [1.0 / len(sizes)] * len(sizes)
        return [size / sum(sizes) for size in sizes]
