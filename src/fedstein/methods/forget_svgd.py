r"""Forget-SVGD: each agent that asked runs SVGD away from its own data.

Gong, Simeone and Kang, "Forget-SVGD: particle-based Bayesian federated unlearning" (2022), and the letter, section
II-C; Nguyen, Low and Jaillet, "Variational Bayesian unlearning" (2020). Only the agents that asked to be forgotten are
scheduled. A visit moves the particles by SVGD towards (equation 8)

.. math:: \tilde p_k(\theta) \propto \frac{q(\theta)}{t_k(\theta)} \exp\Big(+\frac1\alpha s L_k(\theta)\Big)

with random local particles at first (factor kde: draws of the prior), and then updates t_k as in DSVGD.

As it is written (`guarded = false`) this runs away, even in one dimension: exp(+L_k) has no bound where the likelihood
is tiny, and the KDEs of q and t_k do not remember well enough what was taken away already, so every visit takes it away
again. The guards, on by default:

- The *anchor*: while one agent forgets, q / t_k should not change. So the target is made once, from the particles as
  they were when the agent began: :math:`\tilde p_k \propto q_\mathrm{before} \exp(+\frac s\alpha L_k)`. Every visit
  goes on towards the same target, and nothing is taken away twice. Several agents forget one after the other: if they
  alternated, each would move back what the others have moved.
- The *floor* of variational unlearning: the likelihood is pushed away only where q_before is above a share of its
  highest value.
- *Chance*: an example that the model already finds as unlikely as a guess pushes no more. When there is none left that
  pushes, the agent has nothing to send.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar, Self

import torch
from pydantic import Field
from torch import Tensor

from fedstein.inference import add_log_kde_score, log_kde, svgd
from fedstein.methods.base import Memory, Method, Visit
from fedstein.methods.dsvgd import DSVGD

__all__ = ["ForgetSVGD"]

# The letter's own, whatever the run: only temperature, likelihood, batches and the number of local steps are its.
LETTER = {
    "factor": "kde",
    "kde_floor": 0.0,
    "kernel": "rbf",
    "resample": "none",
    "step": "ema-adagrad",
    "step_size": 1e-3,
}


class ForgetSVGD(DSVGD):
    """Settings of Forget-SVGD: those of the DSVGD that trained the model, and the guards."""

    name: ClassVar[str] = "forget-svgd"
    summary: ClassVar[str] = "Forget-SVGD (the letter), guarded so that it does not run away"

    guarded: bool = Field(True, description="false: as the letter writes it")
    density_floor: float = Field(
        0.03, ge=0, lt=1, description="push only where the density before is above this share of its highest value"
    )
    chance: bool = Field(True, description="examples as unlikely as a guess push no more (classifiers)")

    @classmethod
    def of(cls, method: Method, guarded: bool) -> Self:
        """For a run that was trained with `method`; without guards it is the letter's."""
        whole = method.annealed_anew(0, None).model_dump()  # pushing away is no end of a training
        return cls(**whole | ({} if guarded else LETTER), guarded=guarded)

    @property
    def remembers(self) -> bool:
        """The anchor, or t_k."""
        return True

    def visit(self, visit: Visit) -> Tensor:
        """L local steps towards the tilted distribution of equation 8."""
        weight = self.data_weight(visit)
        batches, weights = self.minibatches(visit), self.example_weights(visit)
        buffer = torch.empty_like(visit.particles)
        visit = self._with_local_particles(visit)
        before = visit.memory.get("before", visit.particles)
        highest = float(log_kde(before, before, self.kde_bandwidth).max())

        def push(particles: Tensor) -> Tensor:
            (x, y), weighed = next(batches), next(weights)
            size = len(x)
            if self.guarded and self.chance and visit.model.likelihood.predicts:
                known = self._better_than_a_guess(visit, particles, x, y)
                x, y, weighed = x[known], y[known], {name: value[:, known] for name, value in weighed.items()}
            if len(x) == 0:
                return buffer.zero_()
            scale = weight * len(x) / size
            return visit.model.loss_gradient(particles, x, y, scale=scale, out=buffer, **weighed)

        def score(particles: Tensor, step: int) -> Tensor:
            gradient = push(particles)
            if not self.guarded:
                return self.contributes.add_cavity_score(gradient, particles, visit, self)
            if self.density_floor > 0:
                limit = highest + math.log(self.density_floor)
                gradient.mul_((log_kde(particles, before, self.kde_bandwidth) > limit)[:, None])
            return add_log_kde_score(gradient, particles, before, self.kde_bandwidth)

        return svgd(visit.particles, score, self.make_kernel(), self.rule(weight, visit.round), self.local_steps)

    def settle(self, visit: Visit, applied: Tensor) -> Memory:
        """The anchor stays as it was; as the letter writes it, t_k is brought up to date."""
        if not self.guarded:
            return super().settle(self._with_local_particles(visit), applied)
        return {"before": visit.memory.get("before", visit.particles)}

    def _with_local_particles(self, visit: Visit) -> Visit:
        """As the letter begins: an agent that has not forgotten yet draws its local particles at random."""
        if self.guarded or visit.memory:
            return visit
        return replace(visit, memory=self.contributes.at_random(visit))

    def q_is_the_prior(self, visit: Visit) -> bool:
        """Never here, not even in a first round."""
        return False

    @staticmethod
    def _better_than_a_guess(visit: Visit, particles: Tensor, x: Tensor, y: Tensor) -> Tensor:
        outputs = visit.model.outputs(particles, x).cpu()  # mixtures are in float64, which not every device has
        return visit.model.likelihood.better_than_a_guess(outputs, y.cpu()).to(x.device)
