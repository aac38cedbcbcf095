"""The local engine: every agent in this process, one after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence

from fedstein.data import Holdings
from fedstein.methods import Memory
from fedstein.models import Task
from fedstein.protocol.agent import Waiting, answer, settle
from fedstein.protocol.messages import Answer, Order, Outcome

__all__ = ["Local"]


class Local:
    """Every agent in this process. A visit is made when its answer is asked for, so that one is in memory at a time."""

    agents_remember = False

    def __init__(self, task: Task, holdings: Holdings, central: bool = False) -> None:
        self._task = task
        self._agents = [holdings.pooled()] if central else holdings.agents
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
        reply, self._waiting[order.agent] = answer(order, self._task, self._agents[order.agent])
        return (reply,)

    def settle(self, agent: int, outcome: Outcome | None) -> None:
        """At once."""
        self._kept[agent] = settle(self._waiting.pop(agent), outcome)

    def remembered(self) -> Mapping[int, Memory]:
        """Of all agents of the round."""
        kept, self._kept = self._kept, {}
        return kept
