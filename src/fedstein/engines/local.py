"""The local engine: every agent in this process, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from fedstein.engines.memories import Memories
from fedstein.engines.schedule import Schedule
from fedstein.errors import DivergedError, PayloadError
from fedstein.methods import Memory, Method, Visit
from fedstein.problem import Problem
from fedstein.streams import stream
from fedstein.uplink import Link, Uplink, Upload, free, receive, send

__all__ = ["ESCROW", "RESIDUAL", "Note", "State", "Totals", "no_note", "rounds", "start"]

RESIDUAL = "residual"  # the agent's error-feedback memory, beside what its method keeps
ESCROW = "escrow"  # what the server keeps of an agent: the sum of all that it applied


class Note(Protocol):
    """Is told of every protocol event as it happens; a journal."""

    def __call__(self, event: str, **about: Any) -> None: ...


def no_note(event: str, **about: Any) -> None:
    """Nobody is told."""


@dataclass(frozen=True)
class Totals:
    """All bills of a run so far."""

    uploads: int = 0
    upload_bits: int = 0
    download_bits: int = 0
    max_upload_bits: int = 0
    refused: int = 0

    def add(self, uploads: list[Upload], download_bits: int) -> Totals:
        """With those of one more round."""
        return Totals(
            self.uploads + len(uploads),
            self.upload_bits + sum(upload.bits for upload in uploads),
            self.download_bits + download_bits,
            max([self.max_upload_bits, *(upload.bits for upload in uploads)]),
            self.refused + sum(upload.refused for upload in uploads),
        )


@dataclass(frozen=True)
class State:
    """All there is to know after a round: enough to go on from."""

    round: int  # rounds done
    particles: Tensor  # (N_p, d)
    memories: Memories = field(default_factory=Memories)  # what each agent keeps, by agent
    uploads: tuple[Upload, ...] = ()  # the bills of the last round
    frames: tuple[bytes, ...] = ()  # and its frames, as they arrived
    totals: Totals = Totals()


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
    note: Note = no_note,
    among: Sequence[int] | None = None,
    escrow: bool = False,
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
        note: is told who was scheduled, sent, was applied or refused.
        among: the agents that may be scheduled; all that take part if None.
        escrow: the server keeps the sum of what it applied of each agent.

    Raises:
        DivergedError: a visit made particles that are not finite. The state before it was yielded already.
    """
    method.check(problem.prior)
    agents = [problem.pooled()] if method.central else problem.agents
    everyone = [0] if method.central else problem.present
    present = everyone if among is None else list(among)
    first = start(problem, method, seed).particles  # known to both ends from the seed
    particles, memories, totals = state.particles, state.memories, state.totals
    round = state.round
    while True:
        picked = [present[place] for place in schedule.pick(round, len(present), seed)]
        note("scheduled", round=round + 1, agents=picked)
        shares = schedule.shares([len(agents[agent]) for agent in picked])
        total = torch.zeros_like(particles)
        kept: dict[int, Memory] = {}
        uploads: list[Upload] = []
        frames: list[bytes] = []
        for agent, share in zip(picked, shares, strict=True):
            memory = dict(memories.get(agent, {}))
            residual, escrowed = memory.pop(RESIDUAL, None), memory.pop(ESCROW, None)
            visit = Visit(
                model=problem.model,
                data=agents[agent],
                prior=problem.prior,
                particles=particles,
                memory=memory,
                round=round,
                agents=len(problem.present) if among is None else len(present),
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
                note("sent", round=round + 1, agent=agent, bits=bill.bits)
            else:
                wish = wish if residual is None else wish + residual
                known = uplink.known(particles, first)
                frame, _, bill = send(agent, wish, uplink.contract, _rounding(visit), known)
                note("sent", round=round + 1, agent=agent, bits=bill.bits)
                frame = link(frame)
                frames.append(frame)
                try:
                    arrived = receive(frame, uplink.contract, known)
                except PayloadError as error:
                    arrived, bill = torch.zeros_like(wish), replace(bill, captured=0.0, refused=True)
                    note("refused", round=round + 1, agent=agent, reason=str(error))
            uploads.append(bill)
            applied = arrived * share
            total += applied
            if not bill.refused:
                note("applied", round=round + 1, agent=agent, share=share)
            # A refused agent is told so: it keeps its memory as it was, and with feedback all of its wish.
            kept[agent] = memory if bill.refused else method.settle(visit, applied)
            if uplink is not None and uplink.feedback:
                kept[agent] = kept[agent] | {RESIDUAL: wish - arrived}
            if escrow:
                kept[agent] = kept[agent] | {ESCROW: applied if escrowed is None else escrowed + applied}
        particles = method.server_step(particles + total, stream(seed, "server", round=round))
        memories = memories.put(kept)
        totals = totals.add(uploads, download_bits=32 * particles.numel() * len(picked))
        round += 1
        yield State(round, particles, memories, tuple(uploads), tuple(frames), totals)


def _rounding(visit: Visit) -> np.random.Generator:
    """The numpy generator of the quantiser's rounding."""
    return np.random.default_rng(int(torch.randint(2**62, (1,), generator=visit.stream("quantiser"))))
