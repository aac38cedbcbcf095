"""The spread of the way on a conjugate Gaussian mean: a scalar series, a Lyapunov equation, and the server's loop."""

from __future__ import annotations

import runpy
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from fedstein.engines import Local
from fedstein.methods import DSVGD
from fedstein.posterior import Posterior, Turns, members
from fedstein.protocol import Schedule
from fedstein.protocol.server import rounds, start

WAY = runpy.run_path(str(Path(__file__).parents[2] / "experiments" / "theory" / "way.py"))
Way, matching_step = WAY["Way"], WAY["matching_step"]

FLAT = Way(0.1)
SITES = Way(0.1, factor="linear", std=0.1, stiffness=100.0)  # a stiff prior, so that sites come to rest within 50 turns


def series(way, lag=None):
    """Of `flat` factors: theta -> A theta + noise of variance v at each visit, and sums of powers of A.

    The variance of the last particle; or the covariance of turn means that are `lag` turns apart.
    """
    h, a, L, B, n, K = way.curvature, way.left, way.steps, way.batch, way.examples, way.agents
    A = 1 - h * (1 - a**L) / (h + way.pull)
    each = a ** np.arange(L)[::-1]
    v = (way.step * h * way.noise) ** 2 * (
        (each**2).sum() / B - sum(each[i : i + n // B].sum() ** 2 for i in range(0, L, n // B)) / n
    )
    last = v / (1 - A * A)
    if lag is None:
        return last
    if lag == 0:
        return last * (K + 2 * sum((K - i) * A**i for i in range(1, K))) / K**2
    return last * A ** ((lag - 1) * K + 1) * ((1 - A**K) / (1 - A)) ** 2 / K**2


@pytest.mark.parametrize(
    "way",
    [
        FLAT,
        Way(0.01, steps=1, batch=1, noise=2.0),
        Way(0.5, steps=20, batch=25),
        Way(0.2, steps=7, batch=50, agents=1, examples=50),
        Way(0.2, steps=13, batch=20, agents=8, noise=0.5, bandwidth=2.0),
    ],
)
def test_the_equation_is_the_series(way):
    assert way.last == pytest.approx(series(way), rel=1e-9, abs=1e-15)
    lags = [way.turn_means(lag) for lag in range(12)]
    assert lags == pytest.approx([series(way, lag) for lag in range(12)], rel=1e-9, abs=1e-15)
    every = np.array([[lags[abs(i - j)] for i in range(10)] for j in range(10)])
    assert way.spread(10) == pytest.approx(np.trace(every) / 10 - every.mean(), rel=1e-9, abs=1e-15)


def means(way, agents):
    """(d,) The stationary means of the last particle and of a turn, and the posterior's, of `flat` factors."""
    own = torch.stack([data.y.double().mean(0) for data in agents])
    A = 1 - way.curvature * way.gain
    lean = A ** torch.arange(way.agents - 1, -1, -1, dtype=torch.float64)  # the last agent has been there last
    posterior = own.mean(0) * (1 - way.posterior / way.std**2)
    return (lean[:, None] * own).sum(0) / lean.sum(), own.mean(0), posterior


def near(measured, expected):
    """Estimates of the coordinates, which are alike and all but independent, against what they should be."""
    error = measured.std() / len(measured) ** 0.5
    assert abs(measured.mean() - expected) < 4 * error + 0.01 * abs(expected), (measured.mean(), expected, error)


@pytest.mark.parametrize("way", [FLAT, replace(FLAT, steps=2, step=0.03), SITES], ids=["flat", "small steps", "linear"])
def test_the_loop_does_what_the_equation_says(way):
    turns, ends = way.walk(turns=250)
    whole = torch.stack([turn.mean()[0, 200:] for turn in turns.whole]).double()
    near(whole.var(0), way.spread(len(whole)) * len(whole) / (len(whole) - 1))
    inside = torch.stack([part.var(0, correction=0) for part in whole.split(10)]).mean(0)
    near(inside, way.spread(10))
    if way.factor == "flat":  # means are known: the covariances without the bias of a mean that is estimated
        last, middle, _ = means(way, way.problem(200, 0)[1].agents)
        near((ends - last).square().mean(0), way.last)
        off = whole - middle
        near(off.square().mean(0), way.turn_means())
        near((off[1:] * off[:-1]).mean(0), way.turn_means(1))
    else:
        near(ends.var(0), way.last)


def mean_over(turns):
    return torch.stack([turn.mean()[0, 200:] for turn in turns.whole]).double().mean(0)


def test_turns_follow_no_agent_and_flat_factors_lose_the_prior():
    way = replace(FLAT, std=0.1)
    turns, ends = way.walk(turns=100)
    last, middle, posterior = means(way, way.problem(200, 0)[1].agents)
    assert (mean_over(turns) - middle).square().mean() < 3 * way.centre(100)
    assert (mean_over(turns) - posterior).square().mean() > 50 * way.centre(100)
    assert (ends.mean(0) - last).square().mean() < 0.3 * way.last
    assert (last - middle).square().mean() > 30 * way.posterior  # a turn's end leans to who was visited last


def test_the_way_of_linear_factors_is_about_its_anchor():
    way = replace(SITES, steps=10)  # whole epochs: next to no noise
    turns, _ = way.walk(turns=100)
    task, holdings = way.problem(200, 0)
    anchor = start(task, way.method(), 0).particles[0, 200:].double()
    *_, posterior = means(way, holdings.agents)
    exact = posterior + way.posterior / way.std**2 * anchor
    assert (mean_over(turns) - exact).square().mean() < 0.01 * way.posterior


def test_chains_see_the_same_minibatches():
    task, holdings = FLAT.problem(200, 0)
    method = DSVGD(
        **FLAT.method().model_dump() | {"particles": 2, "kde_bandwidth": 1e9}
    )  # each pulled to its own place
    first = start(task, method, 0)
    state, _ = next(islice(rounds(task, holdings, method, Schedule(), 0, first, Local(task, holdings)), 99, None))
    one, other = state.particles[:, 200:]
    moved = replace(FLAT, bandwidth=1e9).last ** 0.5
    assert (one - other).abs().max() < 1e-3 * moved


@pytest.mark.parametrize("way", [Way(0.02), Way(0.1), Way(0.3)])
def test_a_scale_makes_the_gaussian_the_posterior(way):
    """`posterior.from = "gaussian"` of the loop's own window, with the scale of the closed form."""
    turns, _ = way.walk(turns=200)
    settings = Posterior("gaussian", window=10, draws=40, scale=way.scale(10))
    variances = []
    for end in range(10, 201, 10):
        now = Turns(turns.whole[end - 10 : end], count=100)
        drawn = members(settings, turns.whole[-1].mean(), now, end, 0)[:, 200:].double()
        variances.append(drawn.var(0))
    near(torch.stack(variances).mean(0), way.posterior)


def test_which_step_has_the_posteriors_spread():
    for way in (FLAT, replace(FLAT, batch=5), replace(FLAT, factor="linear")):
        step = matching_step(way, 10)
        assert replace(way, step=step).scale(10) == pytest.approx(1, rel=0.06)
        assert replace(way, step=step / 4).scale(10) > 1.3  # a smaller step understates
        assert replace(way, step=min(4 * step, 0.9)).scale(10) < 0.9  # a larger one overstates


def test_the_limits():
    """Slow chains: step / 2B, as constant-step SGD has it. Quick ones: what a turn has seen, whatever the step."""
    slow = Way(1e-4, steps=5, bandwidth=1e9)
    part = slow.steps * slow.batch / slow.examples
    assert slow.last == pytest.approx(slow.step / (2 * slow.batch) * (1 - part), rel=0.01)
    assert slow.spread(10) < 0.03 * slow.turn_means()  # ten turns are one and the same place
    for step in (0.02, 0.05):
        quick = Way(step, steps=5, agents=400, bandwidth=1e9)
        seen = quick.agents * quick.steps * quick.batch
        assert quick.turn_means() == pytest.approx(1 / seen - 1 / (quick.agents * quick.examples), rel=0.06)
        assert quick.turn_means() == pytest.approx(quick.posterior, rel=0.06)  # it has seen half of the data
    whole = replace(FLAT, steps=10)  # every example once in a visit: the noise all but cancels
    assert whole.spread(10) < 0.15 * FLAT.spread(10)
    assert replace(FLAT, batch=100).last == 0


def test_it_is_the_step_times_the_curvature_that_counts():
    """So one scale corrects all directions only where the step is preconditioned, or where all chains are quick."""
    free = {"bandwidth": 1e9, "std": 1e3}
    wide = [Way(0.05 * noise**2, noise=noise, **free).scale(10) for noise in (0.5, 1.0, 2.0)]
    assert wide == pytest.approx([wide[1]] * 3, rel=1e-3)  # preconditioned
    stiff, plain, soft = (Way(0.05, noise=noise, **free).scale(10) for noise in (0.5, 1.0, 5.0))
    assert stiff < 1 < plain < 2 < 10 < soft
