r"""QLSD: quantised Langevin stochastic dynamics, N_p chains side by side.

Vono, Plassier, Durmus, Dieuleveut and Moulines, "QLSD: Quantised Langevin stochastic dynamics for Bayesian federated
learning" (2022). A round is one Langevin step. The agent sends an unbiased compressed estimate C of the drift, and the
server adds the noise, which therefore costs no bits:

.. math:: \theta \leftarrow \theta + \frac\epsilon2\, C\Big(\nabla \log p_0(\theta)
          - \frac{s_k}{\alpha\, f_k} \nabla L_k(\theta)\Big) + \sqrt\epsilon\, \xi, \qquad \xi \sim N(0, I),

with f_k = 1/K as in DSGLD. C thins the drift v first: entry i survives with probability :math:`\min(1, |v_i|/\tau)`
and is divided by it, where tau leaves a fraction `keep` of the entries on average. Of all unbiased ways to leave so
many this has the smallest variance (Wangni et al., 2018). The uplink then rounds what is left stochastically, which is
unbiased as well as long as the frame has room for it: choose `keep` to fit the budget (`fedstein plan`).

Deviation from the paper, where every agent answers in every round: here those that are scheduled.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedstein.methods.base import BayesianMethod, Visit

__all__ = ["QLSD", "thin"]


class QLSD(BayesianMethod):
    """Settings of QLSD."""

    name: ClassVar[str] = "qlsd"
    summary: ClassVar[str] = "quantised Langevin dynamics: compressed drifts, noise at the server"
    samples: ClassVar[bool] = True

    local_steps: Literal[1] = Field(1, description="always 1: a round is one Langevin step")
    step: Literal["gradient"] = Field("gradient", description="always the plain step")
    step_size: float = Field(
        1e-6, gt=0, le=1e30, allow_inf_nan=False, description="epsilon, also the variance of the noise"
    )
    anneal_over: None = Field(None, description="never: the noise belongs to the step")
    keep: float = Field(1.0, gt=0, le=1, description="fraction of the entries that the agent's thinning leaves")

    def visit(self, visit: Visit) -> Tensor:
        """One step along a thinned drift."""
        x, y = next(self.minibatches(visit))
        drift = visit.model.loss_gradient(visit.particles, x, y, scale=-self.data_weight(visit) * visit.agents)
        drift = drift + visit.prior.score(visit.particles)
        if self.keep < 1:
            # On the CPU: its sums are in float64, which not every device has.
            drift = thin(drift.cpu(), self.keep, visit.stream("thinning")).to(drift.device)
        return visit.particles + 0.5 * self.step_size * drift

    def server_step(self, particles: Tensor, generator: torch.Generator) -> Tensor:
        """The noise."""
        return particles + math.sqrt(self.step_size) * torch.randn(particles.shape, generator=generator)


def thin(values: Tensor, keep: float, generator: torch.Generator) -> Tensor:
    """Unbiased: zeros but for about a fraction `keep` of each row's entries.

    >>> thin(torch.tensor([[4.0, 0.0, 0.0, -4.0]]), 0.5, torch.Generator().manual_seed(0))
    tensor([[ 4.,  0.,  0., -4.]])
    """
    if not torch.isfinite(values).all():
        return values  # the engine refuses them
    dtype, values = values.dtype, values.double()  # a sum of large entries must not overflow
    sizes = values.abs().sort(dim=1, descending=True).values
    wanted = keep * values.shape[1]
    # If the m largest always survive, the others do with |v_i| / tau, tau = (sum of the others) / (wanted - m);
    # m is the first number for which no probability is above 1.
    rest = sizes.flip(1).cumsum(1).flip(1)
    left = wanted - torch.arange(values.shape[1], dtype=values.dtype, device=values.device)
    fits = (left > 0) & (sizes * left <= rest)
    first = fits.to(torch.int8).argmax(1, keepdim=True)
    threshold = rest.gather(1, first) / left[first]
    threshold = torch.where(fits.any(1, keepdim=True), threshold, sizes[:, -1:])
    chance = (values.abs() / threshold.clamp_min(torch.finfo(values.dtype).tiny)).clamp_max(1.0)
    drawn = torch.rand(values.shape, generator=generator, dtype=values.dtype).to(values.device)
    alive = drawn < chance
    return torch.where(alive, values / chance.clamp_min(torch.finfo(values.dtype).tiny), 0.0).to(dtype)
