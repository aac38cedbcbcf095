"""The spread of the way on a conjugate Gaussian mean, in closed form and measured.

    python experiments/theory/way.py              # the closed form alone: a second
    python experiments/theory/way.py --measure    # beside it what the server's loop does: two minutes

K agents with n examples each, y ~ N(theta, noise^2), in turn, L steps of `gradient` on minibatches of B, kernel "none".
A visit is an affine map of (theta, the sites) with a noise of known variance, so that the stationary covariance of
whatever is linear in it solves a discrete Lyapunov equation. tests/posterior/test_theory.py holds it against a scalar
series and against the loop itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fedstein import Posterior
from fedstein.data import Examples, Holdings
from fedstein.engines import Local
from fedstein.inference import GaussianPrior
from fedstein.likelihoods import Gaussian
from fedstein.methods import DSVGD
from fedstein.models import DenseStack, Task
from fedstein.posterior import Turns
from fedstein.protocol import Schedule
from fedstein.protocol.server import rounds, start

Array = np.ndarray


@dataclass(frozen=True)
class Way:
    """A setting, and the stationary moments of its way: of one coordinate, with data of variance noise^2 at each agent.

    Where an agent's data has another variance, everything but the posterior's scales with it.
    """

    step: float  # method.step_size, a learning rate on the mean loss
    steps: int = 5  # L
    batch: int = 10  # B; n is a multiple of it, or less
    agents: int = 5  # K
    examples: int = 100  # n
    noise: float = 1.0
    std: float = 1.0  # of the prior
    factor: str = "flat"
    stiffness: float = 10.0  # rho of `linear`
    bandwidth: float = 0.55  # lambda of `flat`

    @property
    def curvature(self) -> float:
        """h of an agent's mean loss."""
        return 1 / self.noise**2

    @property
    def pull(self) -> float:
        """Of the downloaded particle, divided by the data's weight as the step is."""
        return (2 / self.bandwidth if self.factor == "flat" else self.stiffness) / self.examples

    @property
    def left(self) -> float:
        """a: what one step leaves of a distance."""
        return 1 - self.step * (self.curvature + self.pull)

    @property
    def gain(self) -> float:
        """G: a visit does theta -> theta - G (gradient + site / n) + noise."""
        return (1 - self.left**self.steps) / (self.curvature + self.pull)

    @property
    def visit_noise(self) -> float:
        """The variance that a visit's minibatches add: drawn without putting back, so a whole epoch adds up to 0."""
        if self.batch >= self.examples:
            return 0.0
        weights = self.left ** np.arange(self.steps - 1, -1, -1.0)
        epoch = self.examples // self.batch
        sums = [weights[begin : begin + epoch].sum() for begin in range(0, self.steps, epoch)]
        drawn = (weights**2).sum() / self.batch - (np.array(sums) ** 2).sum() / self.examples
        return float((self.step * self.curvature * self.noise) ** 2 * drawn)

    @property
    def posterior(self) -> float:
        """The exact posterior's variance."""
        return 1 / (1 / self.std**2 + self.agents * self.examples * self.curvature)

    @cached_property
    def _turn(self) -> tuple[Array, Array, Array, Array]:
        """x -> P x + Q noises after a turn, whose mean is C x + D noises; x = (theta, the sites but the last).

        Sites add up to what has moved theta, so that the last of them is known by the others.
        """
        sites, prior = self.agents - 1 if self.factor == "linear" else 0, 1 / self.std**2
        power, taken = np.eye(1 + sites), np.zeros((1 + sites, self.agents))
        row, drawn = np.zeros(1 + sites), np.zeros(self.agents)
        for agent in range(self.agents):
            visit, hit = np.eye(1 + sites), np.zeros(1 + sites)
            hit[0] = 1.0
            visit[0, 0] -= self.gain * self.curvature
            if self.factor == "linear":
                site = np.zeros(1 + sites)
                if agent < sites:
                    site[1 + agent] = 1.0
                else:
                    site[0], site[1:] = prior, -1.0
                visit[0] -= self.gain / self.examples * site
                if agent < sites:
                    visit[1 + agent] += prior * (visit[0] - np.eye(1 + sites)[0])
                    hit[1 + agent] = prior
            power, taken = visit @ power, visit @ taken
            taken[:, agent] += hit
            row, drawn = row + power[0] / self.agents, drawn + taken[0] / self.agents
        return power, taken, row, drawn

    @cached_property
    def _stationary(self) -> Array:
        """The covariance of x at a turn's end: the sum of P^j Q Q' P'^j, by doubling."""
        power, taken, _, _ = self._turn
        total = self.visit_noise * taken @ taken.T
        for _ in range(40):
            total = total + power @ total @ power.T
            power = power @ power
        return total

    @property
    def last(self) -> float:
        """The variance of the particle at a turn's end."""
        return float(self._stationary[0, 0])

    def turn_means(self, lag: int = 0) -> float:
        """The covariance of turn means that are so many turns apart."""
        power, taken, row, drawn = self._turn
        if lag == 0:
            return float(row @ self._stationary @ row + self.visit_noise * drawn @ drawn)
        ahead = power @ self._stationary @ row + self.visit_noise * taken @ drawn
        return float(row @ np.linalg.matrix_power(power, lag - 1) @ ahead)

    def centre(self, window: int) -> float:
        """The variance of the window's mean."""
        lags = sum(2 * (window - lag) * self.turn_means(lag) for lag in range(1, window))
        return (window * self.turn_means() + lags) / window**2

    def spread(self, window: int) -> float:
        """The expected variance inside a window: the mean square of its deviations from its own mean."""
        return self.turn_means() - self.centre(window)

    def scale(self, window: int) -> float:
        """The `posterior.scale` with which the Gaussian of a window has the posterior's variance."""
        inside = self.spread(window) * window / (window - 1)
        return float((self.posterior / inside) ** 0.5) if inside > 0 else float("inf")

    # The same by the server's loop

    def problem(self, coordinates: int, seed: int) -> tuple[Task, Holdings]:
        """So many means at once: the biases of a layer whose inputs are 0. The agents' means differ."""
        generator = torch.Generator().manual_seed(seed)
        agents = []
        for _ in range(self.agents):
            y = torch.randn(self.examples, coordinates, generator=generator, dtype=torch.float64)
            y = (y - y.mean(0)) / y.std(0) * self.noise + torch.randn(coordinates, generator=generator)
            agents.append(Examples(torch.zeros(self.examples, 1), y.float()))
        model = DenseStack([1, coordinates], likelihood=Gaussian(std=self.noise))
        return Task(model, GaussianPrior(self.std)), Holdings(agents)

    def method(self) -> DSVGD:
        """With one particle: all would see the same minibatches."""
        return DSVGD(
            factor=self.factor, kernel="none", particles=1, local_steps=self.steps, batch=self.batch, step="gradient",
            step_size=self.step, stiffness=self.stiffness, kde_bandwidth=self.bandwidth,
        )  # fmt: skip

    def walk(self, turns: int, coordinates: int = 200, seed: int = 0, skip: int = 50) -> tuple[Turns, Tensor]:
        """The last turns of a run, so many, and the particle (turns, coordinates) at the end of each."""
        task, holdings = self.problem(coordinates, seed)
        method, schedule, ends, whole = self.method(), Schedule(), [], []
        state, engine = start(task, method, seed), Local(task, holdings)
        way: Iterator = rounds(task, holdings, method, schedule, seed, state, engine, window=1)
        for state, _ in way:
            if state.round % self.agents == 0:
                ends.append(state.particles[0, coordinates:])  # the biases
                whole.append(state.turns.whole[-1])
            if state.turns.count == turns + skip:
                return Turns(tuple(whole[skip:]), count=turns + skip), torch.stack(ends[skip:]).double()
        raise AssertionError("a way has no end")

    def measured(self, window: int, turns: int = 600, coordinates: int = 200) -> tuple[float, float, float]:
        """The variance of the last particle, of the turn means, and inside windows that follow one another."""
        skip = 50 if self.factor == "flat" else 1000  # sites come to rest slowly
        whole, ends = self.walk(turns, coordinates, skip=skip)
        means = torch.stack([turn.mean()[0, coordinates:] for turn in whole.whole]).double()
        inside = torch.stack([part.var(0, correction=0) for part in means.split(window) if len(part) == window])
        return float(ends.var(0).mean()), float(means.var(0).mean()), float(inside.mean())


def matching_step(way: Way, window: int) -> float | None:
    """The smallest step with which a window's spread (as the Gaussian has it) is the posterior's; None if none is."""
    largest = 1 / (way.curvature + way.pull)
    grid = np.geomspace(1e-4, 1, 200) * largest
    wide = [replace(way, step=float(step)).scale(window) <= 1 for step in grid]
    return float(grid[wide.index(True)]) if any(wide) else None


ROWS = [
    *(Way(step, steps=5) for step in (0.003, 0.01, 0.03, 0.1, 0.3)),
    *(Way(0.1, steps=steps) for steps in (1, 2, 9, 10, 20)),
    *(Way(0.1, steps=5, batch=batch) for batch in (1, 5, 20)),
    *(Way(0.1, steps=5, agents=agents) for agents in (1, 20)),
    *(Way(0.1, steps=5, noise=noise) for noise in (0.5, 2.0, 5.0)),
    *(Way(step, steps=5, factor="linear") for step in (0.01, 0.1, 0.3)),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true", help="run each setting as well")
    parser.add_argument("--window", type=int, default=Posterior().length(1), help="S, turn means in the window")
    arguments = parser.parse_args()
    window = arguments.window
    measured = " measured: last | turn mean | window |" if arguments.measure else ""
    print("Standard deviations, divided by the posterior's. (n = 100 examples at each agent.)\n")
    head = f"| factor | K | B | L | noise | step | last | turn mean | window of {window} | scale | window's step |"
    print(head + measured)
    print("|---|---|---|---|---|---|---|---|---|---|---|" + ("---|---|---|" if arguments.measure else ""))
    for way in ROWS:
        exact = [(value / way.posterior) ** 0.5 for value in (way.last, way.turn_means(), way.spread(window))]
        step = matching_step(way, window)
        cells = [
            way.factor,
            way.agents,
            way.batch,
            way.steps,
            way.noise,
            way.step,
            *(f"{value:.3f}" for value in exact),
        ]
        cells += [f"{way.scale(window):.2f}", "none" if step is None else f"{step:.3f}"]
        if arguments.measure:
            cells += [f"{(value / way.posterior) ** 0.5:.3f}" for value in way.measured(window)]
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    main()
