r"""DSVGD: federated Stein variational gradient descent.

Kassab and Simeone, "Federated generalized Bayesian learning via distributed Stein variational gradient
descent" (2022); Gong, Simeone and Kang, "Compressed particle-based federated Bayesian learning and
unlearning" (the letter), section II-B. The posterior is modelled as :math:`q = p_0 \prod_k t_k`. A visit
moves the particles by L steps of SVGD towards the tilted distribution (equation 7)

.. math:: \tilde p_k(\theta) \propto \frac{q(\theta)}{t_k(\theta)} \exp\Big(-\frac1\alpha s L_k(\theta)\Big)

with s = 1 (`likelihood = "mean"`) or N_k ("sum"). In the very first round q is the prior itself (flat, kde).
What the agent's factor t_k is, and where it deviates from the letter: `methods/factors/`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
from pydantic import AfterValidator, Field, model_validator
from torch import Tensor

from fedstein.inference import KERNELS, Kernel, Prior, svgd
from fedstein.methods.base import BayesianMethod, Memory, StepName, Visit, places
from fedstein.methods.factors import FACTORS, Factor

__all__ = ["DSVGD"]

Weights = dict[str, Tensor]
"""Arguments of a gradient: `weights` (N, B), or none, so that a model that knows none can do without."""


class DSVGD(BayesianMethod):
    """Settings of DSVGD."""

    name: ClassVar[str] = "dsvgd"
    summary: ClassVar[str] = "distributed SVGD (the letter), with flat, kde or linear agent factors"

    factor: Annotated[str, AfterValidator(FACTORS.check)] = Field("flat", description="the agent's factor t_k")
    kernel: Annotated[str, AfterValidator(KERNELS.check)] = Field(
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
    resample: Literal["none", "bootstrap"] = Field(
        "none",
        description="bootstrap: each particle weighs an agent's examples in its own way, which gives the particles the "
        "spread that the data's noise has (with factor linear and prior.init = 'prior'; kernel none)",
    )

    @model_validator(mode="before")
    @classmethod
    def _fit_the_factor(cls, given: Any) -> Any:
        """What was left out is filled in to suit the factor."""
        if isinstance(given, dict) and (name := given.get("factor")) in FACTORS:
            fitting = FACTORS[str(name)].fitting
            if given.get("step", "gradient") != "gradient":  # the size is that of another rule
                fitting = {key: value for key, value in fitting.items() if key not in ("step", "step_size")}
            return {**fitting, **given}
        return given

    @model_validator(mode="after")
    def _alone_with_its_target(self) -> Self:
        if self.contributes.can_be_taken_back and self.kernel != "none":
            raise ValueError(
                f"kernel must be 'none' with factor '{self.factor}': each particle has a target of its own, "
                f"so a kernel that mixes them has no meaning. Got '{self.kernel}' instead."
            )
        if self.resample != "none" and self.kernel != "none":
            raise ValueError(
                f"kernel must be 'none' with resample '{self.resample}': each particle has data weighted for it alone, "
                f"so a kernel that mixes them has no meaning. Got '{self.kernel}' instead."
            )
        return self

    @property
    def contributes(self) -> Factor:
        """The factor itself."""
        return FACTORS[self.factor]

    @property
    def remembers(self) -> bool:
        """Without its factor, an agent would count its data a second time."""
        return bool(self.contributes.keeps)

    @property
    def forgets_by(self) -> tuple[str, ...]:
        """By Forget-SVGD; by taking back what its factor remembers, if it can."""
        return ("take-back", "forget-svgd") if self.can_be_taken_back else ("forget-svgd",)

    @property
    def can_be_taken_back(self) -> bool:
        """As its factor can."""
        return self.contributes.can_be_taken_back

    def contribution(self, memory: Memory) -> Memory:
        """What its factor remembers."""
        return self.contributes.own(memory)

    def contribution_size(self, memory: Memory) -> float | None:
        """As its factor measures it."""
        return self.contributes.size(memory)

    def portion(self, total: Tensor, parts: int, prior: Prior) -> Tensor:
        """As its factor remembers it."""
        return self.contributes.portion(total, parts, prior)

    def take_over(self, memory: Memory, portion: Tensor) -> Memory:
        """Into its factor."""
        return self.contributes.take_over(memory, portion)

    def check(self, prior: Prior) -> None:
        """Whatever the factor needs."""
        self.make_kernel()  # one from outside that cannot be loaded says so now
        self.contributes.check(self, prior)

    def visit(self, visit: Visit) -> Tensor:
        """L local steps towards the tilted distribution (equations 5 to 7)."""
        weight = self.data_weight(visit)
        batches, weights = self.minibatches(visit), self.example_weights(visit)
        buffer = torch.empty_like(visit.particles)

        def score(particles: Tensor, step: int) -> Tensor:
            x, y = next(batches)
            gradient = visit.model.loss_gradient(particles, x, y, scale=-weight, out=buffer, **next(weights))
            return self.contributes.add_cavity_score(gradient, particles, visit, self)

        return svgd(visit.particles, score, self.make_kernel(), self.rule(weight, visit.round), self.local_steps)

    def settle(self, visit: Visit, applied: Tensor) -> Memory:
        """Bring the factor t_k up to date with what was applied."""
        return self.contributes.settle(visit, applied, self)

    def example_weights(self, visit: Visit) -> Iterator[Weights]:
        """For each minibatch of the visit, how each particle weighs its examples; nothing without resampling.

        They are Rubin's Bayesian bootstrap of the agent's examples, Exp(1) draws divided by their mean. An example has
        its place in the agent's data, and with it the same weights at every visit: nobody has to remember them.
        """
        if self.resample == "none":
            while True:
                yield {}
        size = len(visit.data)
        uniform = torch.rand(
            len(visit.particles), size, generator=visit.stream("bootstrap", round=0), dtype=torch.float64
        )
        drawn = -torch.log1p(-uniform)  # written out: exponential_ is another one on another build of torch
        drawn = (drawn / drawn.mean(1, keepdim=True)).float()
        # The same stream as that of the minibatches, so the same order.
        for now in places(size, self.batch, self.local_steps, visit.stream("batches")):
            yield {"weights": drawn[:, now].to(visit.particles.device)}

    def make_kernel(self) -> Kernel:
        """The kernel of a visit."""
        return KERNELS[self.kernel](self.kernel_bandwidth, self.kde_bandwidth)

    def q_is_the_prior(self, visit: Visit) -> bool:
        """On the first visit of all q is known exactly, and its draws need no KDE."""
        return visit.round == 0
