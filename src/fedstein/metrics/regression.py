r"""Predicted numbers: the mixture of N Gaussians that N particles predict, and how good it is.

The mixture is exact: its CDF is the mean of the CDFs, its quantiles are found by bisection between the components'
own, and its CRPS has a closed form (Grimit, Gneiting, Berrocal and Johnson, "The continuous ranked probability score
for circular variables and its application to mesoscale forecast ensemble verification", 2006, equation 5):

.. math:: \mathrm{CRPS} = \frac1N \sum_i A(y - \mu_i, \sigma_i^2)
          - \frac1{2N^2} \sum_{ij} A(\mu_i - \mu_j, \sigma_i^2 + \sigma_j^2), \quad
          A(\mu, \sigma^2) = 2 \sigma \varphi(\mu/\sigma) + \mu (2 \Phi(\mu/\sigma) - 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from fedstein.metrics.predictions import Numbers, check_level

__all__ = [
    "CENTRAL",
    "GaussianMixture",
    "calibration_error",
    "coverage",
    "mae",
    "pit_histogram",
    "quantile_curve",
    "rmse",
    "score_numbers",
]

CENTRAL = (50, 80, 90, 95)  # percent of the central intervals whose coverage and width are told
_LEVELS = tuple(q / 20 for q in range(1, 20))
_BINS = 20  # of the PIT histogram
_LOG_2PI = math.log(2 * math.pi)


@dataclass(frozen=True, repr=False)
class GaussianMixture(Numbers):
    """For each of n inputs and each target, N Gaussians with equal weights, in the target's unit."""

    means: Tensor  # (n, N, targets)
    stds: Tensor  # (n, N, targets), above 0

    @property
    def mean(self) -> Tensor:
        """(n, targets)."""
        return self.means.mean(1)

    @property
    def aleatoric(self) -> Tensor:
        """(n, targets) mean of the particles' variances."""
        return self.stds.square().mean(1)

    @property
    def epistemic(self) -> Tensor:
        """(n, targets) variance of the particles' means."""
        return self.means.var(1, correction=0)

    def cdf(self, y: Tensor) -> Tensor:
        """(n, targets) probability of at most `y`, for each target alone."""
        each: Tensor = torch.special.ndtr(self._standard(y))
        return each.mean(1)

    def quantile(self, level: float) -> Tensor:
        """(n, targets), by bisection to the last bits: it lies between the components' own quantiles."""
        check_level(level)
        each = self.means + self.stds * math.sqrt(2) * float(
            torch.erfinv(torch.tensor(2 * level - 1, dtype=torch.float64))
        )
        low, high = each.amin(1), each.amax(1)
        for _ in range(64):  # halves a double's 53 bits, whatever the bracket
            middle = low + (high - low) / 2
            under = self.cdf(middle) < level
            low, high = torch.where(under, middle, low), torch.where(under, high, middle)
            if bool((high - low <= 1e-12 * torch.maximum(low.abs(), high.abs())).all()):
                break
        return low + (high - low) / 2

    def log_density(self, y: Tensor) -> Tensor:
        """(n,) log-density of all targets of an example together; a particle's targets are independent."""
        return self._log_densities(y).sum(2).logsumexp(1) - math.log(self.means.shape[1])

    def marginal_log_density(self, y: Tensor) -> Tensor:
        """(n, targets) log-density of each target alone."""
        return self._log_densities(y).logsumexp(1) - math.log(self.means.shape[1])

    def crps(self, y: Tensor) -> Tensor:
        """(n, targets), in closed form."""
        count = self.means.shape[1]
        variances = self.stds.square()
        score = _expected_distance(y[:, None] - self.means, self.stds).mean(1)
        for i in range(count):  # one row of the pairs at a time: memory does not grow with N^2
            pairs = _expected_distance(self.means - self.means[:, i, None], (variances + variances[:, i, None]).sqrt())
            score = score - pairs.mean(1) / (2 * count)
        return score.clamp_min(0.0)

    def pit(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """The CDF at `y`, twice: a density has no jumps."""
        value = self.cdf(y)
        return value, value

    def _standard(self, y: Tensor) -> Tensor:
        return (y[:, None] - self.means) / self.stds

    def _log_densities(self, y: Tensor) -> Tensor:
        return -0.5 * self._standard(y).square() - self.stds.log() - 0.5 * _LOG_2PI


def _expected_distance(mean: Tensor, std: Tensor) -> Tensor:
    """E|X| of a Gaussian."""
    z = mean / std
    density = (-0.5 * z.square() - 0.5 * _LOG_2PI).exp()
    return 2 * std * density + mean * torch.erf(z / math.sqrt(2))


def rmse(mean: Tensor, y: Tensor) -> Tensor:
    """(targets,) root of the mean squared error of predicted means (n, targets)."""
    return (mean.double() - y).square().mean(0).sqrt()


def mae(mean: Tensor, y: Tensor) -> Tensor:
    """(targets,) mean absolute error of predicted means (n, targets)."""
    return (mean.double() - y).abs().mean(0)


def _share_below(pit: tuple[Tensor, Tensor], level: float) -> Tensor:
    """Probability that a uniform draw between the two ends is at most `level`.

    At a jump of a CDF the randomised PIT is such a draw; its mean over all draws is known, so none is made (Czado,
    Gneiting and Held, "Predictive model assessment for count data", 2009).
    """
    low, high = pit
    jump = high - low
    inside = (level - low) / jump.clamp_min(torch.finfo(jump.dtype).tiny)
    return torch.where(jump > 0, inside.clamp(0.0, 1.0), (high <= level).to(jump.dtype))


def coverage(pit: tuple[Tensor, Tensor], level: float) -> Tensor:
    """(targets,) share of the targets inside the central interval that should hold `level` of them.

    Args:
        pit: of a prediction, `prediction.pit(y)`.
        level: between 0 and 1.
    """
    check_level(level)
    return (_share_below(pit, (1 + level) / 2) - _share_below(pit, (1 - level) / 2)).mean(0)


def quantile_curve(pit: tuple[Tensor, Tensor], levels: tuple[float, ...] = _LEVELS) -> list[float]:
    """For each level, the share of all targets below the quantile of that level: the levels again if calibrated.

    Args:
        pit: of a prediction, `prediction.pit(y)`.
        levels: between 0 and 1.
    """
    return [float(_share_below(pit, level).mean()) for level in levels]


def calibration_error(pit: tuple[Tensor, Tensor], levels: tuple[float, ...] = _LEVELS) -> float:
    """Mean distance of the quantile curve from the levels (Kuleshov, Fenner and Ermon, 2018, with absolute values).

    Args:
        pit: of a prediction, `prediction.pit(y)`.
        levels: between 0 and 1.
    """
    curve = quantile_curve(pit, levels)
    return sum(abs(covered - level) for covered, level in zip(curve, levels, strict=True)) / len(levels)


def pit_histogram(pit: tuple[Tensor, Tensor], bins: int = _BINS) -> list[float]:
    """Share of all targets in each of `bins` equal parts of 0..1: flat if calibrated, a U if too sure of itself.

    Args:
        pit: of a prediction, `prediction.pit(y)`.
        bins: how many.
    """
    ends = [0.0, *quantile_curve(pit, tuple(b / bins for b in range(1, bins))), 1.0]
    return [above - below for below, above in pairwise(ends)]


def score_numbers(prediction: Numbers, y: Tensor) -> dict[str, Any]:
    """All metrics of predicted numbers, as plain values.

    `nll` is that of all targets of an example together. The others are means over the targets, and with several targets
    ``<name>_each`` has a list of them (`nll_each`: of each target alone).

    Args:
        prediction: for n inputs.
        y: (n, targets), in their units.
    """
    y = y.to(prediction.mean.dtype)
    pit = prediction.pit(y)
    each = {"rmse": rmse(prediction.mean, y), "mae": mae(prediction.mean, y), "crps": prediction.crps(y).mean(0)}
    for percent in CENTRAL:
        low, high = prediction.interval(percent / 100)
        each[f"coverage_{percent}"] = coverage(pit, percent / 100)
        each[f"width_{percent}"] = (high - low).mean(0)
    each["aleatoric"] = prediction.aleatoric.mean(0)
    each["epistemic"] = prediction.epistemic.mean(0)
    scores: dict[str, Any] = {"nll": float(-prediction.log_density(y).mean())}
    scores |= {name: float(values.mean()) for name, values in each.items()}
    scores |= {"calibration_error": calibration_error(pit), "pit": pit_histogram(pit)}
    if y.shape[1] > 1:
        each["nll"] = -prediction.marginal_log_density(y).mean(0)
        scores |= {f"{name}_each": values.tolist() for name, values in each.items()}
    return scores
