"""Engines by name: who carries the messages of a run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from fedstein.data import Holdings
from fedstein.engines.local import Local
from fedstein.errors import UserError
from fedstein.models import Task
from fedstein.protocol.messages import Engine
from fedstein.registry import Registry

__all__ = ["ENGINES", "Crew", "EngineMaker", "check_engine", "cores", "open_engine"]


@dataclass(frozen=True)
class Crew:
    """All that an engine needs to know of the agents that it is to reach.

    Args:
        task: what is to be learnt.
        holdings: who holds what.
        central: the method pools all examples as agent 0's.
        threads: of each visit; their number decides the last bits, so every engine keeps to it.
        build: makes task and holdings again, in another process or on another machine.
    """

    task: Task
    holdings: Holdings
    central: bool
    threads: int
    build: Callable[[], tuple[Task, Holdings]]


EngineMaker = Callable[[Crew, str, int | None], AbstractContextManager[Engine]]
"""(crew, address or "", visits side by side or None) -> the engine, for as long as the context lasts."""


@contextmanager
def _local(crew: Crew, address: str, workers: int | None) -> Iterator[Engine]:
    yield Local(crew.task, crew.holdings, crew.central)


@contextmanager
def _ray(crew: Crew, address: str, workers: int | None) -> Iterator[Engine]:
    from fedstein.engines.ray import Rays, on_ray

    actors = workers or max(1, cores() // crew.threads)
    with on_ray(address or "local", actors * crew.threads) as cluster:
        yield Rays(cluster, crew.build, len(crew.holdings.agents), actors, crew.threads)


ENGINES: Registry[EngineMaker] = Registry(
    "engine", "what carries the messages between server and agents (--engine)", {"local": _local, "ray": _ray}
)


def open_engine(name: str, crew: Crew, workers: int | None = None) -> AbstractContextManager[Engine]:
    """The engine called `name`, or `name:address`.

    Args:
        name: for instance ``local``, ``ray:auto``, ``ray:HOST:PORT``.
        crew: the agents.
        workers: visits side by side, where the engine can.
    """
    check_engine(name, workers)
    kind, _, address = name.partition(":")
    return ENGINES[kind](crew, address, workers)


def check_engine(name: str, workers: int | None = None) -> None:
    """Refuse what `open_engine` would refuse, before anything is written down that needs it.

    Args:
        name: for instance ``local``, ``ray:auto``, ``ray:HOST:PORT``.
        workers: visits side by side, where the engine can.
    """
    kind, _, address = name.partition(":")
    if kind not in ENGINES:
        raise UserError(f"The '--engine' {ENGINES.check_words(kind)}")
    if kind == "local" and (address or workers is not None):
        raise UserError("The '--workers' is for '--ray': in one process one agent visits at a time.")


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))
