"""The local engine: every agent in this process, one after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence

from fedstein.engines.agent import Waiting, answer, settle
from fedstein.engines.messages import Answer, Applied, Order
from fedstein.methods import Memory
from fedstein.problem import Problem

__all__ = ["Local"]


class Local:
    """Every agent in this process. A visit is made when its answer is asked for, so that one is in memory at a time."""

    agents_remember = False

    def __init__(self, problem: Problem, central: bool = False) -> None:
        self._problem = problem
        self._agents = [problem.pooled()] if central else problem.agents
        self._orders: deque[Order] = deque()
        self._waiting: dict[int, Waiting] = {}
        self._kept: dict[int, Memory] = {}

    def roster(self) -> Collection[int]:
        """All of them."""
        return range(len(self._agents))

    def send(self, orders: Sequence[Order]) -> None:
        """Keep them for `collect`."""
        self._orders.extend(orders)

    def collect(self, seconds: float) -> Sequence[Answer]:
        """The next visit."""
        if not self._orders:
            return ()
        order = self._orders.popleft()
        found, self._waiting[order.agent] = answer(
            order, self._problem.model, self._problem.prior, self._agents[order.agent]
        )
        return (found,)

    def settle(self, agent: int, applied: Applied | None) -> None:
        """At once."""
        self._kept[agent] = settle(self._waiting.pop(agent), applied)

    def kept(self) -> Mapping[int, Memory]:
        """Of all agents of the round."""
        kept, self._kept = self._kept, {}
        return kept
