r"""The agent's factor :math:`t_k`: what an agent remembers of its own contribution, and what follows from it.

The posterior is modelled as :math:`q = p_0 \prod_k t_k`. A visit moves the particles towards
:math:`\frac{q}{t_k} \exp(-\frac s\alpha L_k)`, so a factor says what the score of the cavity :math:`q / t_k` is, what
the agent keeps once it knows what was applied, and whether its contribution can be taken back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from fedstein.inference import Prior, add_log_kde_score
from fedstein.methods.base import Memory, Visit

if TYPE_CHECKING:
    from fedstein.methods.dsvgd import DSVGD

__all__ = ["Factor"]


class Factor:
    """A kind of factor. It has no state: all that an agent remembers is in the visit's memory."""

    name: ClassVar[str]
    summary: ClassVar[str]
    keeps: ClassVar[tuple[str, ...]] = ()  # the names of the tensors that it remembers
    fitting: ClassVar[Mapping[str, Any]] = {}  # settings of DSVGD that suit it, where they were left out
    can_be_taken_back: ClassVar[bool] = False

    def check(self, method: DSVGD, prior: Prior) -> None:
        """Refuse settings or a prior that the factor cannot work with, before any work is done."""

    def add_cavity_score(self, to: Tensor, at: Tensor, visit: Visit, method: DSVGD) -> Tensor:
        """`to` += the score of q / t_k.

        Args:
            to: (N, d), changed.
            at: (N, d), the particles where the score is taken.
            visit: the visit, with what the agent remembers.
            method: the settings.

        Returns:
            `to`.
        """
        return self.add_q_score(to, at, visit, method)

    def add_q_score(self, to: Tensor, at: Tensor, visit: Visit, method: DSVGD, sign: float = 1.0) -> Tensor:
        """`to` += sign * the score of q as downloaded: the prior itself on the first visit of all."""
        if method.q_is_the_prior(visit):
            return to.add_(visit.prior.score(at), alpha=sign)
        return add_log_kde_score(to, at, visit.particles, method.kde_bandwidth, sign, self.floor(method))

    def floor(self, method: DSVGD) -> float:
        """The constant under the densities of q and t_k."""
        return 0.0

    def settle(self, visit: Visit, applied: Tensor, method: DSVGD) -> Memory:
        """What the agent remembers, now that the server has added `applied` to the particles."""
        return {}

    def at_random(self, visit: Visit) -> Memory:
        """A memory as the letter's Forget-SVGD begins with: drawn, for an agent that has none."""
        return {}

    def own(self, memory: Memory) -> Memory:
        """What of a memory is this factor's."""
        return {name: memory[name] for name in self.keeps if name in memory}

    # What follows is for factors that can be taken back.

    def displacement(self, memory: Memory, prior: Prior) -> Tensor:
        """(N, d): how far the agent has moved the particles, which taking it back undoes."""
        raise NotImplementedError

    def portion(self, total: Tensor, parts: int, prior: Prior) -> Tensor:
        """One of so many equal parts of a displacement, as a factor that takes it over remembers it."""
        raise NotImplementedError

    def take_over(self, memory: Memory, portion: Tensor) -> Memory:
        """The memory of an agent that stays, with a portion of what one that leaves had moved."""
        raise NotImplementedError

    def size(self, memory: Memory) -> float | None:
        """How much there is to take back; None if there is nothing."""
        return None
