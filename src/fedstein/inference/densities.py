r"""Densities of particles, and priors: log density and score, safe in high dimension.

The KDE :math:`q(\theta) = \frac1N \sum_n K(\theta, \theta_n)` with
:math:`K \propto \exp(-\|\theta - \theta_n\|^2 / \lambda)` is only ever used as a logarithm:

.. math:: \nabla \log q(\theta) = \frac2\lambda \Big(\sum_n w_n \theta_n - \theta\Big),
          \qquad w = \mathrm{softmax}_n\big(-\|\theta - \theta_n\|^2 / \lambda\big).

Evaluating the density itself underflows to 0 beyond a few hundred dimensions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fedstein.errors import UserError
from fedstein.inference.kernels import kde_weights, squared_distances
from fedstein.inference.products import add_product

__all__ = ["GaussianPrior", "Prior", "UniformPrior", "add_log_kde_score", "log_kde", "log_kde_score"]


def log_kde(at: Tensor, points: Tensor, bandwidth: float) -> Tensor:
    r"""Normalised log density of the KDE of `points` (N, d) at `at` (M, d): shape (M,).

    >>> round(log_kde(torch.zeros(1, 1), torch.zeros(3, 1), 2.0).item(), 4)  # the standard normal at 0
    -0.9189
    """
    exponents = squared_distances(at, points).div_(-bandwidth)
    constant = math.log(len(points)) + 0.5 * points.shape[1] * math.log(math.pi * bandwidth)
    return exponents.logsumexp(1) - constant


def log_kde_score(at: Tensor, points: Tensor, bandwidth: float) -> Tensor:
    """The gradient of `log_kde` at each of `at`: shape (M, d)."""
    return add_log_kde_score(torch.zeros_like(at), at, points, bandwidth)


def add_log_kde_score(
    to: Tensor, at: Tensor, points: Tensor, bandwidth: float, sign: float = 1.0, floor: float = 0.0
) -> Tensor:
    r"""`to` += sign * (score of the log-KDE of `points` at `at`), in place, with no (M, N, d) array.

    Args:
        to: (M, d), changed.
        at: (M, d) where the score is taken.
        points: (N, d) of the KDE.
        bandwidth: lambda.
        sign: +1 or -1 (a factor that is divided by).
        floor: a constant under the density, as a share of its highest possible value. Where the density is
            far below it the score fades to 0: a KDE knows nothing where it has no points.

    Returns:
        `to`.
    """
    weights = kde_weights(at, points, bandwidth, floor)
    rate = sign * 2.0 / bandwidth
    if floor == 0.0:
        return add_product(to, weights, points, rate).sub_(at, alpha=rate)
    return add_product(to, weights, points, rate).addcmul_(weights.sum(1, keepdim=True), at, value=-rate)


class Prior(Protocol):
    """What a method asks of a prior."""

    def draw(self, shape: tuple[int, int], generator: torch.Generator) -> Tensor:
        """Samples of the given shape (N, d)."""
        ...

    def log_density(self, at: Tensor) -> Tensor:
        """(M,) log densities."""
        ...

    def score(self, at: Tensor) -> Tensor:
        """(M, d) gradients of the log density."""
        ...


@dataclass(frozen=True)
class GaussianPrior:
    """N(0, std^2 I)."""

    std: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.std, int | float) or not 1e-15 <= self.std <= 1e15:
            raise UserError(f"The 'std' of a GaussianPrior must be in 1e-15..1e15. Got {self.std!r} instead.")

    @property
    def precision(self) -> float:
        """1 / std^2."""
        return 1.0 / self.std**2

    def draw(self, shape: tuple[int, int], generator: torch.Generator) -> Tensor:
        """Samples of the given shape."""
        return torch.randn(shape, generator=generator) * self.std

    def log_density(self, at: Tensor) -> Tensor:
        """(M,) log densities."""
        constant = at.shape[1] * math.log(self.std * math.sqrt(2.0 * math.pi))
        return at.square().sum(1).mul_(-0.5 * self.precision).sub_(constant)

    def score(self, at: Tensor) -> Tensor:
        """-at / std^2."""
        return at * -self.precision


@dataclass(frozen=True)
class UniformPrior:
    """Uniform on the box (low, high)^d. Its score is 0 inside; outside it points back, not to nowhere."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise UserError(f"The 'low' of a UniformPrior must be below 'high'. Got {self.low} and {self.high}.")

    def draw(self, shape: tuple[int, int], generator: torch.Generator) -> Tensor:
        """Samples of the given shape."""
        return torch.rand(shape, generator=generator) * (self.high - self.low) + self.low

    def log_density(self, at: Tensor) -> Tensor:
        """(M,) log densities, -inf outside."""
        inside = ((at >= self.low) & (at <= self.high)).all(1)
        constant = -at.shape[1] * math.log(self.high - self.low)
        return torch.where(inside, constant, -math.inf).to(at.dtype)

    def score(self, at: Tensor) -> Tensor:
        """0 inside; a stiff pull back to the box outside, where the true score does not exist."""
        return (at.clamp(self.low, self.high) - at) * 100.0
