r"""Stein variational gradient descent: the direction phi, and the loop around it.

Liu and Wang, "Stein variational gradient descent: a general purpose Bayesian inference algorithm"
(2016); equations (5) and (6) of the letter. For a radial kernel with values F and slopes F',

.. math:: \phi = \frac1N \left[ F S + 2 (F' - \mathrm{diag}(F' 1))\, X \right],

with the particles X (N, d) and the scores S (N, d): a Gram matrix and one or two thin products.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fedstein.inference.kernels import Kernel, NoKernel
from fedstein.inference.products import add_product
from fedstein.inference.steps import StepRule

__all__ = ["direction", "svgd"]

Score = Callable[[Tensor, int], Tensor]
"""(particles (N, d), local step) -> the gradient of the log target at each particle, (N, d)."""


def direction(particles: Tensor, score: Tensor, kernel: Kernel, out: Tensor | None = None) -> Tensor:
    """SVGD's direction phi at every particle.

    Args:
        particles: (N, d).
        score: (N, d) gradients of the log target at the particles. May be overwritten.
        kernel: a radial kernel.
        out: (N, d) to write into; neither `particles` nor `score`.

    Returns:
        (N, d). One particle alone, or `NoKernel`, gives the score itself.

    >>> from fedstein.inference import RBF
    >>> x = torch.tensor([[-1.0], [1.0]])
    >>> direction(x, -x, RBF(bandwidth=4.0)).tolist()
    [[0.1321...], [-0.1321...]]
    """
    if len(particles) == 1 or isinstance(kernel, NoKernel):
        return score if out is None else out.copy_(score)
    values, slopes = kernel(particles)
    n = len(particles)
    phi = torch.empty_like(particles) if out is None else out
    if isinstance(slopes, float):  # f' = c f: F (S + 2c X) - 2c diag(F 1) X needs one product instead of two
        score.add_(particles, alpha=2.0 * slopes)
        add_product(phi, values, score, scale=1.0 / n, keep=0.0)
        return phi.addcmul_(values.sum(1, keepdim=True), particles, value=-2.0 * slopes / n)
    repulsion = slopes - torch.diag(slopes.sum(1))
    add_product(phi, repulsion, particles, scale=2.0 / n, keep=0.0)
    return add_product(phi, values, score, scale=1.0 / n)


def svgd(particles: Tensor, score: Score, kernel: Kernel, rule: StepRule, steps: int) -> Tensor:
    """Move a copy of `particles` by `steps` steps of SVGD; the rule's memory starts empty.

    >>> from fedstein.inference import RBF, Gradient
    >>> start = torch.linspace(-1, 1, 5)[:, None]
    >>> end = svgd(start, lambda x, step: 3.0 - x, RBF(), Gradient(0.5), 200)
    >>> round(end.mean().item(), 2)
    3.0
    """
    particles = particles.clone()
    move = rule.start()
    phi = torch.empty_like(particles)
    for step in range(steps):
        move(particles, direction(particles, score(particles, step), kernel, out=phi))
    return particles
