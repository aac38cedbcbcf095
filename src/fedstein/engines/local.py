"""The local engine: every agent in this process, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from fedstein.engines.schedule import Schedule
from fedstein.errors import DivergedError
from fedstein.methods import Memory, Method, Visit
from fedstein.problem import Problem
from fedstein.streams import stream

__all__ = ["State", "rounds", "start"]


@dataclass(frozen=True)
class State:
    """All there is to know after a round: enough to go on from."""

    round: int  # rounds done
    particles: Tensor  # (N_p, d)
    memories: dict[int, Memory] = field(default_factory=dict)  # what each agent keeps, by agent
    visited: tuple[int, ...] = ()  # who visited in the last round


def start(problem: Problem, method: Method, seed: int) -> State:
    """The state before the first round."""
    return State(0, method.start(problem.model, problem.prior, problem.init, stream(seed, "particles")))


def rounds(problem: Problem, method: Method, schedule: Schedule, seed: int, state: State) -> Iterator[State]:
    """Go on from `state`, round after round, without end.

    Raises:
        DivergedError: a visit made particles that are not finite. The state before it was yielded already.
    """
    agents = [problem.pooled()] if method.central else problem.agents
    particles, memories = state.particles, dict(state.memories)
    round = state.round
    while True:
        picked = schedule.pick(round, len(agents), seed)
        shares = schedule.shares([len(agents[agent]) for agent in picked])
        total = torch.zeros_like(particles)
        for agent, share in zip(picked, shares, strict=True):
            visit = Visit(
                model=problem.model,
                data=agents[agent],
                prior=problem.prior,
                particles=particles,
                memory=memories.get(agent, {}),
                round=round,
                agents=len(problem.agents),
                stream=partial(stream, seed, round=round, agent=agent),
            )
            applied = (method.visit(visit) - particles).mul_(share)
            if not torch.isfinite(applied.sum()):
                raise DivergedError(
                    f"The particles are no longer finite: round {round + 1}, agent {agent}, "
                    f"method.step = '{method.step}', method.step_size = {method.step_size:g}. "
                    "Try a smaller method.step_size. The last good state is kept."
                )
            total += applied
            memories[agent] = method.settle(visit, applied)
        particles = particles + total
        round += 1
        yield State(round, particles, dict(memories), tuple(picked))
