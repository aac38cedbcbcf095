r"""Central SVGD: all data in one place, the ceiling for DSVGD.

Liu and Wang (2016). The target is the generalised posterior of equations (3) and (4),
:math:`p_0(\theta) \exp(-\frac1\alpha \sum_k s_k L_k(\theta))`; with K equal agents and
`likelihood = "mean"` the sum is K times the mean loss over all examples.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from pydantic import AfterValidator, Field
from torch import Tensor

from fedstein.inference import KERNELS, svgd
from fedstein.methods.base import BayesianMethod, Visit

__all__ = ["CentralSVGD"]


class CentralSVGD(BayesianMethod):
    """Settings of central SVGD."""

    name: ClassVar[str] = "svgd"
    summary: ClassVar[str] = "SVGD on all data in one place: what federation costs"
    central: ClassVar[bool] = True

    kernel: Annotated[str, AfterValidator(KERNELS.check)] = Field("rbf", description="kernel of SVGD")
    kernel_bandwidth: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="h; the median rule if left out"
    )
    kde_bandwidth: float = Field(0.55, gt=0, allow_inf_nan=False, description="lambda of the kernel 'density'")

    def data_weight(self, visit: Visit) -> float:
        """Of the mean loss over all examples."""
        return (len(visit.data) if self.likelihood == "sum" else visit.agents) / self.temperature

    def visit(self, visit: Visit) -> Tensor:
        """L steps of SVGD on the posterior."""
        weight = self.data_weight(visit)
        batches = self.minibatches(visit)
        buffer = torch.empty_like(visit.particles)
        kernel = KERNELS[self.kernel](self.kernel_bandwidth, self.kde_bandwidth)

        def score(particles: Tensor, step: int) -> Tensor:
            x, y = next(batches)
            gradient = visit.model.loss_gradient(particles, x, y, scale=-weight, out=buffer)
            return gradient.add_(visit.prior.score(particles))

        return svgd(visit.particles, score, kernel, self.rule(weight, visit.round), self.local_steps)
