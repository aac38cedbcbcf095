"""Does an engine of one's own carry what it is given? The same bits as in one process, whatever carries them."""

from __future__ import annotations

from itertools import islice

import torch

from fedstein.data import Holdings
from fedstein.engines import Crew, EngineMaker, Local
from fedstein.methods import DSVGD, FedAvg, Method
from fedstein.models import Task
from fedstein.protocol import Engine, Schedule, State, Told, Uplink
from fedstein.protocol.patience import Patience
from fedstein.protocol.server import rounds, start
from fedstein.testing.methods import classifier_problem
from fedstein.testing.parts import that, working

__all__ = ["check_engine"]

_CASES: tuple[tuple[str, Method, Uplink, Schedule], ...] = (
    ("without a budget", FedAvg(particles=2, local_steps=2), Uplink(), Schedule()),
    (
        "with factors that are remembered, feedback and several agents a round",
        DSVGD(particles=3, factor="linear", local_steps=2),
        Uplink("4.0d", feedback=True),
        Schedule(agents_per_round=2),
    ),
    (
        "with positions that need the first particles",
        DSVGD(particles=3, local_steps=2),
        Uplink("4.0d", positions="informed", entries="adaptive"),
        Schedule(order="random"),
    ),
)
_ROUNDS = 5


def check_engine(maker: EngineMaker, address: str = "", workers: int | None = None) -> None:
    """An engine decides nothing: particles, bills and memories are those of agents in this process, bit for bit.

    Args:
        maker: as the seam has it, (crew, address, workers) -> a context with the engine.
        address: what comes after the engine's name in ``--engine NAME:ADDRESS``.
        workers: visits side by side.

    Raises:
        AssertionError: with a sentence that says what is wrong.
    """
    task, holdings = _problem()
    crew = Crew(task, holdings, central=False, threads=torch.get_num_threads(), build=_problem)
    with working("Making the engine"):
        context = maker(crew, address, workers)
    with context as engine:
        that(set(engine.roster()) == set(range(len(holdings.agents))), "The roster must name every agent.")
        for words, method, uplink, schedule in _CASES:
            terms = (task, holdings, method, uplink, schedule)
            here = _run(Local(task, holdings), *terms)
            with working(f"A run {words}"):
                there = _run(engine, *terms)
            _compare(here, there, words, engine.agents_remember)


def _problem() -> tuple[Task, Holdings]:
    task, agents = classifier_problem()
    return task, Holdings(agents)


def _run(
    engine: Engine, task: Task, holdings: Holdings, method: Method, uplink: Uplink, schedule: Schedule
) -> list[tuple[State, Told]]:
    link = uplink.link(method, task.model.dim)
    first, patience = start(task, method, 0), Patience(60.0, 3, 0.1)
    more = rounds(task, holdings, method, schedule, 0, first, engine, link=link, patience=patience)
    return list(islice(more, _ROUNDS))


def _compare(here: list[tuple[State, Told]], there: list[tuple[State, Told]], words: str, remember: bool) -> None:
    for (one, told), (other, said) in zip(here, there, strict=True):
        where = f"{words}, after round {one.round},"
        that(torch.equal(one.particles, other.particles), f"A run {where} has other particles than one process.")
        that(told.uploads == said.uploads, f"A run {where} has other bills than one process.")
        that(told.frames == said.frames, f"A run {where} has other frames than one process.")
        if remember:
            that(not other.memories, f"A run {where} gives the server what its agents keep for themselves.")
            continue
        that(one.memories.keys() == other.memories.keys(), f"A run {where} remembers other agents.")
        for agent, memory in one.memories.items():
            same = memory.keys() == other.memories[agent].keys() and all(
                torch.equal(value, other.memories[agent][name]) for name, value in memory.items()
            )
            that(same, f"A run {where} has another memory of agent {agent}.")
