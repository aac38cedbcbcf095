"""What travels between the server and an agent. An engine carries it; it knows nothing of what is inside."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from fedstein.methods import Memory, Method
from fedstein.uplink import Uplink, Upload

__all__ = ["Answer", "Applied", "Engine", "Failure", "Note", "Order", "Terms", "no_note"]


@dataclass(frozen=True)
class Terms:
    """What both ends know before a visit: what it is, and what it may send."""

    method: Method
    seed: int
    uplink: Uplink | None = None  # None: plain float32 differences
    first: Tensor | None = None  # the particles before the first round, where positions are coded by them


class Applied(NamedTuple):
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
    applied: Applied | None = None  # the last of the agent's visits that was applied, for one that was not told yet


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

    An agent's memory is where the engine says: with the server (`Order.memory` on the way down, `kept` on the way up),
    or with the agent alone, which learns from `Order.applied` of its next order what became of its last answer.
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

    def settle(self, agent: int, applied: Applied | None) -> None:
        """Tell an agent what became of its answer: it was applied, or it was not (None)."""
        ...

    def kept(self) -> Mapping[int, Memory]:
        """What the agents that were told since the last call keep now, where the server keeps it for them."""
        ...


class Note(Protocol):
    """Is told of every protocol event as it happens; a journal."""

    def __call__(self, event: str, **about: Any) -> None: ...


def no_note(event: str, **about: Any) -> None:
    """Nobody is told."""
