"""The server's side: the loop of the letter. Schedule, visit, upload, apply; an engine carries the messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fedstein.coding import Link, Upload, receive, receive_plain
from fedstein.data import Holdings
from fedstein.errors import PayloadError, SilenceError
from fedstein.methods import Memory, Method
from fedstein.models import Task
from fedstein.protocol.messages import Answer, Engine, Note, Order, Outcome, Terms, no_note
from fedstein.protocol.patience import Patience, gather
from fedstein.protocol.schedule import Schedule
from fedstein.protocol.state import ESCROW, State, Told
from fedstein.streams import stream

__all__ = ["rounds", "start"]


def start(task: Task, method: Method, seed: int) -> State:
    """The state before the first round."""
    return State(0, method.start(task, stream(seed, "particles")))


def rounds(
    task: Task,
    holdings: Holdings,
    method: Method,
    schedule: Schedule,
    seed: int,
    state: State,
    engine: Engine,
    *,
    link: Link | None = None,
    note: Note = no_note,
    among: Sequence[int] | None = None,
    escrow: bool = False,
    patience: Patience = Patience(),  # noqa: B008  (frozen)
    absent: set[int] | None = None,
    window: int = 0,
) -> Iterator[tuple[State, Told]]:
    """Go on from `state`, round after round, without end.

    Args:
        task: what is to be learnt.
        holdings: who holds what.
        method: what a visit is.
        schedule: who visits.
        seed: of every random draw.
        state: where to go on from.
        engine: carries the messages.
        link: the bit budget and its contract; plain float32 differences if None.
        note: is told who was scheduled, sent, was applied, refused or missed.
        among: the agents that may be scheduled; all that take part if None.
        escrow: the server keeps the sum of what it applied of each agent.
        patience: how long a round waits.
        absent: agents that did not answer when they were last asked, which nobody waits for; kept up to date.
        window: turn means that are kept, at most.

    Raises:
        DivergedError: a visit made particles that are not finite. The state before it was yielded already.
        SilenceError: nobody answers any more.
    """
    method.check(task.prior)
    sizes = [1] if method.central else holdings.sizes
    everyone = [0] if method.central else holdings.present
    present = everyone if among is None else list(among)
    count = len(holdings.present) if among is None else len(present)
    first = start(task, method, seed).particles if link is not None and link.needs_first else None
    terms = Terms(method, seed, link, first)
    absent = set() if absent is None else absent
    silent = 0  # rounds without any answer
    while True:
        round, particles = state.round, state.particles
        picked = [present[place] for place in schedule.pick(round, len(present), seed)]
        shares = schedule.shares([sizes[agent] for agent in picked])
        note("scheduled", round=round + 1, agents=picked)
        orders = [_order(agent, terms, state, count, shares) for agent in picked]
        total = torch.zeros_like(particles)
        last: dict[int, Outcome] = {}
        escrows: dict[int, Memory] = {}
        uploads: list[Upload] = []
        frames: list[bytes] = []
        # In the order of the schedule, whoever is first: a sum of floats depends on it.
        for order, share, answer in zip(orders, shares, gather(engine, orders, patience, absent, note), strict=True):
            if answer is None:
                continue
            agent, bill = order.agent, answer.bill
            note("sent", round=round + 1, agent=agent, bits=bill.bits)
            try:
                difference = _received(answer, order, check_sum=engine.agents_remember)
            except PayloadError as error:
                difference, bill = torch.zeros_like(particles), replace(bill, captured=0.0, refused=True)
                note("refused", round=round + 1, agent=agent, reason=str(error))
            applied = difference * share
            total += applied
            outcome = None if bill.refused else Outcome(round, share)
            if outcome is not None:
                note("applied", round=round + 1, agent=agent, share=share)
                last[agent] = outcome
            engine.settle(agent, outcome)
            if escrow:
                before = state.memories.get(agent, {}).get(ESCROW)
                escrows[agent] = {ESCROW: applied if before is None else before + applied}
            uploads.append(bill)
            frames.append(answer.frame)
        silent = 0 if uploads else silent + 1
        if silent * len(picked) > len(present):
            raise SilenceError(
                f"No agent has answered in the last {silent} rounds: is anybody there? What was learnt is kept, and "
                "the same command goes on."
            )
        remembered = engine.remembered()
        particles = method.server_step(particles + total, stream(seed, "server", round=round))
        turns = state.turns
        if window:
            turns = turns.after(
                round + 1, particles, visits=len(picked), agents=len(present), moved=bool(last), keep=window,
                last_only=method.samples,
            ).needed(window)  # fmt: skip
        state = State(
            round + 1,
            particles,
            state.memories.put(
                {bill.agent: {**remembered.get(bill.agent, {}), **escrows.get(bill.agent, {})} for bill in uploads}
            ),
            state.totals.add(uploads, download_bits=32 * particles.numel() * len(picked)),
            {**state.outcomes, **last} if engine.agents_remember else {},
            turns,
        )
        yield state, Told(tuple(uploads), () if link is None else tuple(frames))


def _order(agent: int, terms: Terms, state: State, count: int, shares: list[float]) -> Order:
    memory = {key: value for key, value in state.memories.get(agent, {}).items() if key != ESCROW}
    return Order(agent, state.round, terms, state.particles, count, tuple(shares), memory, state.outcomes.get(agent))


def _received(answer: Answer, order: Order, check_sum: bool) -> Tensor:
    """The difference in an answer. PayloadError where there is none, or it would ruin the particles (`check_sum`)."""
    link, particles = order.terms.link, order.particles
    if link is None:
        difference = receive_plain(answer.frame, particles.shape)
    else:
        difference = receive(answer.frame, link.contract, order.shared)
    if check_sum and not torch.isfinite((particles + difference).square().sum()):
        raise PayloadError("The frame would make particles that are not finite.")
    return difference
