r"""``linear``: :math:`\log t_k(\theta) = g_{k,n} \cdot \theta` near particle n, the agent's *site*.

The visit then is, for each particle alone,
:math:`-\frac\rho2 \|\theta - \theta_n\|^2 - g_{k,n} \cdot \theta - \frac s\alpha L_k(\theta)`, and the site collects
:math:`g_{k,n} \leftarrow g_{k,n} + \delta\, (\theta_\mathrm{new} - \theta_\mathrm{old})`, with the stiffness rho of the
pull and the precision delta of the prior. Fixed point:
:math:`\delta (\theta_n - \theta_n^0) + \frac s\alpha \sum_k \nabla L_k(\theta_n) = 0`, whatever rho is. It is the
particle form of federated ADMM and of partitioned variational inference.

The site divided by delta is the sum of the displacements that the agent has caused: taking it back undoes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from fedstein.errors import UserError
from fedstein.inference import GaussianPrior, Prior
from fedstein.methods.base import Memory, Visit
from fedstein.methods.factors.base import Factor

if TYPE_CHECKING:
    from fedstein.methods.dsvgd import DSVGD

__all__ = ["Linear"]

_SITE = "site"


class Linear(Factor):
    """Remembers the site."""

    name: ClassVar[str] = "linear"
    summary: ClassVar[str] = "a site for each particle: for agents with unlike data, and for erasure by taking it back"
    keeps: ClassVar[tuple[str, ...]] = (_SITE,)
    fitting: ClassVar[Mapping[str, Any]] = {"kernel": "none", "step": "gradient", "step_size": 0.1}
    can_be_taken_back: ClassVar[bool] = True

    def check(self, method: DSVGD, prior: Prior) -> None:
        """It needs the prior's precision, a pull at least as stiff, and steps that do not overshoot it."""
        if not isinstance(prior, GaussianPrior):
            raise UserError("The factor 'linear' needs a Gaussian prior: its precision is part of the site.")
        if prior.precision > method.stiffness:
            raise UserError(
                f"The 'method.stiffness' must be at least the prior's precision 1/std^2 = {prior.precision:g}. "
                f"Got {method.stiffness:g} instead."
            )
        overshoot = method.size_in(0) * method.temperature * method.stiffness  # `rule` divides by the data's weight
        if method.step == "gradient" and method.likelihood == "mean" and overshoot >= 2:
            raise UserError(
                "A plain step would overshoot the pull to the downloaded particle, and each further one more, whatever "
                "the data is: 'method.step_size' x 'method.temperature' x 'method.stiffness' must be below 2. Got "
                f"{overshoot:g}: take a step_size below {2 / (method.temperature * method.stiffness):.3g}."
            )

    def add_cavity_score(self, to: Tensor, at: Tensor, visit: Visit, method: DSVGD) -> Tensor:
        """The pull to the downloaded particle, less the site."""
        to.sub_(at, alpha=method.stiffness).add_(visit.particles, alpha=method.stiffness)
        return to.sub_(visit.memory[_SITE]) if visit.memory else to

    def settle(self, visit: Visit, applied: Tensor, method: DSVGD) -> Memory:
        """The site, with the displacement that was applied."""
        change = applied * _precision(visit.prior)
        return {_SITE: visit.memory[_SITE] + change if visit.memory else change}

    def displacement(self, memory: Memory, prior: Prior) -> Tensor:
        """The site divided by the prior's precision."""
        return memory[_SITE] / _precision(prior)

    def portion(self, total: Tensor, parts: int, prior: Prior) -> Tensor:
        """Sites add up, so the portion of a displacement is its part times the precision."""
        return total * (_precision(prior) / parts)

    def take_over(self, memory: Memory, portion: Tensor) -> Memory:
        """Added to the site."""
        return {**memory, _SITE: memory[_SITE] + portion if _SITE in memory else portion}

    def size(self, memory: Memory) -> float | None:
        """The norm of the site."""
        return float(memory[_SITE].norm()) if _SITE in memory else None


def _precision(prior: Prior) -> float:
    assert isinstance(prior, GaussianPrior)
    return prior.precision
