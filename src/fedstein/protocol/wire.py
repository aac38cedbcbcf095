"""An order as it travels between machines and rests on an agent's disk: a checked head, and float32 tensors beside it.

Everything here comes from the other side of a network: it is checked before it is used.
"""

from __future__ import annotations

import json
import math
from typing import Any, Literal, NamedTuple, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny, ValidationError, field_validator, model_validator
from torch import Tensor

from fedstein.coding import Upload, letter_bits
from fedstein.devices import CPU
from fedstein.errors import OrderError, PayloadError, UserError
from fedstein.likelihoods import Likelihood, likelihood_of
from fedstein.methods import FORGETTING, METHODS, Memory, Method
from fedstein.models import ModelConfig, Network, PriorConfig, Task, Values, digest, network
from fedstein.protocol.messages import Answer, Order, Outcome, Terms
from fedstein.protocol.uplink import Uplink
from fedstein.streams import stream

__all__ = ["VERSION", "About", "Head", "Reply", "head_of", "read_head"]

VERSION = 2
_ID = r"^[0-9a-f]{32}$"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Head(_Part):
    """All of an order but its tensors."""

    version: Literal[2] = 2
    run: str = Field(pattern=_ID)  # which run asks
    model_id: str = Field(pattern=_ID)  # which model: an erasure goes on with the same
    agent: int = Field(ge=0)
    name: str = Field(max_length=200)
    round: int = Field(ge=0)
    agents: int = Field(ge=1)
    shares: tuple[float, ...]
    seed: int = Field(ge=0)
    method: SerializeAsAny[Method]
    uplink: Uplink
    model: ModelConfig
    prior: PriorConfig
    likelihood: SerializeAsAny[Likelihood]
    inputs: tuple[int, ...]
    outputs: int = Field(ge=1)
    frozen: str | None = Field(None, pattern=r"^[0-9a-f]{64}$")  # digest of the values that are not learnt
    outcome: tuple[int, float] | None = None
    threads: int = Field(ge=1, le=1024)

    @field_validator("method", mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        if isinstance(value, Method):
            return value
        settings = dict(value)
        name = settings.pop("name")
        kind: type[Method] = FORGETTING[name] if name in FORGETTING else METHODS[name]
        return kind.model_validate(settings)

    @field_validator("likelihood", mode="before")
    @classmethod
    def _likelihood(cls, value: Any) -> Any:
        return likelihood_of(value)

    @field_validator("shares", "inputs", "outcome", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    @model_validator(mode="after")
    def _no_paths(self) -> Self:
        """A server has no say in which files an agent reads."""
        if self.model.features is not None or self.model.weights is not None:
            raise ValueError("model.features and model.weights must not be set here")
        if self.model.module is not None and self.model.fingerprint is None:
            raise ValueError("model.fingerprint must be set where model.module is")
        if not all(math.isfinite(share) and 0 <= share <= 1 for share in self.shares):
            raise ValueError("shares must be in 0..1")
        return self

    def to_json(self) -> str:
        """As it travels."""
        table = self.model_dump(mode="json")
        for part in ("method", "likelihood"):
            table[part] = {"name": getattr(self, part).name, **table[part]}
        return json.dumps(table, allow_nan=False)

    def network(self, frozen: Values | None, device: torch.device = CPU) -> Network:
        """The network, from values that are not learnt. OrderError where it is not what the server says.

        Args:
            frozen: those values.
            device: where it computes: the agent's own affair, of which an order says nothing.
        """
        if (None if frozen is None else digest(frozen)) != self.frozen:
            raise OrderError("The frozen values are not those that the order is about.")
        try:
            shape = torch.Size(self.inputs)
            return network(
                self.model, self.prior, self.likelihood, shape, self.outputs, self.seed, frozen, device=device
            )
        except OrderError:
            raise
        except UserError as error:  # the agent's own code and disk: its operator reads why, in the agent's log
            raise OrderError(
                f"This agent cannot make the network '{self.model.module}' of {self.model.fingerprint}; its "
                "own log says why."
            ) from error

    def order(self, task: Task, particles: Tensor, memory: Memory) -> Order:
        """The order itself."""
        if tuple(particles.shape) != (self.method.particles, task.model.dim):
            raise OrderError(
                f"The particles must be {(self.method.particles, task.model.dim)}. Got {tuple(particles.shape)}."
            )
        link = self.uplink.link(self.method, task.model.dim)
        needs_first = link is not None and link.needs_first
        first = self.method.start(task, stream(self.seed, "particles")) if needs_first else None
        terms = Terms(self.method, self.seed, link, first)
        outcome = None if self.outcome is None else Outcome(*self.outcome)
        return Order(self.agent, self.round, terms, particles, self.agents, self.shares, memory, outcome)


class About(NamedTuple):
    """What every order of a run says of it."""

    uplink: Uplink
    model: ModelConfig
    prior: PriorConfig
    likelihood: Likelihood
    threads: int
    inputs: torch.Size  # of one raw example
    outputs: int
    frozen: str | None  # digest of the values that are not learnt


def head_of(order: Order, about: About, run: str, model_id: str, name: str) -> Head:
    """The head of an order.

    Args:
        order: what is asked.
        about: the run's settings, as far as an agent needs them.
        run: which run asks.
        model_id: which model.
        name: of the agent.
    """
    feedback = order.terms.link is not None and order.terms.link.feedback
    return Head(
        run=run,
        model_id=model_id,
        agent=order.agent,
        name=name,
        round=order.round,
        agents=order.agents,
        shares=order.shares,
        seed=order.terms.seed,
        method=order.terms.method,
        uplink=about.uplink.model_copy(update={"feedback": feedback, "record_frames": False}),
        model=about.model.model_copy(update={"features": None, "weights": None}),
        prior=about.prior,
        likelihood=about.likelihood,
        inputs=tuple(about.inputs),
        outputs=about.outputs,
        frozen=about.frozen,
        outcome=None if order.outcome is None else (order.outcome.round, order.outcome.share),
        threads=about.threads,
    )


def read_head(text: str) -> Head:
    """A head that has travelled. OrderError where it is none."""
    try:
        return Head.model_validate(json.loads(text))
    except (ValidationError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise OrderError(f"This is no order of protocol version {VERSION}: {str(error)[:500]}") from None


class Reply(_Part):
    """What comes back beside the frame. The frame is what counts; the rest is for the record."""

    version: Literal[2] = 2
    run: str = Field(pattern=_ID)
    agent: int = Field(ge=0)
    round: int = Field(ge=0)
    position_bits: int = Field(ge=0, le=2**40)
    kept: int = Field(ge=0, le=2**40)
    captured: float = Field(ge=-1e6, le=1.0, allow_inf_nan=False)

    @staticmethod
    def of(answer: Answer, run: str) -> Reply:
        """Of an answer."""
        bill = answer.bill
        return Reply(
            run=run,
            agent=answer.agent,
            round=answer.round,
            position_bits=bill.position_bits,
            kept=bill.kept,
            captured=bill.captured,
        )

    def answer(self, frame: bytes, order: Order, run: str) -> Answer:
        """At the server. The bits are counted here, whatever the agent says.

        Raises:
            PayloadError: it answers something else.
        """
        if (self.run, self.agent, self.round) != (run, order.agent, order.round):
            raise PayloadError(f"The answer is of run {self.run}, agent {self.agent}, round {self.round + 1}.")
        bits, link = 8 * len(frame), order.terms.link
        if link is None:
            bill = Upload(order.agent, bits, None, float(bits), 0, bits, order.particles.shape[1], captured=1.0)
        else:
            contract = link.contract
            kept, most = min(self.kept, contract.dim), max(0, 8 * (len(frame) - contract.overhead_bytes))
            position_bits = min(self.position_bits, most)
            bill = Upload(
                agent=order.agent,
                bits=bits,
                budget_bits=contract.budget_bits,
                bound_bits=letter_bits(contract, kept),
                position_bits=position_bits,
                entry_bits=most - position_bits,
                kept=kept,
                captured=self.captured,
            )
        return Answer(order.agent, order.round, frame, bill)
