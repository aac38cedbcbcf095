"""The local engine: every agent in this process, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from fedstein.engines.schedule import Schedule
from fedstein.errors import DivergedError, PayloadError
from fedstein.methods import Memory, Method, Visit
from fedstein.problem import Problem
from fedstein.streams import stream
from fedstein.uplink import Link, Uplink, Upload, free, receive, send

__all__ = ["State", "rounds", "start"]

RESIDUAL = "residual"  # the agent's error-feedback memory, beside what its method keeps


@dataclass(frozen=True)
class State:
    """All there is to know after a round: enough to go on from."""

    round: int  # rounds done
    particles: Tensor  # (N_p, d)
    memories: dict[int, Memory] = field(default_factory=dict)  # what each agent keeps, by agent
    uploads: tuple[Upload, ...] = ()  # the bills of the last round
    frames: tuple[bytes, ...] = ()  # and its frames, as they arrived


def start(problem: Problem, method: Method, seed: int) -> State:
    """The state before the first round."""
    return State(0, method.start(problem.model, problem.prior, problem.init, stream(seed, "particles")))


def rounds(
    problem: Problem,
    method: Method,
    schedule: Schedule,
    seed: int,
    state: State,
    uplink: Uplink | None = None,
    link: Link = bytes,
) -> Iterator[State]:
    """Go on from `state`, round after round, without end.

    Args:
        problem: model, data, prior.
        method: what a visit is.
        schedule: who visits.
        seed: of every random draw.
        state: where to go on from.
        uplink: the bit budget and its terms; plain float32 differences if None.
        link: what happens to a frame on its way.

    Raises:
        DivergedError: a visit made particles that are not finite. The state before it was yielded already.
    """
    method.check(problem.prior)
    agents = [problem.pooled()] if method.central else problem.agents
    first = start(problem, method, seed).particles  # known to both ends from the seed
    particles, memories = state.particles, dict(state.memories)
    round = state.round
    while True:
        picked = schedule.pick(round, len(agents), seed)
        shares = schedule.shares([len(agents[agent]) for agent in picked])
        total = torch.zeros_like(particles)
        uploads: list[Upload] = []
        frames: list[bytes] = []
        for agent, share in zip(picked, shares, strict=True):
            memory = dict(memories.get(agent, {}))
            residual = memory.pop(RESIDUAL, None)
            visit = Visit(
                model=problem.model,
                data=agents[agent],
                prior=problem.prior,
                particles=particles,
                memory=memory,
                round=round,
                agents=len(problem.agents),
                shares=tuple(shares),
                stream=partial(stream, seed, round=round, agent=agent),
            )
            wish = method.visit(visit) - particles
            if not torch.isfinite(wish.sum()):
                raise DivergedError(
                    f"The particles are no longer finite: round {round + 1}, agent {agent}, "
                    f"method.step = '{method.step}', method.step_size = {method.step_size:g}. "
                    "Try a smaller method.step_size. The last good state is kept."
                )
            if uplink is None:
                arrived, bill = wish, free(agent, wish)
            else:
                wish = wish if residual is None else wish + residual
                known = uplink.known(particles, first)
                frame, _, bill = send(agent, wish, uplink.contract, _rounding(visit), known)
                frame = link(frame)
                frames.append(frame)
                try:
                    arrived = receive(frame, uplink.contract, known)
                except PayloadError:
                    arrived, bill = torch.zeros_like(wish), replace(bill, captured=0.0, refused=True)
            uploads.append(bill)
            applied = arrived * share
            total += applied
            # A refused agent is told so: it keeps its memory as it was, and with feedback all of its wish.
            memories[agent] = memory if bill.refused else method.settle(visit, applied)
            if uplink is not None and uplink.feedback:
                memories[agent] = memories[agent] | {RESIDUAL: wish - arrived}
        particles = particles + total
        round += 1
        yield State(round, particles, dict(memories), tuple(uploads), tuple(frames))


def _rounding(visit: Visit) -> np.random.Generator:
    """The numpy generator of the quantiser's rounding."""
    return np.random.default_rng(int(torch.randint(2**62, (1,), generator=visit.stream("quantiser"))))
