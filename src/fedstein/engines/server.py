"""The server's side: the loop of the letter. Schedule, visit, upload, apply; an engine carries the messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedstein.engines.gather import Patience, gather
from fedstein.engines.local import Local
from fedstein.engines.memories import Memories
from fedstein.engines.messages import Answer, Applied, Engine, Note, Order, Terms, no_note
from fedstein.engines.schedule import Schedule
from fedstein.errors import PayloadError, SilenceError
from fedstein.methods import Memory, Method
from fedstein.problem import Problem
from fedstein.streams import stream
from fedstein.uplink import Uplink, Upload, receive, receive_plain

__all__ = ["ESCROW", "State", "Totals", "rounds", "start"]

ESCROW = "escrow"  # what the server keeps of an agent: the sum of all that it applied


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
    memories: Memories = field(default_factory=Memories)  # what the server's machine keeps of each agent
    uploads: tuple[Upload, ...] = ()  # the bills of the last round
    frames: tuple[bytes, ...] = ()  # and its frames, as they arrived
    totals: Totals = Totals()
    applied: Mapping[int, Applied] = field(default_factory=dict)  # last visits, of agents that remember themselves


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
    note: Note = no_note,
    among: Sequence[int] | None = None,
    escrow: bool = False,
    engine: Engine | None = None,
    patience: Patience = Patience(),  # noqa: B008  (frozen)
    absent: set[int] | None = None,
) -> Iterator[State]:
    """Go on from `state`, round after round, without end.

    Args:
        problem: model, data, prior.
        method: what a visit is.
        schedule: who visits.
        seed: of every random draw.
        state: where to go on from.
        uplink: the bit budget and its terms; plain float32 differences if None.
        note: is told who was scheduled, sent, was applied, refused or missed.
        among: the agents that may be scheduled; all that take part if None.
        escrow: the server keeps the sum of what it applied of each agent.
        engine: carries the messages; every agent in this process if None.
        patience: how long a round waits.
        absent: agents that did not answer when they were last asked, which nobody waits for; kept up to date.

    Raises:
        DivergedError: a visit made particles that are not finite. The state before it was yielded already.
        SilenceError: nobody answers any more.
    """
    method.check(problem.prior)
    engine = Local(problem, method.central) if engine is None else engine
    sizes = [1] if method.central else problem.sizes or [len(agent) for agent in problem.agents]
    everyone = [0] if method.central else problem.present
    present = everyone if among is None else list(among)
    first = start(problem, method, seed).particles if uplink is not None and uplink.informed else None
    terms = Terms(method, seed, uplink, first)
    absent = set() if absent is None else absent
    silent = 0  # rounds without any answer
    while True:
        round, particles, memories = state.round, state.particles, state.memories
        picked = [present[place] for place in schedule.pick(round, len(present), seed)]
        shares = schedule.shares([sizes[agent] for agent in picked])
        note("scheduled", round=round + 1, agents=picked)
        orders = [
            Order(
                agent,
                round,
                terms,
                particles,
                agents=len(problem.present) if among is None else len(present),
                shares=tuple(shares),
                memory={key: value for key, value in memories.get(agent, {}).items() if key != ESCROW},
                applied=state.applied.get(agent),
            )
            for agent in picked
        ]
        total = torch.zeros_like(particles)
        escrows: dict[int, Memory] = {}
        last: dict[int, Applied] = {}
        uploads: list[Upload] = []
        frames: list[bytes] = []
        # In the order of the schedule, whoever is first: a sum of floats depends on it.
        for order, share, answer in zip(orders, shares, gather(engine, orders, patience, absent, note), strict=True):
            if answer is None:
                continue
            agent, bill, visit = order.agent, answer.bill, Applied(round, share)
            note("sent", round=round + 1, agent=agent, bits=bill.bits)
            try:
                arrived = _read(answer, order)
                if engine.agents_remember and not torch.isfinite((particles + arrived).square().sum()):
                    raise PayloadError("The frame would make particles that are not finite.")
            except PayloadError as error:
                arrived, bill = torch.zeros_like(particles), replace(bill, captured=0.0, refused=True)
                note("refused", round=round + 1, agent=agent, reason=str(error))
            applied = arrived * share
            total += applied
            if not bill.refused:
                note("applied", round=round + 1, agent=agent, share=share)
                last[agent] = visit
            engine.settle(agent, None if bill.refused else visit)
            if escrow:
                before = memories.get(agent, {}).get(ESCROW)
                escrows[agent] = {ESCROW: applied if before is None else before + applied}
            uploads.append(bill)
            frames.append(answer.frame)
        silent = 0 if uploads else silent + 1
        if silent * len(picked) > len(present):
            raise SilenceError(
                f"No agent has answered in the last {silent} rounds: is anybody there? What was learnt is kept, and "
                "the same command goes on."
            )
        kept = engine.kept()
        particles = method.server_step(particles + total, stream(seed, "server", round=round))
        state = State(
            round + 1,
            particles,
            memories.put({bill.agent: {**kept.get(bill.agent, {}), **escrows.get(bill.agent, {})} for bill in uploads}),
            tuple(uploads),
            () if uplink is None else tuple(frames),
            state.totals.add(uploads, download_bits=32 * particles.numel() * len(picked)),
            {**state.applied, **last} if engine.agents_remember else {},
        )
        yield state


def _read(answer: Answer, order: Order) -> Tensor:
    uplink, particles = order.terms.uplink, order.particles
    if uplink is None:
        return receive_plain(answer.frame, particles.shape)
    return receive(answer.frame, uplink.contract, uplink.known(particles, order.terms.first))
