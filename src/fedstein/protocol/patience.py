"""Waiting for the answers of a round: deadlines, retries, answers that come late, twice, or from nobody."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fedstein.errors import DivergedError
from fedstein.protocol.messages import Answer, Engine, Failure, Note, Order

__all__ = ["Patience", "gather"]


@dataclass(frozen=True)
class Patience:
    """How long a round waits for its agents. In one process nobody is late."""

    seconds: float = 600.0  # of a round, the agents' work included
    retries: int = 3  # how often an agent that failed is asked again
    pause: float = 2.0  # seconds before it is
    least: float = 10.0  # seconds that an agent has which was away: a tenth of all, but not less than these


_AWAY = "it cannot be reached"


@dataclass
class _Asked:
    order: Order
    next: float  # when it is to be sent; infinite once it was
    end: float  # when nobody waits any longer
    tries: int = 0
    waited_for: bool = False
    reason: str = _AWAY


def gather(
    engine: Engine, orders: Sequence[Order], patience: Patience, absent: set[int], note: Note
) -> Iterator[Answer | None]:
    """Send the orders of a round; their answers, in the same order, None where there is none in time.

    An agent that cannot be reached is waited for, since it may come back. One that was waited for in vain before
    (`absent`) is not, and while it is silent it has a tenth of the time, until it answers again. Whoever fails is asked
    again. The first answer of an agent counts.

    Raises:
        DivergedError: an agent says so; asking again would not help.
    """
    now = time.monotonic()
    short = min(patience.seconds, max(patience.least, patience.seconds / 10))
    ends = {order.agent: now + (short if order.agent in absent else patience.seconds) for order in orders}
    open_ = {order.agent: _Asked(order, next=now, end=ends[order.agent]) for order in orders}
    answers: dict[int, Answer | None] = {}

    def miss(agent: int) -> None:
        asked = open_.pop(agent)
        answers[agent] = None
        absent.add(agent)
        note("missed", round=asked.order.round + 1, agent=agent, reason=asked.reason)

    def send_what_is_due() -> None:
        now = time.monotonic()
        due = [asked for asked in open_.values() if asked.next <= now]
        there = engine.roster() if due else ()
        for asked in due:
            if asked.order.agent in there:
                asked.next = float("inf")
                asked.tries += 1
            elif asked.order.agent in absent:
                miss(asked.order.agent)
            else:
                if not asked.waited_for:
                    note("waiting", round=asked.order.round + 1, agent=asked.order.agent, reason=asked.reason)
                asked.waited_for = True
                asked.next = now + patience.pause
        engine.send([asked.order for asked in due if asked.next == float("inf")])

    def take(came: Answer | Failure) -> None:
        asked = open_.get(came.agent)
        if asked is None or came.round != asked.order.round:
            note("ignored", round=came.round + 1, agent=came.agent, reason="nobody waits for this answer")
            if isinstance(came, Answer):
                absent.discard(came.agent)  # late, but there
        elif isinstance(came, Answer):
            answers[came.agent] = came
            absent.discard(came.agent)
            del open_[came.agent]
        elif came.diverged:
            raise DivergedError(came.reason)
        else:
            note("failed", round=came.round + 1, agent=came.agent, reason=came.reason)
            asked.reason = came.reason
            asked.next = time.monotonic() + patience.pause
            if asked.tries > patience.retries:
                miss(came.agent)

    for order in orders:
        while order.agent not in answers:
            send_what_is_due()
            now = time.monotonic()
            for agent in [agent for agent, asked in open_.items() if now >= asked.end]:
                asked = open_[agent]
                if asked.tries:
                    before = "" if asked.reason == _AWAY else f" ({asked.reason})"
                    asked.reason = f"no answer in time{before}"
                miss(agent)
            if order.agent in answers:
                break
            until = min(min(asked.next, asked.end) for asked in open_.values())
            for came in engine.collect(max(0.0, until - now)):
                take(came)
        yield answers.pop(order.agent)
