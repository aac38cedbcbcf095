"""Bayesian-bootstrap weights: whose they are, where particles come to rest with them, what their intervals cover."""

from __future__ import annotations

import runpy
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

import pytest
import torch

from fedstein.data import Examples, Holdings
from fedstein.data.synthetic import GaussianMean, negative
from fedstein.engines import Local
from fedstein.errors import UserError
from fedstein.inference import GaussianPrior
from fedstein.methods import DSVGD
from fedstein.methods.forget_svgd import ForgetSVGD
from fedstein.models import Task, TorchModule
from fedstein.protocol import Schedule
from fedstein.protocol.server import rounds, start
from fedstein.streams import stream
from fedstein.testing.methods import classifier_problem, visit_of

COVERAGE = runpy.run_path(str(Path(__file__).parents[2] / "experiments" / "theory" / "coverage.py"))


class Watched:
    """A model that remembers which examples it was given, by their first number, and how they were weighed."""

    def __init__(self, model):
        self.model, self.dim, self.device, self.likelihood = model, model.dim, model.device, model.likelihood
        self.seen = []

    def draw(self, count, generator):
        return self.model.draw(count, generator)

    def loss_gradient(self, particles, x, y, scale=1.0, out=None, **weights):
        self.seen.append((x[:, 0].clone(), weights))
        return self.model.loss_gradient(particles, x, y, scale=scale, out=out, **weights)


def watched(method, agent=0, round=0, seed=0):
    """(size, N_p): the weights of each example as they were at a visit; all of its steps agree on them."""
    task, agents = classifier_problem()
    data = Examples(agents[0].x.clone(), agents[0].y)
    data.x[:, 0] = torch.arange(len(data))
    model = Watched(task.model)
    task = replace(task, model=model)
    visit = visit_of(task, data, method.start(task, stream(0, "particles")), {}, round, 3)
    visit = replace(visit, stream=partial(stream, seed, round=round, agent=agent))
    method.visit(visit)
    found = torch.full((len(data), method.particles), torch.nan)
    for examples, weights in model.seen:
        for example, column in zip(examples.long(), weights["weights"].T, strict=True):
            assert found[example].isnan().all() or torch.equal(found[example], column)
            found[example] = column
    return found


@pytest.mark.parametrize("batch", [4, 7, 25, 100])
def test_an_example_has_its_own_weights_at_every_visit(batch):
    method = DSVGD(factor="linear", particles=6, local_steps=9, batch=batch, resample="bootstrap")
    first = watched(method)
    assert first.isfinite().all()
    assert torch.allclose(first.mean(0), torch.ones(6))
    assert (first > 0).all()
    assert len(first.unique()) == first.numel()
    assert torch.equal(watched(method, round=7), first)
    assert not torch.equal(watched(method, agent=1), first)
    assert not torch.equal(watched(method, seed=1), first)


def test_what_is_forgotten_is_weighed_as_it_was_learnt():
    method = DSVGD(kernel="none", particles=6, local_steps=9, batch=7, resample="bootstrap")
    guarded = ForgetSVGD(**method.model_dump(), chance=False)
    assert torch.equal(watched(guarded), watched(method))
    assert ForgetSVGD.of(method, guarded=True).resample == "bootstrap"
    assert ForgetSVGD.of(method, guarded=False).resample == "none"  # the letter's kernel mixes particles


def test_nobody_is_weighed_unless_it_is_asked_for():
    task, agents = classifier_problem()
    model = Watched(task.model)
    method = DSVGD(factor="linear", particles=3, local_steps=2, batch=10)
    particles = method.start(task, stream(0, "particles"))
    method.visit(visit_of(replace(task, model=model), agents[0], particles, {}, 0, 3))
    assert [weights for _, weights in model.seen] == [{}, {}]


def test_it_needs_particles_of_their_own():
    with pytest.raises(UserError, match="kernel must be 'none' with resample 'bootstrap'"):
        DSVGD(resample="bootstrap")
    with pytest.raises(UserError, match="kernel must be 'none'"):
        DSVGD(factor="kde", resample="bootstrap")
    assert DSVGD(kernel="none", resample="bootstrap").factor == "flat"


def test_a_loss_without_values_for_each_example_is_refused():
    _, agents = classifier_problem()
    model = TorchModule(torch.nn.Linear(6, 3), lambda outputs, y: torch.nn.functional.cross_entropy(outputs, y))
    method = DSVGD(factor="linear", particles=3, resample="bootstrap")
    particles = torch.zeros(3, model.dim)
    with pytest.raises(UserError, match="one loss for each example, so that they can be weighted"):
        method.visit(visit_of(Task(model), agents[0], particles, {}, 0, 3))


@pytest.mark.parametrize("way", ["vmap", "loop"])
@pytest.mark.parametrize("agents_per_round", [1, 2])
def test_each_particle_comes_to_rest_at_its_weighted_optimum(way, agents_per_round):
    """delta (theta_n - theta_n0) + sum_i w_ni grad l_i(theta_n) = 0, on the general path."""
    gaussian = GaussianMean.draw(4, 20, 3, stream(5, "gaussian"), noise=2.0)
    task = Task(TorchModule(gaussian.module(), negative, way=way), GaussianPrior(), "prior")
    method = DSVGD(factor="linear", particles=5, stiffness=1.0, local_steps=20, step_size=0.3, resample="bootstrap")
    first, holdings = start(task, method, 3), Holdings(list(gaussian.agents))
    schedule = Schedule(agents_per_round=agents_per_round)
    way = rounds(task, holdings, method, schedule, 3, first, Local(task, holdings))
    state, _ = next(islice(way, 149, None))
    starts = first.particles.double()
    weights = COVERAGE["weights_of"](gaussian, "bootstrap", 5, 3)
    x = torch.cat([data.x for data in gaussian.agents]).double()
    exact = (starts + weights @ x / 4) / (1 + weights.sum(1, keepdim=True) / 4)
    assert (state.particles - exact).abs().max() < 5e-3
    plain = (starts + x.sum(0) / 4) / (1 + len(x) / 4)
    assert (plain - exact).abs().max() > 0.1


@pytest.mark.parametrize(
    ("examples", "targets", "turns", "bare", "resampled"),
    [(30, 40, 30, 0.75, 0.87), (100, 40, 50, 0.42, 0.84), (1000, 10, 80, 0.13, 0.88)],
)
def test_what_intervals_cover(examples, targets, turns, bare, resampled):
    """Shares measured by experiments/theory/coverage.py, on other problems; the fixed points are those of the runs."""
    regression = COVERAGE["Regression"].draw(examples, 5, targets, 77)
    particles, starts = regression.run(COVERAGE["method"]("bootstrap"), "prior", turns, 0)
    exact = regression.fixed_points(starts, COVERAGE["weights_of"](regression, "bootstrap", 100, 0))
    assert ((particles - exact).std(0) / exact.std(0)).max() < 0.2
    intervals = 21 * targets
    for found, expected in ((particles, resampled), (regression.fixed_points(starts, None), bare)):
        error = (expected * (1 - expected) / intervals) ** 0.5
        assert float(regression.covered(found).mean()) == pytest.approx(expected, abs=4 * error)
    # without weights the same in a run of its own
    if examples == 30:
        particles, starts = regression.run(COVERAGE["method"]("none"), "prior", turns, 0)
        assert (particles - regression.fixed_points(starts, None)).abs().max() < 1e-3
