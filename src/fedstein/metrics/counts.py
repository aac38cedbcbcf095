r"""Predicted counts: the mixture of N Poisson distributions that N particles predict."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedstein.metrics.predictions import Numbers, check_level

__all__ = ["PoissonMixture", "log_poisson", "poisson_deviance"]

_ONE_BY_ONE = 1024  # most counts on each side of the target that a CRPS sums one by one
_GROUPS = 256  # of counts, where there are more
_AT_A_TIME = 2_000_000  # values of a CDF held at once


def log_poisson(log_rate: Tensor, y: Tensor) -> Tensor:
    """Log-probability of counts `y`, without the cancellation of large numbers in y log(rate) - rate - log(y!).

    Args:
        log_rate: of any shape.
        y: whole numbers from 0 as floats, of a shape that fits.
    """
    some = y > 0
    safe = torch.where(some, y, torch.ones_like(y))  # no log of 0, in the gradient neither
    behind = log_rate - safe.log()
    # y (e^b - 1 - b) is the deviance / 2; what is left is that of a Poisson whose rate is y
    from_own = safe * (torch.expm1(behind) - behind)
    # float64, which not every device has: it is of y alone, and can be worked out on the CPU
    exact = (safe if safe.device.type in ("cpu", "cuda") else safe.cpu()).double()
    own = (torch.lgamma(exact + 1) - exact * exact.log() + exact).to(y.dtype).to(y.device)
    return -torch.where(some, from_own + own, log_rate.exp())


@dataclass(frozen=True, repr=False)
class PoissonMixture(Numbers):
    """For each of n inputs and each target, N Poisson distributions with equal weights."""

    log_rates: Tensor  # (n, N, targets)

    @property
    def rates(self) -> Tensor:
        """(n, N, targets)."""
        return self.log_rates.exp()

    @property
    def mean(self) -> Tensor:
        """(n, targets)."""
        return self.rates.mean(1)

    @property
    def aleatoric(self) -> Tensor:
        """(n, targets) mean of the particles' variances, which are their rates."""
        return self.rates.mean(1)

    @property
    def epistemic(self) -> Tensor:
        """(n, targets) variance of the particles' rates."""
        return self.rates.var(1, correction=0)

    def cdf(self, y: Tensor) -> Tensor:
        """(n, targets) probability of at most `y`, for each target alone."""
        return _cdf(y[:, None], self.rates).mean(1)

    def quantile(self, level: float) -> Tensor:
        """(n, targets) the smallest count with at least this probability below or at it, by bisection."""
        check_level(level)
        low, high = self._range()
        low = low - 1
        for _ in range(200):  # more than any double needs
            if not bool((high - low > 1).any()):
                break
            middle = (low + (high - low) / 2).floor()
            under = self.cdf(middle) < level
            low, high = torch.where(under, middle, low), torch.where(under, high, middle)
        return high

    def log_density(self, y: Tensor) -> Tensor:
        """(n,) log-probability of all counts of an example together; a particle's targets are independent."""
        each = log_poisson(self.log_rates, y.to(self.log_rates.dtype)[:, None]).sum(2)
        return each.logsumexp(1) - math.log(self.log_rates.shape[1])

    def marginal_log_density(self, y: Tensor) -> Tensor:
        """(n, targets) log-probability of each count alone."""
        each = log_poisson(self.log_rates, y.to(self.log_rates.dtype)[:, None])
        return each.logsumexp(1) - math.log(self.log_rates.shape[1])

    def pit(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """P(Y < y) and P(Y <= y): between them the randomised PIT is uniform."""
        return self.cdf(y - 1), self.cdf(y)

    def crps(self, y: Tensor) -> Tensor:
        r"""(n, targets) :math:`\sum_k (F(k) - 1[y \le k])^2`, over the counts where F is neither 0 nor 1.

        What is left out, beyond ten standard deviations of every particle, is below 1e-12. On each side of `y` up to
        1,024 counts are summed one by one. Where there are more, 256 equal groups of them are, each by its middle:
        wrong by at most the length of a group, since both squares are monotone there.
        """
        n, count, targets = self.log_rates.shape
        y = y.to(self.log_rates.dtype).reshape(-1)
        rates = self.rates.transpose(1, 2).reshape(n * targets, count)
        low, high = (end.reshape(-1) for end in self._range())
        score = (low - y).clamp_min(0.0) + (y - high - 1).clamp_min(0.0)  # F is 0 or 1 there
        split = torch.minimum(torch.maximum(y, low), high + 1)
        score += _sum_of_squares(rates, low, split, below=True) + _sum_of_squares(rates, split, high + 1, below=False)
        return score.reshape(n, targets)

    def _range(self) -> tuple[Tensor, Tensor]:
        """(n, targets) counts between which all particles put all but 1e-15 of their probability."""
        least, most = self.rates.amin(1), self.rates.amax(1)
        return (least - 10 * least.sqrt()).floor().clamp_min(0.0), (most + 10 * most.sqrt() + 40).ceil()


def _cdf(y: Tensor, rates: Tensor) -> Tensor:
    """P(Y <= y) = Q(y + 1, rate), the upper incomplete gamma function; 0 below 0."""
    whole = y.floor()
    return torch.where(whole < 0, 0.0, torch.special.gammaincc(whole.clamp_min(0.0) + 1, rates))


def _sum_of_squares(rates: Tensor, start: Tensor, end: Tensor, below: bool) -> Tensor:
    """(rows,) sum of F(k)^2, or of (1 - F(k))^2, over start <= k < end.

    Args:
        rates: (rows, N).
        start: (rows,) first count.
        end: (rows,) one after the last.
        below: F, or 1 - F.
    """
    length = (end - start).clamp_min(0.0)
    sums = torch.zeros_like(length)
    order = length.argsort()  # rows of like length together: none sums as many counts as the longest
    few = int((length <= _ONE_BY_ONE).sum())
    rows_at_a_time = max(1, _AT_A_TIME // (_ONE_BY_ONE * rates.shape[1]))
    for part in (*torch.split(order[:few], rows_at_a_time), *torch.split(order[few:], rows_at_a_time)):
        longest = float(length[part].max()) if len(part) else 0.0
        points = int(longest) if longest <= _ONE_BY_ONE else _GROUPS
        if points == 0:
            continue
        edges = torch.arange(points + 1, dtype=length.dtype, device=length.device) / points
        # a row shorter than `points` has empty groups, which weigh nothing
        cuts = start[part, None] + (edges * length[part, None]).round()
        size = cuts[:, 1:] - cuts[:, :-1]
        # the middle of an even group lies between two counts, where the gamma function goes on
        middle = cuts[:, :-1] + (size - 1).clamp_min(0.0) / 2
        probability = torch.special.gammaincc(middle[:, None] + 1, rates[part][:, :, None]).mean(1)
        sums[part] = (size * (probability if below else 1 - probability).square()).sum(1)
    return sums


def poisson_deviance(mean: Tensor, y: Tensor) -> Tensor:
    """(targets,) mean of 2 (y log(y / mean) - y + mean) over predicted means (n, targets)."""
    mean, y = mean.double().clamp_min(1e-300), y.double()
    each: Tensor = torch.special.xlogy(y, y / mean) - y + mean
    return 2 * each.mean(0)
