"""Taking back: the agent undoes the displacement that it has caused, as much of it as an upload carries.

For factors that remember it (`linear`): the site is the sum of the displacements times the prior's precision, and what
is left of it after an upload is all that there is still to send.
"""

from __future__ import annotations

from typing import ClassVar, Self

from torch import Tensor

from fedstein.methods.base import Memory, Method, Visit
from fedstein.methods.dsvgd import DSVGD

__all__ = ["TakeBack"]


class TakeBack(DSVGD):
    """The settings of the DSVGD that trained the model."""

    name: ClassVar[str] = "take-back"
    summary: ClassVar[str] = "erasure by taking back what the agent has contributed"

    @classmethod
    def of(cls, method: Method, guarded: bool) -> Self:
        """For a run that was trained with `method`."""
        return cls(**method.model_dump())

    def inherit(self, memory: Memory) -> Memory:
        """What is left of the contribution is all that there is to send."""
        return self.contribution(memory)

    def visit(self, visit: Visit) -> Tensor:
        """The particles without what is left of this agent's displacement."""
        if not self.contribution(visit.memory):  # it never took part
            return visit.particles
        return visit.particles - self.contributes.displacement(visit.memory, visit.prior)
