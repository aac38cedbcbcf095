"""The agent's side of a round, the same on every engine: visit, send, and settle once it is known what was applied.

Here is the border of the device: what a method computes with is moved there, and what comes of it is moved back.
Orders, frames, wishes and memories are on the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from fedstein.coding import send, send_plain
from fedstein.data import Examples
from fedstein.devices import CPU
from fedstein.errors import DivergedError
from fedstein.methods import Memory, Visit
from fedstein.models import Task
from fedstein.protocol.messages import Answer, Order, Outcome
from fedstein.streams import stream

__all__ = ["RESIDUAL", "Waiting", "answer", "settle", "visit_of"]

RESIDUAL = "residual"  # the agent's error-feedback memory, beside what its method keeps


@dataclass(frozen=True)
class Waiting:
    """What an agent has to remember of a visit until it knows what became of it."""

    order: Order
    visit: Visit
    wish: Tensor  # what it would have sent without a budget
    arrives: Tensor  # what the server reads in the frame


def answer(order: Order, task: Task, data: Examples) -> tuple[Answer, Waiting]:
    """Go on a visit (`Order.memory` is what the agent remembers), and make the frame of what came of it.

    Raises:
        DivergedError: the particles are no longer finite.
    """
    method, link = order.terms.method, order.terms.link
    residual = order.memory.get(RESIDUAL)
    visit = visit_of(order, task, data)
    wish = method.visit(_where_it_computes(visit)).to(CPU) - order.particles
    if not torch.isfinite(wish.sum()):
        raise DivergedError(
            f"The particles are no longer finite: round {order.round + 1}, agent {order.agent}, "
            f"method.step = '{method.step}', method.step_size = {method.step_size:g}. "
            "Try a smaller method.step_size. The last good state is kept."
        )
    if link is None:
        frame, arrives, bill = send_plain(order.agent, wish)
    else:
        wish = wish + residual if link.feedback and residual is not None else wish
        frame, arrives, bill = send(order.agent, wish, link.contract, _rounding(visit), order.shared)
    return Answer(order.agent, order.round, frame, bill), Waiting(order, visit, wish, arrives)


def visit_of(order: Order, task: Task, data: Examples) -> Visit:
    """The visit that is ordered, on the CPU: what waits for its outcome takes no place on a device."""
    return Visit(
        model=task.model,
        data=data,
        prior=task.prior,
        particles=order.particles,
        memory={name: value for name, value in order.memory.items() if name != RESIDUAL},
        round=order.round,
        agents=order.agents,
        shares=order.shares,
        stream=partial(stream, order.terms.seed, round=order.round, agent=order.agent),
    )


def settle(waiting: Waiting, outcome: Outcome | None) -> Memory:
    """What the agent remembers, now that its difference was applied, or was not (None).

    An agent that was refused keeps its memory as it was, and with feedback all of its wish.
    """
    terms, visit = waiting.order.terms, waiting.visit
    memory = visit.memory
    if outcome is not None:
        applied = (waiting.arrives * outcome.share).to(visit.model.device)
        kept = terms.method.settle(_where_it_computes(visit), applied)
        memory = {name: value.to(CPU) for name, value in kept.items()}
    if terms.link is not None and terms.link.feedback:
        left = waiting.wish if outcome is None else waiting.wish - waiting.arrives
        memory = memory | {RESIDUAL: left}
    return memory


def _where_it_computes(visit: Visit) -> Visit:
    """The same visit as its method sees it: particles and memory on the model's device. Batches follow one by one."""
    device = visit.model.device
    if device == visit.particles.device:
        return visit
    memory = {name: value.to(device) for name, value in visit.memory.items()}
    return replace(visit, particles=visit.particles.to(device), memory=memory)


def _rounding(visit: Visit) -> np.random.Generator:
    """The numpy generator of the quantiser's rounding."""
    return np.random.default_rng(int(torch.randint(2**62, (1,), generator=visit.stream("quantiser"))))
