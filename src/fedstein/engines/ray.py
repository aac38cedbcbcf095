"""The Ray engine: visits on the machines of one owner, by actors that play any agent.

The server's process keeps what agents remember, in the run folder when it does not fit into memory, and sends it with
each order. So an actor that dies takes nothing with it, and thousands of agents need no more actors than there are
cores. Ray moves Python objects between its own processes: it is for one owner's machines, not between parties.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedstein.data import Holdings
from fedstein.errors import DivergedError, UserError
from fedstein.methods import Memory
from fedstein.models import Task
from fedstein.protocol.agent import Waiting, answer, settle
from fedstein.protocol.messages import Answer, Failure, Order, Outcome
from fedstein.streams import stream

__all__ = ["Rays", "on_ray"]

Arrays = dict[str, NDArray[np.float32]]
Build = Callable[[], tuple[Task, Holdings]]


@contextmanager
def on_ray(address: str, cpus: int) -> Iterator[Any]:
    """The module `ray`, connected to the cluster at `address`: `auto`, HOST:PORT, or `local` to start one here."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing of ours speaks to the outside
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # or it warns of its next version
    try:
        import ray
    except ImportError as error:
        raise UserError("The '--ray' needs an extra: pip install 'fedstein[ray]'.") from error
    if address not in ("local", "auto"):
        _refuse_silence(address)
    options: dict[str, Any] = {"num_cpus": cpus, "include_dashboard": False} if address == "local" else {}
    try:
        ray.init(None if address == "local" else address, log_to_driver=False, configure_logging=False, **options)
    except (ConnectionError, ValueError) as error:
        raise UserError(
            f"The '--ray' must be the address of a cluster, auto or local. Got {address!r}: {error}."
        ) from None
    try:
        yield ray
    finally:
        ray.shutdown()


def _refuse_silence(address: str) -> None:
    """Ray itself would wait for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except (OSError, ValueError, OverflowError) as error:
        why = str(error) if isinstance(error, OSError) else "that is no HOST:PORT"
        raise UserError(f"The '--ray' must be auto, local or HOST:PORT of a cluster. Got {address!r}: {why}.") from None


class Player:
    """An actor: plays whichever agent it is asked to. `build` makes task and holdings on the actor's own machine."""

    def __init__(self, build: Build, threads: int) -> None:
        torch.set_num_threads(threads)
        self._task, self._holdings = build()
        self._waiting: dict[int, Waiting] = {}
        self._first: dict[tuple[int, int], Tensor] = {}

    def visit(self, order: Order, particles: NDArray[np.float32], memory: Arrays) -> Answer:
        """Go on a visit for an agent."""
        terms = order.terms
        if terms.link is not None and terms.link.needs_first:
            key = (terms.method.particles, terms.seed)
            if key not in self._first:
                self._first[key] = terms.method.start(self._task, stream(terms.seed, "particles"))
            terms = replace(terms, first=self._first[key])
        order = replace(order, terms=terms, particles=torch.from_numpy(particles.copy()), memory=_tensors(memory))
        data = self._holdings.pooled() if terms.method.central else self._holdings.agents[order.agent]
        reply, self._waiting[order.agent] = answer(order, self._task, data)
        return reply

    def settle(self, agent: int, outcome: Outcome | None) -> Arrays:
        """What an agent remembers now."""
        return _arrays(settle(self._waiting.pop(agent), outcome))


class Rays:
    """Actors on a Ray cluster.

    Args:
        ray: as `on_ray` gives it.
        build: makes what is to be learnt and who holds what, on any machine of the cluster.
        agents: how many agents there are.
        actors: how many visits side by side.
        threads: of each.
    """

    agents_remember = False

    def __init__(self, ray: Any, build: Build, agents: int, actors: int, threads: int = 1) -> None:
        self._ray, self._agents = ray, agents
        # An actor that dies is started again and asked again by Ray: that takes longer than a failure is waited for.
        kind = ray.remote(num_cpus=threads, max_restarts=-1, max_task_retries=-1)(Player)
        self._actors = [kind.remote(build, threads) for _ in range(actors)]
        self._idle = deque(self._actors)
        self._orders: deque[Order] = deque()
        self._running: dict[Any, tuple[Order, Any]] = {}  # future: what for, and who
        self._newest: dict[int, int] = {}  # agent: the round that it was last asked for
        self._visited: dict[int, tuple[Order, Any]] = {}  # agent: whose actor has to be told
        self._settling: dict[int, tuple[Any, Order, Outcome | None]] = {}
        self._shared: tuple[Tensor | None, Any] = (None, None)  # the round's particles, and where Ray has them

    def roster(self) -> Collection[int]:
        """All of them: whoever has an actor can play any agent."""
        return range(self._agents)

    def send(self, orders: Sequence[Order]) -> None:
        """To idle actors; the rest waits."""
        self._orders.extend(orders)
        self._newest |= {order.agent: order.round for order in orders}
        while self._orders and self._idle:
            order, actor = self._orders.popleft(), self._idle.popleft()
            self._running[self._visit(order, actor)] = (order, actor)

    def collect(self, seconds: float) -> Sequence[Answer | Failure]:
        """Whichever is done first."""
        done, _ = self._ray.wait(list(self._running), timeout=seconds) if self._running else ([], [])
        came: list[Answer | Failure] = []
        for future in done:
            order, actor = self._running.pop(future)
            self._idle.append(actor)
            try:
                came.append(self._ray.get(future))
                if order.round == self._newest[order.agent]:
                    self._visited[order.agent] = (order, actor)
            except DivergedError as error:
                came.append(Failure(order.agent, order.round, str(error), diverged=True))
            except self._ray.exceptions.RayTaskError:  # our own code has raised: the same would come again
                raise
            except self._ray.exceptions.RayError as error:  # the machine or its worker is gone: it is started again
                came.append(Failure(order.agent, order.round, str(error).strip()[-500:]))
        self.send(())
        return came

    def settle(self, agent: int, outcome: Outcome | None) -> None:
        """Tell the actor that made the visit; do not wait."""
        order, actor = self._visited.pop(agent)
        self._settling[agent] = (actor.settle.remote(agent, outcome), order, outcome)

    def remembered(self) -> Mapping[int, Memory]:
        """What they remember now. Where an actor is gone, another one makes the same visit again."""
        kept = {}
        for agent, (future, order, outcome) in self._settling.items():
            for last in (False, False, True):
                try:
                    kept[agent] = _tensors(self._ray.get(future))
                    break
                except (self._ray.exceptions.RayError, KeyError):
                    if last:
                        raise
                    actor = self._actors[agent % len(self._actors)]
                    self._visit(order, actor)
                    future = actor.settle.remote(agent, outcome)
        self._settling = {}
        return kept

    def _visit(self, order: Order, actor: Any) -> Any:
        if self._shared[0] is not order.particles:
            self._shared = (order.particles, self._ray.put(order.particles.numpy()))
        # Everything large goes as arrays, which Ray does not copy; what both ends know is made anew there.
        slim = replace(order, particles=torch.empty(0), memory={}, terms=replace(order.terms, first=None))
        return actor.visit.remote(slim, self._shared[1], _arrays(order.memory))


def _arrays(memory: Mapping[str, Tensor]) -> Arrays:
    return {name: value.numpy() for name, value in memory.items()}


def _tensors(arrays: Arrays) -> Memory:
    return {name: torch.from_numpy(value.copy()) for name, value in arrays.items()}
