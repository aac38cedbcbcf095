r"""Calibration: does confidence c mean right with probability c?

.. math:: \mathrm{ECE} = \sum_m \frac{|B_m|}{n} \left| \mathrm{acc}(B_m) - \mathrm{conf}(B_m) \right|

(Guo et al., "On calibration of modern neural networks", 2017; equation 14 of the letter.) Bins have equal
width, are open at the left and closed at the right, ((m-1)/M, m/M]; a confidence of exactly 0 falls into
the first. torchmetrics 1.9 puts values on an edge one bin too high.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedstein.extras import needs_extra
from fedstein.metrics.classification import nll

__all__ = ["Reliability", "adaptive_ece", "ece", "ece_floor", "fit_scaling", "mce", "reliability", "scaled"]


@dataclass(frozen=True)
class Reliability:
    """What a reliability diagram shows, for each bin that is not empty."""

    edges: list[tuple[float, float]]
    counts: list[int]
    confidence: list[float]
    accuracy: list[float]

    def gaps(self) -> list[float]:
        """|accuracy - confidence| of each bin."""
        return [abs(a - c) for a, c in zip(self.accuracy, self.confidence, strict=True)]

    def ece(self) -> float:
        """The gaps' mean, weighted by the counts."""
        return sum(n * gap for n, gap in zip(self.counts, self.gaps(), strict=True)) / sum(self.counts)

    def mce(self) -> float:
        """The largest gap."""
        return max(self.gaps())


def reliability(probabilities: Tensor, labels: Tensor, bins: int = 15, adaptive: bool = False) -> Reliability:
    """Mean confidence and accuracy in bins of equal width, or of equal count if `adaptive`."""
    confidence, predicted = probabilities.double().max(1)
    right = (predicted == labels).double()
    if adaptive:
        order = confidence.argsort()
        groups = [part for part in order.tensor_split(bins) if len(part)]
        edges = [(float(confidence[part[0]]), float(confidence[part[-1]])) for part in groups]
    else:
        inner = torch.arange(1, bins, dtype=torch.float64, device=confidence.device) / bins
        place = torch.bucketize(confidence, inner)  # right=False: an edge belongs to the bin below it
        groups, edges = [], []
        for bin in range(bins):
            members = (place == bin).nonzero()[:, 0]
            if len(members):
                groups.append(members)
                edges.append((bin / bins, (bin + 1) / bins))
    return Reliability(
        edges=edges,
        counts=[len(part) for part in groups],
        confidence=[float(confidence[part].mean()) for part in groups],
        accuracy=[float(right[part].mean()) for part in groups],
    )


def ece(probabilities: Tensor, labels: Tensor, bins: int = 15) -> float:
    """Expected calibration error with `bins` bins of equal width.

    >>> ece(torch.tensor([[0.3, 0.7], [0.3, 0.7]]), torch.tensor([1, 0]))
    0.19999998807907104
    """
    return reliability(probabilities, labels, bins).ece()


def ece_floor(probabilities: Tensor, generator: torch.Generator, bins: int = 15, draws: int = 50) -> float:
    """The ECE that would be seen if these probabilities were exactly right: the mean over labels drawn from them.

    It is above 0 because a bin's accuracy is counted on finitely many examples: of models near it, ECE says little.
    """
    labels = torch.multinomial(probabilities.cpu(), draws, replacement=True, generator=generator)
    labels = labels.to(probabilities.device)
    return sum(ece(probabilities, labels[:, draw], bins) for draw in range(draws)) / draws


def mce(probabilities: Tensor, labels: Tensor, bins: int = 15) -> float:
    """Maximum calibration error: the worst bin's gap."""
    return reliability(probabilities, labels, bins).mce()


def adaptive_ece(probabilities: Tensor, labels: Tensor, bins: int = 15) -> float:
    """ECE with bins of equal count (Nguyen and O'Connor, 2015)."""
    return reliability(probabilities, labels, bins, adaptive=True).ece()


def scaled(probabilities: Tensor, scale: float) -> Tensor:
    r"""Temperature scaling (Guo et al., 2017): probabilities in proportion to :math:`p^{1/T}`.

    T is called the scale here, because the temperature of this project is the weight of the prior. The most probable
    class stays what it was.
    """
    return torch.softmax(probabilities.double().clamp_min(1e-38).log() / scale, 1)


def fit_scaling(probabilities: Tensor, labels: Tensor) -> float:
    """The scale with the smallest NLL on held-out examples."""
    with needs_extra("report", "Fitted scales"):
        from scipy.optimize import minimize_scalar

    def loss(log_scale: float) -> float:
        return nll(scaled(probabilities, math.exp(log_scale)), labels)

    return math.exp(float(minimize_scalar(loss, bounds=(-5.0, 5.0), method="bounded").x))
