"""An order as it travels between machines and rests on an agent's disk: a checked head, and float32 tensors beside it.

Everything here comes from the other side of a network: it is checked before it is used.
"""

from __future__ import annotations

import json
import math
from typing import Any, Literal, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny, ValidationError, field_validator, model_validator
from torch import Tensor

from fedstein.build import network
from fedstein.config import Config, ModelConfig, PriorConfig, UplinkConfig
from fedstein.engines.messages import Answer, Applied, Order, Terms
from fedstein.errors import OrderError, PayloadError
from fedstein.inference import GaussianPrior
from fedstein.methods import METHODS, ForgetSVGD, Memory, Method, TakeBack
from fedstein.models import DenseStack
from fedstein.streams import stream
from fedstein.uplink import Upload, letter_bits

__all__ = ["VERSION", "Head", "Reply", "head_of", "read_head"]

VERSION = 1
_METHODS = METHODS | {kind.name: kind for kind in (ForgetSVGD, TakeBack)}
_ID = r"^[0-9a-f]{32}$"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Head(_Part):
    """All of an order but its tensors."""

    version: Literal[1] = 1
    run: str = Field(pattern=_ID)  # which run asks
    lineage: str = Field(pattern=_ID)  # which model: an erasure goes on with the same
    agent: int = Field(ge=0)
    name: str = Field(max_length=200)
    round: int = Field(ge=0)
    agents: int = Field(ge=1)
    shares: tuple[float, ...]
    seed: int = Field(ge=0)
    method: SerializeAsAny[Method]
    uplink: UplinkConfig
    model: ModelConfig
    prior: PriorConfig
    inputs: tuple[int, ...]
    classes: int = Field(ge=1)
    applied: tuple[int, float] | None = None
    threads: int | None = Field(None, ge=1, le=1024)

    @field_validator("method", mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        if isinstance(value, Method):
            return value
        settings = dict(value)
        return _METHODS[settings.pop("name")].model_validate(settings)

    @field_validator("shares", "inputs", "applied", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    @model_validator(mode="after")
    def _no_paths(self) -> Self:
        """A server has no say in which files an agent reads."""
        if self.model.features is not None:
            raise ValueError("model.features must not be a path here")
        if not all(math.isfinite(share) and 0 <= share <= 1 for share in self.shares):
            raise ValueError("shares must be in 0..1")
        return self

    def to_json(self) -> str:
        """As it travels."""
        table = self.model_dump(mode="json")
        table["method"] = {"name": self.method.name, **self.method.model_dump(mode="json")}
        return json.dumps(table, allow_nan=False)

    def network(self, frozen: Tensor | None) -> tuple[DenseStack, Any]:
        """The model, and what prepares raw inputs for it."""
        return network(self.model, torch.Size(self.inputs), self.classes, frozen)

    def order(self, model: DenseStack, particles: Tensor, memory: Memory) -> Order:
        """The order itself."""
        if tuple(particles.shape) != (self.method.particles, model.dim):
            raise OrderError(
                f"The particles must be {(self.method.particles, model.dim)}. Got {tuple(particles.shape)}."
            )
        uplink = self.uplink.terms(self.method, model.dim)
        first = None
        if uplink is not None and uplink.informed:
            first = self.method.start(model, self.gaussian, self.prior.init, stream(self.seed, "particles"))
        terms = Terms(self.method, self.seed, uplink, first)
        applied = None if self.applied is None else Applied(*self.applied)
        return Order(self.agent, self.round, terms, particles, self.agents, self.shares, memory, applied)

    @property
    def gaussian(self) -> GaussianPrior:
        """The prior."""
        return GaussianPrior(self.prior.std)


def head_of(order: Order, config: Config, inputs: torch.Size, classes: int, **about: Any) -> Head:
    """The head of an order of a run."""
    feedback = order.terms.uplink is not None and order.terms.uplink.feedback
    return Head(
        agent=order.agent,
        round=order.round,
        agents=order.agents,
        shares=order.shares,
        seed=order.terms.seed,
        method=order.terms.method,
        uplink=config.uplink.model_copy(update={"feedback": feedback, "record_frames": False}),
        model=config.model.model_copy(update={"features": None}),
        prior=config.prior,
        inputs=tuple(inputs),
        classes=classes,
        applied=None if order.applied is None else (order.applied.round, order.applied.share),
        threads=config.threads,
        **about,
    )


def read_head(text: str) -> Head:
    """A head that has travelled. OrderError where it is none."""
    try:
        return Head.model_validate(json.loads(text))
    except (ValidationError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise OrderError(f"This is no order of protocol version {VERSION}: {str(error)[:500]}") from None


class Reply(_Part):
    """What comes back beside the frame. The frame is what counts; the rest is for the record."""

    version: Literal[1] = 1
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
        bits, uplink = 8 * len(frame), order.terms.uplink
        if uplink is None:
            bill = Upload(order.agent, bits, None, float(bits), 0, bits, order.particles.shape[1], captured=1.0)
        else:
            contract = uplink.contract
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
