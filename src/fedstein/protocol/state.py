"""What goes on from round to round, and what is told about a round: two things."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from fedstein.coding import Upload
from fedstein.posterior import Turns
from fedstein.protocol.memories import Memories
from fedstein.protocol.messages import Outcome

__all__ = ["ESCROW", "Metrics", "State", "Told", "Totals"]

ESCROW = "escrow"  # what the server keeps of an agent: the sum of all that it applied

Metrics = dict[str, Any]


@dataclass(frozen=True)
class Totals:
    """All bills of a run so far."""

    uploads: int = 0
    upload_bits: int = 0
    download_bits: int = 0
    max_upload_bits: int = 0
    refused: int = 0

    def add(self, uploads: Sequence[Upload], download_bits: int) -> Totals:
        """With those of one more round."""
        return Totals(
            self.uploads + len(uploads),
            self.upload_bits + sum(upload.bits for upload in uploads),
            self.download_bits + download_bits,
            max([self.max_upload_bits, *(upload.bits for upload in uploads)]),
            self.refused + sum(upload.refused for upload in uploads),
        )


@dataclass(frozen=True, repr=False)
class State:
    """All that the next round needs to know: enough to go on from, and nothing else."""

    round: int  # rounds done
    particles: Tensor  # (N_p, d)
    memories: Memories = field(default_factory=Memories)  # what the server's machine keeps of each agent
    totals: Totals = Totals()
    outcomes: Mapping[int, Outcome] = field(default_factory=dict)  # last visits, of agents that remember themselves
    turns: Turns = field(default_factory=Turns)  # where the particles have been

    def __repr__(self) -> str:
        return f"State(round {self.round}, particles {tuple(self.particles.shape)}, {len(self.memories)} memories)"


@dataclass(frozen=True, repr=False)
class Told:
    """What is told about a round. Nothing goes on from it."""

    uploads: tuple[Upload, ...] = ()  # its bills
    frames: tuple[bytes, ...] = ()  # as they arrived
    metrics: Metrics | None = None  # where the round was evaluated

    def __repr__(self) -> str:
        return f"Told({len(self.uploads)} uploads{'' if self.metrics is None else ', evaluated'})"
