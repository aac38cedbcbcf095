"""The server's end of Flower: orders as messages, answers matched to them, agents known by name."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from pydantic import ValidationError
from torch import Tensor

from fedstein.errors import PayloadError
from fedstein.methods import Memory
from fedstein.models import Values
from fedstein.protocol.messages import FROZEN, Answer, Failure, Order, Outcome
from fedstein.protocol.wire import Head, Reply

__all__ = ["Flower"]

PAUSE = 0.05  # seconds between looks for answers, at first
LONGEST_PAUSE = 0.25
ASK_AGAIN = 60.0  # seconds, for a node that does not say who it is
PATIENCE = 10.0  # seconds that nobody else is waited for meanwhile
KNOWN_FOR = 1.0  # seconds for which the list of nodes is good


@dataclass(frozen=True)
class _Sent:
    order: Order
    until: float


class Flower:
    """Agents behind a Flower grid. They remember for themselves.

    Args:
        grid: Flower's.
        names: of the agents, in the order of their numbers. A SuperNode that was registered with a name and a key is
            that agent; one without (a simulation, a grid without authentication) is asked who it is.
        run: which run asks.
        head: makes the head of an order.
        frozen: values of the network that are not learnt; an agent keeps them, so only its first order brings them.
        seconds: for which an order is worth following.
    """

    agents_remember = True

    def __init__(
        self,
        grid: Grid,
        names: Sequence[str],
        run: str,
        head: Callable[[Order], Head],
        frozen: Values | None = None,
        seconds: float = 600.0,
    ) -> None:
        self.names = tuple(names)
        self._grid, self._run, self._head = grid, run, head
        self._frozen, self._seconds = frozen or {}, seconds
        self._have_frozen: set[int] = set()  # agents that have answered since they were sent
        self._sent: dict[str, _Sent] = {}
        self._claims: dict[int, str] = {}  # who a node without a name says that it is
        self._asked: dict[int, float] = {}  # when it was last asked
        self._hellos: dict[str, int] = {}  # the questions that it has not answered yet
        self._nodes: dict[int, int] = {}  # agent: node
        self._looked = -KNOWN_FOR

    def roster(self) -> Collection[int]:
        """The agents whose nodes are online."""
        if time.monotonic() - self._looked < KNOWN_FOR:
            return self._nodes
        names: dict[str, int] = {}
        nodes = list(self._grid.get_nodes())
        self._meet([node.node_id for node in nodes if not node.name and node.node_id not in self._claims])
        for node in nodes:
            name = node.name or self._claims.get(node.node_id, "")
            names.setdefault(name, node.node_id)
        self._nodes = {number: names[name] for number, name in enumerate(self.names) if name in names}
        self._looked = time.monotonic()
        return self._nodes

    def _meet(self, strangers: list[int]) -> None:
        """Ask nodes without a name who they are. An answer that takes longer counts when it comes."""
        now = time.monotonic()
        new = [node for node in strangers if now - self._asked.get(node, -ASK_AGAIN) >= ASK_AGAIN]
        self._asked |= dict.fromkeys(new, now)
        ids = self._push([self._message(node, "query.hello", RecordDict()) for node in new])
        self._hellos |= {message: node for message, node in zip(ids, new, strict=True) if message is not None}
        while True:
            for reply in self._pull(self._hellos):
                node = self._hellos.pop(reply.metadata.reply_to_message_id)
                if reply.has_content() and isinstance(name := _content(reply).get("agent"), str):
                    self._claims[node] = name
            if not new or not self._hellos or time.monotonic() - now >= PATIENCE:
                return
            time.sleep(PAUSE)

    def send(self, orders: Sequence[Order]) -> None:
        """As messages to their nodes."""
        now = time.monotonic()
        self._sent = {message: sent for message, sent in self._sent.items() if sent.until > now}
        messages = []
        for order in orders:
            tensors = {"particles": order.particles}
            if order.agent not in self._have_frozen:
                tensors |= {FROZEN + name: value for name, value in self._frozen.items()}
            # What the server keeps for an agent that remembers for itself is what others have handed over to it.
            tensors |= order.memory
            head = ConfigRecord({"head": self._head(order).to_json()})
            content = RecordDict({"order": head, "tensors": _arrays(tensors)})
            messages.append(self._message(self._nodes[order.agent], "train.visit", content))
        for order, message in zip(orders, self._push(messages), strict=True):
            if message is not None:
                self._sent[message] = _Sent(order, now + self._seconds)

    def collect(self, seconds: float) -> Sequence[Answer | Failure]:
        """Whatever has come, or the end of the time."""
        end, pause = time.monotonic() + seconds, PAUSE
        while True:
            came = [self._read(reply) for reply in self._pull(self._sent)]
            if came or (left := end - time.monotonic()) <= 0:
                return came
            time.sleep(min(pause, left))
            pause = min(pause * 1.2, LONGEST_PAUSE)

    def settle(self, agent: int, outcome: Outcome | None) -> None:
        """It is told with its next order."""

    def remembered(self) -> Mapping[int, Memory]:
        """They remember for themselves."""
        return {}

    def ask(self, kind: str, what: Mapping[int, RecordDict], seconds: float) -> dict[int, dict[str, Any]]:
        """Ask nodes something else; their answers, as far as they come in time."""
        ids = self._push([self._message(node, kind, content) for node, content in what.items()])
        asked = {message: node for message, node in zip(ids, what, strict=True) if message is not None}
        answers: dict[int, dict[str, Any]] = {}
        end = time.monotonic() + seconds
        while asked and time.monotonic() < end:
            for reply in self._pull(asked):
                node = asked.pop(reply.metadata.reply_to_message_id)
                answers[node] = _content(reply) if reply.has_content() else {"error": str(reply.error.reason)}
            if asked:
                time.sleep(PAUSE)
        return answers

    def node_of(self, agent: int) -> int | None:
        """The node of an agent, if it is online."""
        self._looked = -KNOWN_FOR
        self.roster()
        return self._nodes.get(agent)

    def _message(self, node: int, kind: str, content: RecordDict) -> Message:
        return Message(content, node, kind, ttl=max(self._seconds, 60.0))

    def _push(self, messages: list[Message]) -> list[str | None]:
        return list(self._grid.push_messages(messages)) if messages else []

    def _pull(self, ids: Iterable[str]) -> list[Message]:
        ids = list(ids)
        return list(self._grid.pull_messages(ids)) if ids else []

    def _read(self, reply: Message) -> Answer | Failure:
        """An answer, or why it is none. What an agent sends is not trusted."""
        order = self._sent.pop(reply.metadata.reply_to_message_id).order

        def fail(reason: str) -> Failure:
            return Failure(order.agent, order.round, _plain(reason))

        if not reply.has_content():
            self._looked = -KNOWN_FOR  # the node may be gone
            return fail(f"Flower says: {reply.error.reason} (code {reply.error.code})")
        content = _content(reply)
        if content.get("needs") == "frozen":  # it has lost what it had
            self._have_frozen.discard(order.agent)
            return fail("it needs the frozen values again")
        if isinstance(text := content.get("diverged"), str):
            return fail(text)  # one agent does not end the run of all; if none is left, the server stops
        if isinstance(text := content.get("error"), str):
            return fail(text)
        frame, text = content.get("frame"), content.get("reply")
        if not isinstance(frame, bytes) or not isinstance(text, str) or len(text) > 10_000:
            return fail("the answer has no frame")
        self._have_frozen.add(order.agent)
        try:
            return Reply.model_validate_json(text).answer(frame, order, self._run)
        except (ValidationError, PayloadError) as error:
            return fail(str(error))


def _plain(text: str) -> str:
    """What an agent says, as one line of text that a terminal can show."""
    return "".join(letter if letter.isprintable() else " " for letter in text[:500])


def _content(reply: Message) -> dict[str, Any]:
    record = reply.content.get("answer")
    return dict(record) if isinstance(record, ConfigRecord) else {}


def _arrays(tensors: Mapping[str, Tensor]) -> ArrayRecord:
    return ArrayRecord({name: Array(value.numpy()) for name, value in tensors.items()})
