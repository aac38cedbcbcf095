"""Problems whose posterior is known exactly, as modules and data like a user's own.

They are what the truth tests stand on, and a quick way to see a setting converge or not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedstein.data.examples import Examples
from fedstein.data.rows import loaded
from fedstein.inference import GaussianPrior, UniformPrior, log_kde

__all__ = ["GaussianMean", "MixtureAgents", "negative"]


def negative(outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss of a module that returns log-likelihoods itself; targets are not used."""
    return -outputs


class _GaussianModule(nn.Module):
    def __init__(self, dim: int, noise: float) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(dim))
        self.noise = noise

    def forward(self, x: Tensor) -> Tensor:
        constant = x.shape[1] * math.log(self.noise * math.sqrt(2.0 * math.pi))
        return (x - self.mean).square().sum(1) * (-0.5 / self.noise**2) - constant


@dataclass(frozen=True)
class GaussianMean:
    """Observations N(theta, noise^2 I), prior N(0, std^2 I): the posterior is Gaussian in closed form.

    The agents' observations are centred on different points, so nobody alone has the answer.
    """

    agents: tuple[Examples, ...]
    noise: float
    prior: GaussianPrior

    @classmethod
    def draw(
        cls, agents: int, examples: int, dim: int, generator: torch.Generator, noise: float = 1.0, std: float = 1.0
    ) -> GaussianMean:
        """A problem with random observations."""
        data = []
        for _ in range(agents):
            centre = torch.randn(dim, generator=generator) + 1.0
            x = centre + noise * torch.randn(examples, dim, generator=generator)
            data.append(Examples(x, torch.zeros(examples)))
        return cls(tuple(data), noise, GaussianPrior(std))

    def module(self) -> nn.Module:
        """Returns the log-likelihood of each observation; use it with the loss `negative`."""
        return _GaussianModule(self.agents[0].x.shape[1], self.noise)

    def posterior(self, counted: str = "sum", temperature: float = 1.0) -> tuple[Tensor, float]:
        """Exact mean (d,) and standard deviation.

        Args:
            counted: "sum" for the true posterior; "mean" where each agent's *mean* loss counts (equation 7).
            temperature: of the generalised posterior; losses are divided by it.
        """
        weights = [(1.0 if counted == "sum" else 1.0 / len(data)) / temperature for data in self.agents]
        total = sum(w * loaded(data.x).double().sum(0) for w, data in zip(weights, self.agents, strict=True))
        count = sum(w * len(data) for w, data in zip(weights, self.agents, strict=True))
        precision = self.prior.precision + count / self.noise**2
        assert isinstance(total, Tensor)
        return total / self.noise**2 / precision, precision**-0.5

    def errors(self, particles: Tensor, counted: str = "sum", temperature: float = 1.0) -> dict[str, float]:
        """How far the particles' mean and spread are from the exact ones."""
        mean, std = self.posterior(counted, temperature)
        off = (particles.double().mean(0) - mean).norm() / mean.norm()
        spread = particles.double().std(0, correction=0).mean() if len(particles) > 1 else torch.tensor(0.0)
        return {"posterior_mean_error": float(off), "posterior_std_ratio": float(spread) / std}


class _MixtureModule(nn.Module):
    """Each row of x is one mixture in theta: weights, means and standard deviations of its two parts."""

    def __init__(self) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        weight, mean, std = x.view(len(x), 3, 2).unbind(1)
        part = weight.log() - (std * math.sqrt(2.0 * math.pi)).log() - 0.5 * ((self.theta - mean) / std) ** 2
        return part.logsumexp(1)


@dataclass(frozen=True)
class MixtureAgents:
    """Two agents, each with a mixture of two Gaussians as its likelihood; uniform prior on (-6, 6)."""

    agents: tuple[Examples, ...]
    prior: UniformPrior

    @classmethod
    def two(cls) -> MixtureAgents:
        """The problem of the tests: each agent alone has another shape than the product."""
        rows = ([0.5, 0.5, -1.5, 1.5, 0.8, 0.8], [0.7, 0.3, 0.0, 2.5, 1.0, 1.0])
        data = tuple(Examples(torch.tensor([row]), torch.zeros(1)) for row in rows)
        return cls(data, UniformPrior(-6.0, 6.0))

    def module(self) -> nn.Module:
        """Returns the log-likelihood of theta under each row; use it with the loss `negative`."""
        return _MixtureModule()

    def grid(self, points: int = 1201) -> Tensor:
        """(points, 1) over the support of the prior."""
        return torch.linspace(self.prior.low, self.prior.high, points, dtype=torch.float64)[:, None]

    def exact(self, agents: tuple[Examples, ...] | None = None) -> Tensor:
        """Probabilities of the exact product posterior on the grid (they sum to 1)."""
        log = torch.zeros(len(self.grid()), dtype=torch.float64)
        for data in self.agents if agents is None else agents:
            weight, mean, std = loaded(data.x).double().view(3, 2)
            part = weight.log() - std.log() - 0.5 * ((self.grid() - mean) / std) ** 2
            log += part.logsumexp(1)
        return log.softmax(0)

    def smoothed(self, particles: Tensor, bandwidth: float) -> Tensor:
        """Probabilities of the particles' KDE on the grid."""
        return log_kde(self.grid(), particles.double(), bandwidth).softmax(0)

    def total_variation(self, particles: Tensor, bandwidth: float) -> float:
        """Between the KDE of the particles and the exact posterior."""
        return 0.5 * float((self.smoothed(particles, bandwidth) - self.exact()).abs().sum())

    def smoothing_floor(self, count: int, bandwidth: float) -> float:
        """The total variation that exact quantile samples have under the same KDE."""
        levels = (torch.arange(count, dtype=torch.float64) + 0.5) / count
        places = torch.searchsorted(self.exact().cumsum(0), levels).clamp(max=len(self.grid()) - 1)
        return self.total_variation(self.grid()[places], bandwidth)
