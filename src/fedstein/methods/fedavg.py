"""FedAvg: plain local steps, differences averaged at the server; one parameter vector, or an ensemble of them.

McMahan et al., "Communication-efficient learning of deep networks from decentralized data" (2017). The
frequentist rival of the letter; everything but the visit is the same code as DSVGD's, with one particle. More than one
are an ensemble: they start apart, see the same minibatches, and know nothing of each other.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fedstein.inference import NoKernel, step_rule, svgd
from fedstein.methods.base import Method, Visit

__all__ = ["FedAvg"]


class FedAvg(Method):
    """Settings of FedAvg."""

    name: ClassVar[str] = "fedavg"
    summary: ClassVar[str] = "federated averaging, one model or an ensemble: the frequentist rival"

    particles: int = Field(1, ge=1, description="1; more are an ensemble of models that share the budget")

    def visit(self, visit: Visit) -> Tensor:
        """L gradient steps on the agent's mean loss."""
        batches = self.minibatches(visit)
        buffer = torch.empty_like(visit.particles)

        def descent(particles: Tensor, step: int) -> Tensor:
            x, y = next(batches)
            return visit.model.loss_gradient(particles, x, y, scale=-1.0, out=buffer)

        rule = step_rule(self.step, self.size_in(visit.round))
        return svgd(visit.particles, descent, NoKernel(), rule, self.local_steps)
