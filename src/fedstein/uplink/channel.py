"""Both ends of the uplink: the agent turns a difference into a frame, the server a frame into a difference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedstein.errors import PayloadError
from fedstein.uplink.budget import Contract, letter_bits
from fedstein.uplink.frame import decode, encode
from fedstein.uplink.informed import Known, what_both_know

__all__ = ["Uplink", "Upload", "receive", "receive_plain", "send", "send_plain"]


@dataclass(frozen=True)
class Uplink:
    """The terms of a run's uplink: the contract, and whether agents keep what they could not send."""

    contract: Contract
    feedback: bool = False

    @property
    def informed(self) -> bool:
        """Whether the position coder uses what both ends know."""
        return self.contract.positions == "informed"

    def known(self, particles: Tensor, start: Tensor | None) -> list[Known] | None:
        """What both ends know before an upload, if the position coder uses it: then `start` must be given."""
        if not self.informed:
            return None
        assert start is not None
        return what_both_know(particles.numpy(), start.numpy(), self.contract.groups)


@dataclass(frozen=True)
class Upload:
    """The bill of one upload."""

    agent: int
    bits: int
    budget_bits: int | None  # None: no budget, plain float32
    bound_bits: float  # the letter's formula for the same number of kept entries
    position_bits: int  # of `bits`: where the kept entries are
    entry_bits: int  # and what they are; the rest is header, check, scale and filling
    kept: int
    captured: float  # share of the energy of what was to be sent that arrives
    refused: bool = False


def send(
    agent: int, wish: Tensor, contract: Contract, generator: np.random.Generator, known: list[Known] | None
) -> tuple[bytes, Tensor, Upload]:
    """At the agent: the frame of what it wishes to send, what the server will read in it, and the bill."""
    frame, sparse, position_bits = encode(wish.numpy(), contract, generator, known)
    arrives = torch.from_numpy(sparse.dense())
    energy = float(wish.square().sum())
    bill = Upload(
        agent=agent,
        bits=8 * len(frame),
        budget_bits=contract.budget_bits,
        bound_bits=letter_bits(contract, sparse.kept),
        position_bits=position_bits,
        entry_bits=8 * (len(frame) - contract.overhead_bytes) - position_bits,
        kept=sparse.kept,
        captured=1.0 - float((wish - arrives).square().sum()) / energy if energy > 0 else 1.0,
    )
    return frame, arrives, bill


def send_plain(agent: int, wish: Tensor) -> tuple[bytes, Tensor, Upload]:
    """At the agent, without a budget: all of the wish as float32, and the bill."""
    frame = wish.numpy().astype("<f4", copy=False).tobytes()
    bits = 8 * len(frame)
    return frame, wish, Upload(agent, bits, None, float(bits), 0, bits, wish.shape[1], captured=1.0)


def receive_plain(frame: bytes, shape: torch.Size) -> Tensor:
    """At the server, without a budget. PayloadError where the bytes are not so many finite numbers."""
    if len(frame) != 4 * shape.numel():
        raise PayloadError(f"The frame has {len(frame)} bytes, a plain difference {4 * shape.numel()}.")
    found = torch.from_numpy(np.frombuffer(frame, "<f4").astype(np.float32)).reshape(shape)
    if not torch.isfinite(found).all():
        raise PayloadError("The frame has NaN or infinity.")
    return found


def receive(frame: bytes, contract: Contract, known: list[Known] | None) -> Tensor:
    """At the server: the difference in a frame. PayloadError where it is none."""
    return torch.from_numpy(decode(frame, contract, known).dense())
