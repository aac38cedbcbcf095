"""`kde` factors over rounds, in one and in two dimensions: total variation to the exact product of the agents.

    python experiments/theory/kde.py      # two minutes

mixtures: two agents, a mixture of two Gaussians each, in one dimension that of tests/methods/test_truth.py.
corners: four agents, a Gaussian of standard deviation 1.5 each, whose means are (+-1.5, +-1.5), or the first of these.

The prior is uniform on (-6, 6). All settings are those that come with the factor, but for 200 local steps, and steps of
0.5 with `rbf`. The last column is what independent draws of the exact posterior have under the same KDE, the mean over
20 times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedstein.data import Examples, Holdings
from fedstein.data.synthetic import negative
from fedstein.engines import Local
from fedstein.inference import UniformPrior, log_kde
from fedstein.methods import DSVGD
from fedstein.models import Task, TorchModule
from fedstein.protocol import Schedule
from fedstein.protocol.server import rounds, start

ROUNDS = (1, 2, 4, 6, 10, 20, 40, 60)
BANDWIDTH = 0.55
CORNERS = ((1.5, 1.5), (-1.5, 1.5), (1.5, -1.5), (-1.5, -1.5))
PROBLEMS = {
    "mixtures": [
        [(0.5, (-1.5, -0.75), 0.8), (0.5, (1.5, 0.75), 0.8)],
        [(0.7, (0.0, 0.0), 1.0), (0.3, (2.5, 1.25), 1.0)],
    ],
    "corners": [[(0.5, corner, 1.5), (0.5, corner, 1.5)] for corner in CORNERS],
}


class Mixture(nn.Module):
    """Each row of x is one mixture in theta: of two parts, each with a weight, a mean (dim,) and a deviation."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor) -> Tensor:
        return log_mixture(self.theta[None], x)[:, 0]


def log_mixture(at: Tensor, x: Tensor) -> Tensor:
    """(rows, places): the log density of each row's mixture at places (places, dim)."""
    dim = at.shape[1]
    parts = x.view(len(x), 2, dim + 2)
    weight, mean, std = parts[..., 0, None], parts[..., 1:-1], parts[..., -1:]
    apart = (at[None, None] - mean[:, :, None]).square().sum(-1)
    part = weight.log() - dim * (std * math.sqrt(2 * math.pi)).log() - apart / (2 * std**2)
    return part.logsumexp(1)


@dataclass(frozen=True)
class Product:
    """Agents in so many dimensions, and their product on a grid."""

    dim: int
    problem: str = "mixtures"

    @property
    def agents(self) -> list[Examples]:
        """As the module's text says."""
        rows = [[[weight, *mean[: self.dim], std] for weight, mean, std in parts] for parts in PROBLEMS[self.problem]]
        return [Examples(torch.tensor(row).reshape(1, -1), torch.zeros(1)) for row in rows]

    @property
    def grid(self) -> Tensor:
        """(places, dim)."""
        line = torch.linspace(-6, 6, 1201 if self.dim == 1 else 121, dtype=torch.float64)
        return torch.cartesian_prod(*[line] * self.dim).view(-1, self.dim)

    @property
    def exact(self) -> Tensor:
        """Probabilities on the grid."""
        return sum(log_mixture(self.grid, data.x.double())[0] for data in self.agents).softmax(0)

    def distance(self, particles: Tensor) -> float:
        """The total variation of the particles' KDE."""
        smoothed = log_kde(self.grid, particles.double(), BANDWIDTH).softmax(0)
        return 0.5 * float((smoothed - self.exact).abs().sum())

    def of_draws(self, count: int) -> float:
        """What so many draws of the posterior have, on average."""
        generator, found = torch.Generator().manual_seed(0), []
        for _ in range(20):
            places = torch.multinomial(self.exact, count, replacement=True, generator=generator)
            found.append(self.distance(self.grid[places]))
        return sum(found) / len(found)

    def over_rounds(self, method: DSVGD, last: int = ROUNDS[-1], seed: int = 0) -> dict[int, float]:
        """The distance after some of the rounds."""
        task = Task(TorchModule(Mixture(self.dim), negative), UniformPrior(-6.0, 6.0), "prior")
        holdings = Holdings(self.agents)
        first, found = start(task, method, seed), {}
        for state, _ in rounds(task, holdings, method, Schedule(), seed, first, Local(task, holdings)):
            if state.round in ROUNDS:
                found[state.round] = self.distance(state.particles)
            if state.round == last:
                return found
        raise AssertionError("rounds have no end")


def main() -> None:
    torch.set_num_threads(1)
    print("| problem | d | particles | kernel | " + " | ".join(f"round {round}" for round in ROUNDS) + " | draws |")
    print("|---|---|---|---|" + "---|" * (len(ROUNDS) + 1))
    for problem, dim, count, kernel, extra in (
        ("mixtures", 1, 50, "density", {}),
        ("mixtures", 1, 50, "rbf", {"step_size": 0.5}),
        ("mixtures", 2, 100, "density", {}),
        ("mixtures", 2, 100, "rbf", {"step_size": 0.5}),
        ("corners", 1, 50, "density", {}),
        ("corners", 2, 50, "density", {}),
        ("corners", 2, 200, "density", {}),
    ):
        method = DSVGD(factor="kde", kernel=kernel, particles=count, local_steps=200, kde_bandwidth=BANDWIDTH, **extra)
        product = Product(dim, problem)
        found = product.over_rounds(method)
        cells = " | ".join(f"{found[round]:.3f}" for round in ROUNDS)
        print(f"| {problem} | {dim} | {count} | `{kernel}` | {cells} | {product.of_draws(count):.3f} |", flush=True)


if __name__ == "__main__":
    main()
