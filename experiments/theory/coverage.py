"""How often 90 % intervals of the particles of `linear` factors cover what they should.

    python experiments/theory/coverage.py              # runs: five minutes
    python experiments/theory/coverage.py --closed     # fixed points alone, on more problems: a quarter of a minute

Linear regression with 20 features and a bias, noise 3, a prior N(0, 1) from which the truth is drawn, N examples at 5
agents (or as many as said). An interval is the mean of a coefficient over 100 particles, and 1.645 standard deviations
of them to both sides. A run has several targets: each is a regression of its own, they share inputs and weights.

After enough rounds a particle is the solution of a linear system (`fixed_points`), which every run is held against.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedstein.data import Examples, Holdings
from fedstein.inference import GaussianPrior
from fedstein.likelihoods import Gaussian
from fedstein.methods import DSVGD
from fedstein.models import DenseStack, Task
from fedstein.models.task import Init
from fedstein.protocol import Schedule
from fedstein.runs.training import fit
from fedstein.streams import stream

LEVEL = 1.6449  # standard deviations to each side: 90 %
NOISE, FEATURES, PARTICLES = 3.0, 20, 100


@dataclass(frozen=True)
class Regression:
    """Several regressions on the same inputs."""

    agents: list[Examples]
    truth: Tensor  # (targets, features + 1), the bias last

    @classmethod
    def draw(cls, examples: int, agents: int, targets: int, seed: int) -> Regression:
        """Truths from the prior; the examples go to the agents in turn."""
        generator = torch.Generator().manual_seed(seed)
        truth = torch.randn(targets, FEATURES + 1, generator=generator)
        x = torch.randn(examples, FEATURES, generator=generator)
        y = x @ truth[:, :-1].T + truth[:, -1] + NOISE * torch.randn(examples, targets, generator=generator)
        return cls([Examples(x[k::agents], y[k::agents]) for k in range(agents)], truth.double())

    @property
    def x(self) -> Tensor:
        """(N, features + 1) of all agents, one after the other."""
        x = torch.cat([data.x[:] for data in self.agents]).double()
        return torch.cat([x, torch.ones(len(x), 1)], 1)

    @property
    def y(self) -> Tensor:
        """(N, targets)."""
        return torch.cat([data.y for data in self.agents]).double()

    def run(self, method: DSVGD, init: Init, turns: int, seed: int) -> tuple[Tensor, Tensor]:
        """Particles (N_p, targets, features + 1) after so many turns, and their starts."""
        targets = len(self.truth)
        task = Task(DenseStack([FEATURES, targets], likelihood=Gaussian(std=NOISE)), GaussianPrior(1.0), init)
        all_of_them = turns * len(self.agents)
        trained = fit(
            task, Holdings(self.agents), lambda members: {}, method,
            rounds_to_do=all_of_them, schedule=Schedule(), seed=seed, evaluate_every=all_of_them,
        )  # fmt: skip
        return shaped(trained.particles, targets), shaped(method.start(task, stream(seed, "particles")), targets)

    def fixed_points(self, starts: Tensor, weights: Tensor | None, noise: Tensor | None = None) -> Tensor:
        """(N_p, targets, features + 1): where each particle comes to rest, with the prior's pull to its start.

        Args:
            starts: of the particles.
            weights: (N_p, N) of the examples; 1 if None.
            noise: (N_p, N, targets) added to the targets, for randomised MAP.
        """
        x, y, count = self.x, self.y.expand(len(starts), -1, -1), len(starts)
        y = y if noise is None else y + noise
        weighed = x.expand(count, -1, -1) if weights is None else x * weights.double()[:, :, None]
        precision = torch.eye(x.shape[1], dtype=torch.float64) + weighed.mT @ x / NOISE**2
        return torch.linalg.solve(precision, starts.double().mT + weighed.mT @ y / NOISE**2).mT

    def covered(self, particles: Tensor) -> Tensor:
        """(targets,) shares of the coefficients that are in their intervals."""
        near = (particles.mean(0) - self.truth).abs() <= LEVEL * particles.std(0)
        return near.double().mean(1)

    def spread(self, particles: Tensor) -> float:
        """The particles' standard deviations divided by the posterior's."""
        exact = torch.linalg.inv(torch.eye(FEATURES + 1) + self.x.mT @ self.x / NOISE**2).diagonal().sqrt()
        return float((particles.std(0) / exact).mean())


def shaped(particles: Tensor, targets: int) -> Tensor:
    """Flat particles as (N_p, targets, features + 1)."""
    weight, bias = particles.double().split([targets * FEATURES, targets], 1)
    return torch.cat([weight.view(len(particles), targets, FEATURES), bias[:, :, None]], 2)


def exponential(sizes: Sequence[int], generator: torch.Generator, own_mean: bool) -> Tensor:
    """(N_p, N) weights Exp(1) of all agents' examples, divided by their mean at each agent, or as they are."""
    drawn = [torch.empty(PARTICLES, size, dtype=torch.float64).exponential_(generator=generator) for size in sizes]
    return torch.cat([part / part.mean(1, keepdim=True) if own_mean else part for part in drawn], 1)


def method(resample: str, particles: int = PARTICLES) -> DSVGD:
    """All of an agent's examples in every step, and a soft pull: a particle comes to rest."""
    return DSVGD(
        factor="linear", particles=particles, stiffness=1.0, local_steps=20, step_size=0.4, batch=10**6,
        resample=resample,
    )  # fmt: skip


def weights_of(problem: Regression, resample: str, particles: int, seed: int) -> Tensor | None:
    """Those of a run, as its agents draw them."""
    if resample == "none":
        return None
    parts = []
    for agent, data in enumerate(problem.agents):
        drawn = stream(seed, "bootstrap", agent=agent)
        part = -torch.log1p(-torch.rand(particles, len(data), generator=drawn, dtype=torch.float64))
        parts.append(part / part.mean(1, keepdim=True))
    return torch.cat(parts, 1)


def runs(examples: int, agents: int, problems: int, targets: int, turns: int) -> None:
    """Runs of fedstein."""
    for resample in ("none", "bootstrap"):
        for init in ("fan-in", "prior"):
            covered, wide, off = [], [], 0.0
            for seed in range(problems):
                problem = Regression.draw(examples, agents, targets, seed)
                found, starts = problem.run(method(resample), init, turns, seed)
                exact = problem.fixed_points(starts, weights_of(problem, resample, PARTICLES, seed))
                off = max(off, float(((found - exact).std(0) / exact.std(0)).max()))
                covered.append(problem.covered(found))
                wide.append(problem.spread(found))
            told(f"`{resample}`, start `{init}`", examples, agents, torch.cat(covered), wide, f"{off:.3f}")


def closed(examples: int, agents: int, problems: int, targets: int) -> None:
    """Fixed points with other weights, and randomised MAP, which is exact."""
    kinds = ("no weights", "Exp(1), mean one at each agent", "Exp(1) as drawn", "noise on the targets")
    for kind in kinds:
        covered, wide = [], []
        for seed in range(problems):
            problem = Regression.draw(examples, agents, targets, 1000 + seed)
            generator = torch.Generator().manual_seed(seed)
            starts = torch.randn(PARTICLES, targets, FEATURES + 1, generator=generator, dtype=torch.float64)
            sizes = [len(data) for data in problem.agents]
            weights = exponential(sizes, generator, kind == kinds[1]) if kind.startswith("Exp") else None
            noise = None
            if kind == kinds[3]:
                noise = NOISE * torch.randn(PARTICLES, *problem.y.shape, generator=generator, dtype=torch.float64)
            found = problem.fixed_points(starts, weights, noise)
            covered.append(problem.covered(found))
            wide.append(problem.spread(found))
        told(kind, examples, agents, torch.cat(covered), wide, "")


def told(what: str, examples: int, agents: int, covered: Tensor, wide: list[float], off: str) -> None:
    """A line of the table."""
    error = float(covered.std() / len(covered) ** 0.5)
    share, ratio = float(covered.mean()), sum(wide) / len(wide)
    print(f"| {what} | {examples} | {agents} | {share:.3f} ± {error:.3f} | {ratio:.2f} | {off} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--closed", action="store_true", help="fixed points alone")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(
        "| particles | N | agents | covered | spread / posterior's | off the fixed points |\n|---|---|---|---|---|---|"
    )
    if arguments.closed:
        for examples, agents, problems in ((30, 5, 200), (30, 15, 200), (100, 5, 200), (1000, 5, 50)):
            closed(examples, agents, problems, 10)
    else:
        for examples, problems, targets, turns in ((30, 8, 20, 30), (100, 8, 20, 50), (1000, 2, 10, 150)):
            runs(examples, 5, problems, targets, turns)


if __name__ == "__main__":
    main()
