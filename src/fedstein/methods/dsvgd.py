r"""DSVGD: federated Stein variational gradient descent.

Kassab and Simeone, "Federated generalized Bayesian learning via distributed Stein variational gradient
descent" (2022); Gong, Simeone and Kang, "Compressed particle-based federated Bayesian learning and
unlearning" (the letter), section II-B. The posterior is modelled as :math:`q = p_0 \prod_k t_k`. A visit
moves the particles by L steps of SVGD towards the tilted distribution (equation 7)

.. math:: \tilde p_k(\theta) \propto \frac{q(\theta)}{t_k(\theta)} \exp\Big(-\frac1\alpha s L_k(\theta)\Big)

with s = 1 (`likelihood = "mean"`) or N_k ("sum"). In the very first round q is the prior itself (flat, kde).

The agent's factor t_k is one of

- ``flat``: t_k = 1 always. Every visit counts the data again; the letter's experiments come close to this.
- ``kde``: the KDE of the agent's local particles, distilled after the visit towards
  :math:`t_k\, q_\mathrm{new} / q_\mathrm{old}`. Right in a few dimensions, meaningless in many.
- ``linear``: :math:`\log t_k(\theta) = g_{k,n} \cdot \theta` near particle n. The visit then is, for each particle
  alone, :math:`-\frac\rho2 \|\theta - \theta_n\|^2 - g_{k,n} \cdot \theta - \frac s\alpha L_k(\theta)`, and the
  site collects :math:`g_{k,n} \leftarrow g_{k,n} + \delta\, (\theta_\mathrm{new} - \theta_\mathrm{old})`, with
  the stiffness rho of the pull and the precision delta of the prior. Fixed point:
  :math:`\delta (\theta_n - \theta_n^0) + \frac s\alpha \sum_k \nabla L_k(\theta_n) = 0`, whatever rho is.

Deviations from the letter: the distillation uses the flow of `SmoothedDensity` and a small floor under the
densities, because with SVGD the KDE errors add up until the particles leave the posterior (docs/ideas.md).
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from fedstein.errors import UserError
from fedstein.inference import (
    IMQ,
    RBF,
    GaussianPrior,
    Gradient,
    Kernel,
    NoKernel,
    Prior,
    SmoothedDensity,
    add_log_kde_score,
    svgd,
)
from fedstein.methods.base import BayesianMethod, Memory, StepName, Visit

__all__ = ["DSVGD"]


_FITTING: dict[str, dict[str, Any]] = {
    "kde": {"kernel": "density", "step": "gradient", "step_size": 0.05},
    "linear": {"kernel": "none", "step": "gradient", "step_size": 0.1},
}


class DSVGD(BayesianMethod):
    """Settings of DSVGD."""

    name: ClassVar[str] = "dsvgd"
    summary: ClassVar[str] = "distributed SVGD (the letter), with flat, kde or linear agent factors"

    factor: Literal["flat", "kde", "linear"] = Field("flat", description="the agent's factor t_k")
    kernel: Literal["rbf", "imq", "density", "none"] = Field(
        "rbf", description="kernel of SVGD; if left out, rbf (flat), density (kde) or none (linear)"
    )
    step: StepName = Field("ema-adagrad", description="step rule; if left out, gradient with factor kde or linear")
    step_size: float = Field(
        1e-3,
        gt=0,
        le=1e30,
        allow_inf_nan=False,
        description="its size; if left out, 0.05 with factor kde, 0.1 with linear",
    )
    kernel_bandwidth: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="h of rbf and imq; the median rule if left out"
    )
    kde_bandwidth: float = Field(0.55, gt=0, allow_inf_nan=False, description="lambda of every KDE")
    kde_floor: float = Field(1e-3, ge=0, lt=1, description="floor under the densities of factor kde")
    distil_steps: int = Field(200, ge=1, description="steps of the second loop, which distils local particles (kde)")
    distil_step_size: float = Field(0.05, gt=0, allow_inf_nan=False, description="its plain step size")
    stiffness: float = Field(10.0, gt=0, allow_inf_nan=False, description="rho, the pull of factor linear")

    @model_validator(mode="before")
    @classmethod
    def _fit_the_factor(cls, given: Any) -> Any:
        """What was left out is filled in to suit the factor."""
        if isinstance(given, dict) and str(given.get("factor")) in _FITTING:
            fitting = _FITTING[given["factor"]]
            if given.get("step", "gradient") != "gradient":
                fitting = {"kernel": fitting["kernel"]}
            return fitting | given
        return given

    @model_validator(mode="after")
    def _linear_is_alone(self) -> Self:
        if self.factor == "linear" and self.kernel != "none":
            raise ValueError(
                "kernel must be 'none' with factor 'linear': each particle has a target of its own, "
                f"so a kernel that mixes them has no meaning. Got '{self.kernel}' instead."
            )
        return self

    @property
    def remembers(self) -> bool:
        """Without its factor, an agent would count its data a second time."""
        return self.factor != "flat"

    def check(self, prior: Prior) -> None:
        """Factor linear needs the prior's precision, and a pull at least as stiff."""
        if self.factor != "linear":
            return
        if not isinstance(prior, GaussianPrior):
            raise UserError("The factor 'linear' needs a Gaussian prior: its precision is part of the site.")
        if prior.precision > self.stiffness:
            raise UserError(
                f"The 'method.stiffness' must be at least the prior's precision 1/std^2 = {prior.precision:g}. "
                f"Got {self.stiffness:g} instead."
            )

    def visit(self, visit: Visit) -> Tensor:
        """L local steps towards the tilted distribution (equations 5 to 7)."""
        weight = self.data_weight(visit)
        batches = self.minibatches(visit)
        buffer = torch.empty_like(visit.particles)

        def score(particles: Tensor, step: int) -> Tensor:
            x, y = next(batches)
            gradient = visit.model.loss_gradient(particles, x, y, scale=-weight, out=buffer)
            return self._add_cavity_score(gradient, particles, visit)

        return svgd(visit.particles, score, self._kernel(), self.rule(weight), self.local_steps)

    def settle(self, visit: Visit, applied: Tensor) -> Memory:
        """Bring the factor t_k up to date with what was applied."""
        if self.factor == "linear":
            assert isinstance(visit.prior, GaussianPrior)
            change = applied * visit.prior.precision
            return {"site": visit.memory["site"] + change if visit.memory else change}
        if self.factor == "kde":
            return {"local_particles": self._distil(visit, visit.particles + applied)}
        return {}

    def _kernel(self) -> Kernel:
        if self.kernel == "rbf":
            return RBF(self.kernel_bandwidth)
        if self.kernel == "imq":
            return IMQ(self.kernel_bandwidth)
        return SmoothedDensity(self.kde_bandwidth) if self.kernel == "density" else NoKernel()

    def _add_cavity_score(self, to: Tensor, particles: Tensor, visit: Visit) -> Tensor:
        """`to` += the score of q / t_k."""
        if self.factor == "linear":
            to.sub_(particles, alpha=self.stiffness).add_(visit.particles, alpha=self.stiffness)
            return to.sub_(visit.memory["site"]) if visit.memory else to
        self._add_q_score(to, particles, visit)
        if visit.memory:
            local = visit.memory["local_particles"]
            add_log_kde_score(to, particles, local, self.kde_bandwidth, sign=-1.0, floor=self.kde_floor)
        return to

    def _add_q_score(self, to: Tensor, at: Tensor, visit: Visit, sign: float = 1.0) -> Tensor:
        """`to` += sign * the score of q as downloaded: the prior itself on the first visit of all."""
        if visit.round == 0:
            return to.add_(visit.prior.score(at), alpha=sign)
        floor = self.kde_floor if self.factor == "kde" else 0.0
        return add_log_kde_score(to, at, visit.particles, self.kde_bandwidth, sign, floor)

    def _distil(self, visit: Visit, new: Tensor) -> Tensor:
        """Local particles whose KDE is t_k q_new / q_old."""
        old = visit.memory.get("local_particles")

        def score(particles: Tensor, step: int) -> Tensor:
            found = torch.zeros_like(particles)
            add_log_kde_score(found, particles, new, self.kde_bandwidth, floor=self.kde_floor)
            self._add_q_score(found, particles, visit, sign=-1.0)
            if old is not None:
                add_log_kde_score(found, particles, old, self.kde_bandwidth, floor=self.kde_floor)
            return found

        start = new if old is None else old
        rule = Gradient(self.distil_step_size)
        # The same floor on both sides: where q has not changed, nothing moves.
        flow = SmoothedDensity(self.kde_bandwidth, self.kde_floor)
        return svgd(start, score, flow, rule, self.distil_steps)
