r"""DSGLD: distributed stochastic gradient Langevin dynamics, N_p chains side by side.

Ahn, Shahbaba and Welling, "Distributed stochastic gradient MCMC" (2014). A visit makes L steps

.. math:: \theta \leftarrow \theta + \frac\epsilon2 \Big(\nabla \log p_0(\theta)
          - \frac{s_k}{\alpha\, f_k} \nabla L_k(\theta)\Big) + \sqrt\epsilon\, \xi, \qquad \xi \sim N(0, I),

where f_k is the share of rounds in which agent k is scheduled (1/K), so that the drift is right on average
over agents. The noise has variance epsilon in each step, whatever the batch; the stationary distribution
tends to the posterior as epsilon tends to 0. Where several agents visit in a round their differences are averaged,
and with them the noise; each agent then draws so much more of it that epsilon is what is left.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedstein.methods.base import BayesianMethod, Visit

__all__ = ["DSGLD"]


class DSGLD(BayesianMethod):
    """Settings of DSGLD."""

    name: ClassVar[str] = "dsgld"
    summary: ClassVar[str] = "distributed stochastic gradient Langevin dynamics: the sampling rival"
    samples: ClassVar[bool] = True

    step: Literal["gradient"] = Field("gradient", description="always the plain step")
    step_size: float = Field(
        1e-4, gt=0, le=1e30, allow_inf_nan=False, description="epsilon, also the variance of the noise"
    )
    anneal_over: None = Field(None, description="never: the noise belongs to the step")

    def visit(self, visit: Visit) -> Tensor:
        """L Langevin steps."""
        weight = self.data_weight(visit) * visit.agents
        noise = visit.stream("langevin")
        spread = math.sqrt(self.step_size / sum(share**2 for share in visit.shares))
        particles = visit.particles.clone()
        buffer = torch.empty_like(particles)
        for x, y in self.minibatches(visit):
            drift = visit.model.loss_gradient(particles, x, y, scale=-weight, out=buffer)
            drift.add_(visit.prior.score(particles))
            particles.add_(drift, alpha=0.5 * self.step_size)
            particles.add_(torch.randn(particles.shape, generator=noise).to(particles.device), alpha=spread)
        return particles
