r"""Radial kernels of SVGD, always seen through the matrix of squared distances.

A radial kernel is :math:`\kappa(x, y) = f(\|x - y\|^2)`. SVGD needs its values :math:`f(D)` and its
slopes :math:`f'(D)` on the N x N matrix D and nothing else, so no (N, N, d) tensor ever exists.

The median rule :math:`h = \mathrm{med}^2 / \log N` is the one of Liu and Wang, "Stein variational
gradient descent" (2016), with the median over the distinct pairs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fedstein.registry import Registry

__all__ = [
    "IMQ",
    "KERNELS",
    "RBF",
    "Kernel",
    "KernelMaker",
    "NoKernel",
    "SmoothedDensity",
    "median_bandwidth",
    "squared_distances",
]


def squared_distances(x: Tensor, y: Tensor | None = None) -> Tensor:
    r""":math:`D_{ij} = \|x_i - y_j\|^2` by one Gram matrix; `y` is `x` if left out.

    Norms minus inner products lose digits: in float32 the error is some 1e-6 of the squared norm. Where all points
    of one set nearly coincide this is noticed, and the set is centred first. A network's particles have squared
    norms near 100, so 1e-4: small beside the bandwidths in use.

    Args:
        x: (N, d) points.
        y: (M, d) points.

    Returns:
        (N, M) squared distances, never negative, the diagonal exactly 0 within one set.

    >>> squared_distances(torch.tensor([[0.0], [3.0]])).tolist()
    [[0.0, 9.0], [9.0, 0.0]]
    """
    if y is not None:
        norms_x, norms_y = (torch.linalg.vector_norm(z, dim=1).square_() for z in (x, y))
        return torch.addmm(norms_x[:, None] + norms_y, x, y.T, alpha=-2.0).clamp_min_(0.0)
    distances, norms = _gram_distances(x)
    if len(x) > 1:
        nearest = (distances + torch.diag(norms)).min()  # the norms keep the zeros of the diagonal out of it
        if nearest < 0.02 * norms.max():
            distances, _ = _gram_distances(x - x.mean(0))
    return distances


def _gram_distances(x: Tensor) -> tuple[Tensor, Tensor]:
    gram = x @ x.T
    norms = gram.diagonal()
    distances = (norms[:, None] + norms).sub_(gram, alpha=2.0).clamp_min_(0.0)
    return distances.fill_diagonal_(0.0), norms


def kde_weights(x: Tensor, points: Tensor | None, bandwidth: float, floor: float = 0.0) -> Tensor:
    r"""(M, N) shares :math:`w_n` of each point in the KDE at x; they sum to less than 1 above a floor."""
    exponents = squared_distances(x, points).div_(-bandwidth)
    if floor == 0.0:
        return exponents.softmax(1)
    constant = exponents.new_full((len(x), 1), math.log(floor * exponents.shape[1]))
    return torch.cat([exponents, constant], 1).softmax(1)[:, :-1]


def median_bandwidth(distances: Tensor) -> float:
    r""":math:`h = \mathrm{med}^2 / \log N` from squared distances; 1 where all points coincide."""
    n = len(distances)
    if n < 2:
        return 1.0
    # Sorted, the symmetric matrix is the n zeros of its diagonal, then every pair twice.
    ordered = distances.flatten().sort().values[n::2]
    middle = ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1].sqrt()  # one number, or the two in the middle
    med = float(middle.mean())
    return med * med / math.log(n) if med > 0.0 else 1.0


class Kernel(Protocol):
    """What SVGD asks of a kernel."""

    def __call__(self, particles: Tensor) -> tuple[Tensor, Tensor | float]:
        """The (N, N) values f(D) and slopes f'(D); a number c as slope means f' = c f, which is cheaper."""
        ...


@dataclass(frozen=True)
class RBF:
    r""":math:`\kappa(x, y) = \exp(-\|x-y\|^2 / h)`; the median rule at each call if `bandwidth` is None."""

    bandwidth: float | None = None

    def __call__(self, particles: Tensor) -> tuple[Tensor, Tensor | float]:
        distances = squared_distances(particles)
        h = median_bandwidth(distances) if self.bandwidth is None else self.bandwidth
        return distances.div_(-h).exp_(), -1.0 / h


@dataclass(frozen=True)
class IMQ:
    r"""Inverse multiquadric :math:`\kappa(x, y) = (1 + \|x-y\|^2 / h)^{-1/2}`: heavier tails than RBF."""

    bandwidth: float | None = None

    def __call__(self, particles: Tensor) -> tuple[Tensor, Tensor | float]:
        distances = squared_distances(particles)
        h = median_bandwidth(distances) if self.bandwidth is None else self.bandwidth
        values = distances.div_(h).add_(1.0).rsqrt_()
        return values, values.pow(3) / (-2.0 * h)


@dataclass(frozen=True)
class NoKernel:
    r"""Every particle on its own: :math:`\kappa(x_i, x_j) = N [i = j]`, so that phi is the score itself."""

    def __call__(self, particles: Tensor) -> tuple[Tensor, Tensor | float]:
        n = len(particles)
        values = torch.eye(n, dtype=particles.dtype, device=particles.device) * n
        return values, torch.zeros_like(values)


@dataclass(frozen=True)
class SmoothedDensity:
    r"""Move each particle along score - grad log KDE: the flow that ends where the *KDE* is the target.

    SVGD ends where the particles are like samples of the target; their KDE is then one kernel width too
    wide, and a method that divides KDEs by one another adds this error up, visit after visit. This flow
    (GFSD in Liu et al., "Understanding and accelerating particle-based variational inference", 2019) has
    no such error. It is the same formula as SVGD with values N [i = j] and slopes
    :math:`-\frac{N}{\lambda} \mathrm{softmax}_j(-D_{ij} / \lambda)`. In high dimension particles no longer
    see each other through the KDE, and it becomes `NoKernel`.

    Args:
        bandwidth: lambda of the KDE.
        floor: a constant under the density, as in `add_log_kde_score`.
    """

    bandwidth: float
    floor: float = 0.0

    def __call__(self, particles: Tensor) -> tuple[Tensor, Tensor | float]:
        n = len(particles)
        weights = kde_weights(particles, None, self.bandwidth, self.floor)
        eye = torch.eye(n, dtype=particles.dtype, device=particles.device)
        return eye * n, weights.mul_(-n / self.bandwidth)


class KernelMaker(Protocol):
    """Makes the kernel of a visit from the settings of a method."""

    def __call__(self, bandwidth: float | None, width: float) -> Kernel:
        """A kernel.

        Args:
            bandwidth: `method.kernel_bandwidth`; the kernel's own rule if None.
            width: `method.kde_bandwidth`, lambda of every KDE.
        """
        ...


def _rbf(bandwidth: float | None, width: float) -> Kernel:
    return RBF(bandwidth)


def _imq(bandwidth: float | None, width: float) -> Kernel:
    return IMQ(bandwidth)


def _density(bandwidth: float | None, width: float) -> Kernel:
    return SmoothedDensity(width)


def _none(bandwidth: float | None, width: float) -> Kernel:
    return NoKernel()


KERNELS: Registry[KernelMaker] = Registry(
    "kernel",
    "how particles repel each other in SVGD (method.kernel)",
    {"rbf": _rbf, "imq": _imq, "density": _density, "none": _none},
)
