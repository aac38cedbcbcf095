"""What travels between the server and an agent. An engine carries it; it knows nothing of what is inside."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from fedstein.coding import Link, Shared, Upload
from fedstein.methods import Memory, Method

__all__ = ["FROZEN", "HANDED_OVER", "Answer", "Engine", "Failure", "Note", "Order", "Outcome", "Terms", "no_note"]


FROZEN = "frozen/"  # before the name of a value that is not learnt, as it travels
HANDED_OVER = "handed-over-"  # before the number of an erasure: a portion that an agent elsewhere is to take over


@dataclass(frozen=True)
class Terms:
    """What both ends know before a visit: what it is, and what it may send."""

    method: Method
    seed: int
    link: Link | None = None  # None: plain float32 differences
    first: Tensor | None = None  # the particles before the first round, where the coding needs them


class Outcome(NamedTuple):
    """A visit of an agent that has become part of the model."""

    round: int  # from 0
    share: float  # the weight of its difference


@dataclass(frozen=True)
class Order:
    """Down: go on a visit."""

    agent: int
    round: int  # from 0
    terms: Terms
    particles: Tensor
    agents: int  # how many there are in all
    shares: tuple[float, ...]  # the weights of all differences that this round will apply
    memory: Memory = field(default_factory=dict)  # what the server's machine keeps for the agent
    outcome: Outcome | None = None  # the last of the agent's visits that was applied, for one that was not told yet

    @property
    def shared(self) -> Shared:
        """What both ends of this upload know and never send."""
        first = None if self.terms.first is None else self.terms.first.numpy()
        return Shared(self.particles.numpy(), first, self.terms.seed, self.round, self.agent)


@dataclass(frozen=True)
class Answer:
    """Up: the frame, and its bill."""

    agent: int
    round: int
    frame: bytes
    bill: Upload


@dataclass(frozen=True)
class Failure:
    """Instead of an answer: why there is none."""

    agent: int
    round: int
    reason: str
    diverged: bool = False  # asking again would not help


class Engine(Protocol):
    """Moves messages. It decides nothing: who is asked, how long one waits and what is applied is the server's.

    An agent's memory is where the engine says: with the server (`Order.memory` on the way down, `remembered` on the way
    up), or with the agent alone, which learns from `Order.outcome` of its next order what became of its last answer.
    """

    agents_remember: bool
    """Whether agents keep their memory themselves, where the server cannot see it."""

    def roster(self) -> Collection[int]:
        """The agents that can be reached now."""
        ...

    def send(self, orders: Sequence[Order]) -> None:
        """Send orders to their agents; do not wait."""
        ...

    def collect(self, seconds: float) -> Sequence[Answer | Failure]:
        """What has come back, as soon as there is something; nothing if nothing comes in so many seconds."""
        ...

    def settle(self, agent: int, outcome: Outcome | None) -> None:
        """Tell an agent what became of its answer: it was applied, or it was not (None)."""
        ...

    def remembered(self) -> Mapping[int, Memory]:
        """What the agents that were told since the last call keep now, where the server keeps it for them."""
        ...


class Note(Protocol):
    """Is told of every protocol event as it happens; a journal."""

    def __call__(self, event: str, **about: Any) -> None: ...


def no_note(event: str, **about: Any) -> None:
    """Nobody is told."""
