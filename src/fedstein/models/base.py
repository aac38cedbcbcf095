"""What a method may ask of a model: a loss over N particles at once, its gradient, its outputs."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from fedstein.likelihoods import Likelihood

__all__ = ["ParticleModel"]


class ParticleModel(Protocol):
    """A network seen as a function of flat parameter vectors, N of them at a time.

    `x` is (B, ...) inputs, `y` (B,) or (B, ...) targets. Particles are (N, dim), in the order of the
    module's `named_parameters()`, so that both paths mean the same thing by the same vector. All of them must be on
    the model's device; only `draw` is on the CPU, whose generators give every device the same numbers.
    """

    dim: int
    device: torch.device
    likelihood: Likelihood  # what the outputs say of a target: the loss is its

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """(count, dim) starting particles on the CPU: weights N(0, 1/(fan_in + 1)), biases 0."""
        ...

    def loss(self, particles: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """(N,) mean losses over the batch."""
        ...

    def loss_gradient(
        self,
        particles: Tensor,
        x: Tensor,
        y: Tensor,
        scale: float = 1.0,
        out: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        """(N, dim): `scale` times the gradients of the mean loss; written into `out` if given.

        With `weights` (N, B) it is that of each particle's own mean of weighted losses, which is divided by B still.
        """
        ...

    def outputs(self, particles: Tensor, x: Tensor) -> Tensor:
        """(N, B, ...) what each particle's network gives."""
        ...
