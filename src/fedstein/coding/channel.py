"""Both ends of the uplink: the agent turns a difference into a frame, the server a frame into a difference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedstein.coding.budget import letter_bits
from fedstein.coding.contract import Contract
from fedstein.coding.fitting import encode
from fedstein.coding.frame import decode
from fedstein.coding.shared import Shared
from fedstein.errors import PayloadError

__all__ = ["Link", "Upload", "receive", "receive_plain", "send", "send_plain"]


@dataclass(frozen=True)
class Link:
    """The terms of a run's uploads: the contract, and whether agents keep what they could not send."""

    contract: Contract
    feedback: bool = False

    @property
    def needs_first(self) -> bool:
        """Whether some part of the contract needs `Shared.first`."""
        return self.contract.needs_first


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
    agent: int, wish: Tensor, contract: Contract, generator: np.random.Generator, shared: Shared | None
) -> tuple[bytes, Tensor, Upload]:
    """At the agent: code what it wishes to send.

    Args:
        agent: which one, for the bill.
        wish: (particles, d), finite.
        contract: what both ends know.
        generator: of the rounding.
        shared: what both ends know of this upload; None if no part of the contract uses it.

    Returns:
        The frame, what the server will read in it, and the bill.
    """
    frame, sparse, position_bits = encode(wish.numpy(), contract, generator, shared)
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
    """At the agent, without a budget: all of the wish as float32.

    Args:
        agent: which one, for the bill.
        wish: (particles, d).

    Returns:
        The frame, what the server will read in it, and the bill.
    """
    frame = wish.numpy().astype("<f4", copy=False).tobytes()
    bits = 8 * len(frame)
    return frame, wish, Upload(agent, bits, None, float(bits), 0, bits, wish.shape[1], captured=1.0)


def receive(frame: bytes, contract: Contract, shared: Shared | None) -> Tensor:
    """At the server: the difference in a frame.

    Args:
        frame: bytes from anybody.
        contract: what both ends know.
        shared: what the agent knew too.

    Returns:
        (particles, d), finite.

    Raises:
        PayloadError: the bytes are no frame of this contract.
    """
    return torch.from_numpy(decode(frame, contract, shared).dense())


def receive_plain(frame: bytes, shape: torch.Size) -> Tensor:
    """At the server, without a budget: the difference in a frame.

    Args:
        frame: bytes from anybody.
        shape: (particles, d).

    Returns:
        A finite tensor of that shape.

    Raises:
        PayloadError: the bytes are not so many finite numbers.
    """
    if len(frame) != 4 * shape.numel():
        raise PayloadError(f"The frame has {len(frame)} bytes, a plain difference {4 * shape.numel()}.")
    difference = torch.from_numpy(np.frombuffer(frame, "<f4").astype(np.float32)).reshape(shape)
    if not torch.isfinite(difference).all():
        raise PayloadError("The frame has NaN or infinity.")
    return difference
