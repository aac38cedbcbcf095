r"""FedProx: FedAvg whose local steps are pulled back to where they began.

Li et al., "Federated optimization in heterogeneous networks" (2020). A visit descends
:math:`L_k(\theta) + \frac\mu2 \|\theta - \theta_\mathrm{downloaded}\|^2`.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from fedstein.inference import NoKernel, step_rule, svgd
from fedstein.methods import Method, Visit

__all__ = ["FedProx"]


class FedProx(Method):
    """Settings of FedProx."""

    name: ClassVar[str] = "fedprox"
    summary: ClassVar[str] = "FedAvg with a proximal term, for agents with unlike data"

    particles: int = Field(1, ge=1, description="1; more are an ensemble of models that share the budget")
    proximal: float = Field(0.1, ge=0, allow_inf_nan=False, description="mu, the pull to the downloaded parameters")

    def visit(self, visit: Visit) -> Tensor:
        """L steps on the agent's mean loss and the pull."""
        batches = self.minibatches(visit)
        buffer = torch.empty_like(visit.particles)

        def descent(particles: Tensor, step: int) -> Tensor:
            x, y = next(batches)
            gradient = visit.model.loss_gradient(particles, x, y, scale=-1.0, out=buffer)
            return gradient.sub_(particles - visit.particles, alpha=self.proximal)

        rule = step_rule(self.step, self.size_in(visit.round))
        return svgd(visit.particles, descent, NoKernel(), rule, self.local_steps)
