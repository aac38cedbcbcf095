r"""``kde``: t_k is the KDE of the agent's local particles (the letter, equation 7 and what follows it).

After a visit they are distilled towards :math:`t_k\, q_\mathrm{new} / q_\mathrm{old}`. Right in one dimension, and for
one visit of each agent; in two dimensions agents that are visited again drift away, and in many it means nothing
(docs/theory.md).

Deviations from the letter: the distillation uses the flow of `SmoothedDensity` and a small floor under the densities,
because with SVGD the KDE errors add up until the particles leave the posterior (docs/ideas.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from fedstein.inference import Gradient, SmoothedDensity, add_log_kde_score, svgd
from fedstein.methods.base import Memory, Visit
from fedstein.methods.factors.base import Factor

if TYPE_CHECKING:
    from fedstein.methods.dsvgd import DSVGD

__all__ = ["Kde"]

_LOCAL = "local_particles"


class Kde(Factor):
    """Remembers local particles."""

    name: ClassVar[str] = "kde"
    summary: ClassVar[str] = "t_k is a KDE of local particles: for one dimension, or one visit of each agent"
    keeps: ClassVar[tuple[str, ...]] = (_LOCAL,)
    fitting: ClassVar[Mapping[str, Any]] = {"kernel": "density", "step": "gradient", "step_size": 0.05}

    def add_cavity_score(self, to: Tensor, at: Tensor, visit: Visit, method: DSVGD) -> Tensor:
        """The log-KDE of q less that of the local particles, where there are some."""
        self.add_q_score(to, at, visit, method)
        if visit.memory:
            add_log_kde_score(to, at, visit.memory[_LOCAL], method.kde_bandwidth, sign=-1.0, floor=self.floor(method))
        return to

    def floor(self, method: DSVGD) -> float:
        """`method.kde_floor`."""
        return method.kde_floor

    def settle(self, visit: Visit, applied: Tensor, method: DSVGD) -> Memory:
        """Local particles whose KDE is t_k q_new / q_old."""
        old, new = visit.memory.get(_LOCAL), visit.particles + applied
        width, floor = method.kde_bandwidth, self.floor(method)

        def score(particles: Tensor, step: int) -> Tensor:
            ratio = torch.zeros_like(particles)
            add_log_kde_score(ratio, particles, new, width, floor=floor)
            self.add_q_score(ratio, particles, visit, method, sign=-1.0)
            if old is not None:
                add_log_kde_score(ratio, particles, old, width, floor=floor)
            return ratio

        # The same floor on both sides: where q has not changed, nothing moves.
        flow = SmoothedDensity(width, floor)
        rule = Gradient(method.distil_step_size)
        return {_LOCAL: svgd(new if old is None else old, score, flow, rule, method.distil_steps)}

    def at_random(self, visit: Visit) -> Memory:
        """Draws of the prior."""
        shape = (len(visit.particles), visit.model.dim)
        return {_LOCAL: visit.prior.draw(shape, visit.stream("local particles")).to(visit.particles.device)}
