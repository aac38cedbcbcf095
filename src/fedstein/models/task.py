"""What is to be learnt: a model with its likelihood, the prior on its parameters, and where particles start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from fedstein.inference import GaussianPrior, Prior
from fedstein.models.base import ParticleModel

__all__ = ["Init", "Task"]

Init = Literal["fan-in", "prior", "module"]


@dataclass(frozen=True)
class Task:
    """A model, a prior, and how particles start: init "module" around `start` (dim,), with a standard deviation."""

    model: ParticleModel
    prior: Prior = GaussianPrior()  # noqa: RUF009  (frozen, so one instance serves all)
    init: Init = "fan-in"
    start: Tensor | None = None
    spread: float = 0.0
