r"""Step rules: how far the particles go along a direction.

A rule is settings; `start()` gives a fresh mover whose memory lives as long as one visit.

The "AdaGrad" of the SVGD authors' code is an exponential average:
:math:`G_1 = \phi^2`, then :math:`G \leftarrow 0.9\, G + 0.1\, \phi^2`, step
:math:`\epsilon\, \phi / (10^{-6} + \sqrt G)`. It makes every coordinate move alike, which compresses
badly; the plain gradient does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fedstein.registry import Registry

__all__ = ["STEP_RULES", "AdaGrad", "Adam", "EmaAdaGrad", "Gradient", "StepRule", "step_rule"]

Mover = Callable[[Tensor, Tensor], None]
"""Moves the particles (first) in place along the direction (second), which it may overwrite."""


class StepRule(Protocol):
    """What a loop asks of a step rule."""

    def start(self) -> Mover:
        """A mover with an empty memory."""
        ...


@dataclass(frozen=True)
class Gradient:
    r"""Plain steps :math:`\theta \leftarrow \theta + \epsilon\, \phi`."""

    size: float

    def start(self) -> Mover:
        def move(particles: Tensor, phi: Tensor) -> None:
            particles.add_(phi, alpha=self.size)

        return move


@dataclass(frozen=True)
class AdaGrad:
    r""":math:`G \leftarrow G + \phi^2`, step :math:`\epsilon\, \phi / (10^{-6} + \sqrt G)` (Duchi et al., 2011)."""

    size: float

    def start(self) -> Mover:
        return _adaptive(self.size, keep=1.0, take=1.0)


@dataclass(frozen=True)
class EmaAdaGrad:
    """The SVGD authors' form, as in the module's text."""

    size: float

    def start(self) -> Mover:
        return _adaptive(self.size, keep=0.9, take=0.1)


@dataclass(frozen=True)
class Adam:
    r"""Adam (Kingma and Ba, 2015) with its usual constants: both means begin anew in each visit, and are unbiased."""

    size: float

    def start(self) -> Mover:
        memory: list[Tensor] = []  # first and second moment, and a buffer
        steps = 0

        def move(particles: Tensor, phi: Tensor) -> None:
            nonlocal steps
            if not memory:
                memory.extend([torch.zeros_like(phi), torch.zeros_like(phi), torch.empty_like(phi)])
            first, second, root = memory
            steps += 1
            first.lerp_(phi, 0.1)
            second.mul_(0.999).addcmul_(phi, phi, value=0.001)
            torch.sqrt(second, out=root).div_((1 - 0.999**steps) ** 0.5).add_(1e-8)
            particles.addcdiv_(first, root, value=self.size / (1 - 0.9**steps))

        return move


def _adaptive(size: float, keep: float, take: float) -> Mover:
    memory: list[Tensor] = []  # G, and a buffer for its root: empty before the first step

    def move(particles: Tensor, phi: Tensor) -> None:
        if not memory:
            memory.extend([phi.square(), torch.empty_like(phi)])
        else:
            memory[0].mul_(keep).addcmul_(phi, phi, value=take)
        root = torch.sqrt(memory[0], out=memory[1]).add_(1e-6)
        particles.addcdiv_(phi, root, value=size)

    return move


STEP_RULES: Registry[Callable[[float], StepRule]] = Registry(
    "step rule",
    "how far particles go along a direction (method.step); made with method.step_size",
    {"ema-adagrad": EmaAdaGrad, "adagrad": AdaGrad, "gradient": Gradient, "adam": Adam},
)


def step_rule(name: str, size: float) -> StepRule:
    """The rule called `name` with step size `size`."""
    return STEP_RULES[name](size)
