"""Methods against exact answers: a Gaussian posterior in closed form, a product of mixtures on a grid."""

from __future__ import annotations

import runpy
from functools import partial
from pathlib import Path

import pytest
import torch

from fedstein.data import Holdings
from fedstein.data.synthetic import GaussianMean, negative
from fedstein.errors import DivergedError, UserError
from fedstein.methods import DSGLD, DSVGD, FACTORS, QLSD, CentralSVGD, Visit
from fedstein.models import Task, TorchModule
from fedstein.protocol import Schedule
from fedstein.runs.problem import Problem, build_problem
from fedstein.runs.training import fit
from fedstein.runs.verbs import fit_config
from fedstein.settings import make_config
from fedstein.streams import stream


@pytest.mark.parametrize(
    ("settings", "excess"),
    [
        # The letter's SVGD: within 0.06 of what exact samples reach under the same KDE (measured: 0.026).
        (["method.kernel=rbf", "method.step_size=0.5"], 0.06),
        # The flow whose KDE is the target: better than exact samples (measured: -0.049).
        (["method.kernel=density", "method.step_size=0.05"], -0.03),
    ],
)
def test_kde_factors_reach_the_exact_product_and_stay(settings, excess):
    config = make_config(
        overrides=[
            "data.name=synthetic-mixture",
            "method.factor=kde",
            "method.particles=50",
            "method.local_steps=200",
            *settings,
            "rounds=40",
            "evaluation.every=1",
            "threads=1",
        ]
    )
    history = fit_config(config).history
    distances = [round["total_variation"] for round in history]
    floor = history[0]["smoothing_floor"]
    assert distances[0] > floor + 0.1  # one agent alone is not the answer
    assert max(distances[9:]) < floor + excess


@pytest.mark.parametrize("dim", [1, 2])
def test_kde_factors_are_right_after_one_visit_each_and_drift_in_two_dimensions(dim):
    """Four Gaussians at the corners of a square: the whole table is that of experiments/theory/kde.py."""
    kde = runpy.run_path(str(Path(__file__).parents[2] / "experiments" / "theory" / "kde.py"))
    method = DSVGD(factor="kde", particles=50, local_steps=200)
    distances = kde["Product"](dim, "corners").over_rounds(method, last=10)
    assert distances[4] < 0.1  # every agent was visited once
    assert distances[10] < 0.05 if dim == 1 else distances[10] > 0.2


@pytest.fixture
def gaussian(generator):
    return GaussianMean.draw(agents=4, examples=20, dim=3, generator=generator, noise=2.0)


def gaussian_problem(gaussian):
    task = Task(TorchModule(gaussian.module(), negative), gaussian.prior, "prior")
    return Problem(task, Holdings(gaussian.agents))


def trained(problem, method, rounds, seed, **schedule):
    terms = {"rounds_to_do": rounds, "schedule": Schedule(**schedule), "seed": seed, "evaluate_every": rounds}
    return fit(problem.task, problem.holdings, problem.evaluate, method, **terms)


def run(problem, method, rounds, **schedule):
    return trained(problem, method, rounds, 3, **schedule).particles


def test_linear_factors_reach_the_exact_mean(gaussian):
    method = DSVGD(factor="linear", particles=300, local_steps=20, step_size=0.3, stiffness=1.0)
    particles = run(gaussian_problem(gaussian), method, 100)
    assert gaussian.errors(particles)["posterior_mean_error"] < 0.01


def test_settings_that_would_diverge_are_refused_and_those_below_do_not(gaussian, monkeypatch):
    """The data has next to no curvature here: what overshoots is the pull alone."""
    problem = gaussian_problem(gaussian)
    same = {"factor": "linear", "particles": 2, "likelihood": "mean", "temperature": 100.0, "stiffness": 4.0}
    slow, fast = (DSVGD(**same, local_steps=40, step_size=overshoot / 400) for overshoot in (1.98, 2.5))
    assert run(problem, slow, 40).abs().max() < 100
    with pytest.raises(UserError, match=r"must be below 2. Got 2.5: take a step_size below 0.005"):
        run(problem, fast, 40)
    monkeypatch.setattr(FACTORS["linear"], "check", lambda *arguments: None)
    with pytest.raises(DivergedError):
        run(problem, fast, 40)


@pytest.mark.parametrize("agents_per_round", [1, 2])
@pytest.mark.parametrize("likelihood", ["sum", "mean"])
@pytest.mark.parametrize("stiffness", [1.0, 3.0])
def test_linear_fixed_point_for_each_particle(gaussian, likelihood, stiffness, agents_per_round):
    """delta (theta_n - theta_n0) + s sum_k grad L_k(theta_n) = 0: solved in closed form, whatever the stiffness."""
    method = DSVGD(
        factor="linear", particles=5, likelihood=likelihood, local_steps=20, step_size=0.3, stiffness=stiffness
    )
    problem = gaussian_problem(gaussian)
    particles = run(problem, method, 150, agents_per_round=agents_per_round)
    start = method.start(problem.task, stream(3, "particles"))
    mean, std = gaussian.posterior(likelihood)
    exact = mean + gaussian.prior.precision * std**2 * start.double()
    assert (particles - exact).abs().max() < 5e-3
    assert (start - exact).abs().max() > 0.5


def test_sites_sum_up_to_the_displacement(gaussian):
    problem = gaussian_problem(gaussian)
    method = DSVGD(factor="linear", particles=5, local_steps=5, step_size=0.1)
    last = trained(problem, method, 9, 0, agents_per_round=2)
    start = method.start(problem.task, stream(0, "particles"))
    sites = sum(memory["site"] for memory in last.state.memories.values())
    torch.testing.assert_close(sites, (last.particles - start) * problem.task.prior.precision, rtol=1e-3, atol=1e-5)


def test_central_svgd_is_the_posterior(gaussian):
    method = CentralSVGD(particles=100, local_steps=500, step="ema-adagrad", step_size=0.02, batch=1000)
    particles = run(gaussian_problem(gaussian), method, 3)
    errors = gaussian.errors(particles)
    assert errors["posterior_mean_error"] < 0.01
    assert errors["posterior_std_ratio"] == pytest.approx(1.0, abs=0.15)


@pytest.mark.parametrize("agents_per_round", [1, 2])
def test_dsgld_has_the_right_noise(gaussian, agents_per_round):
    """Many chains at a small step: the exact mean and spread, to the Monte Carlo error."""
    method = DSGLD(particles=4000, local_steps=1, step_size=2e-3, batch=1000)
    particles = run(gaussian_problem(gaussian), method, 2000, agents_per_round=agents_per_round)
    errors = gaussian.errors(particles)
    assert errors["posterior_mean_error"] < 0.02
    assert errors["posterior_std_ratio"] == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize(("agents_per_round", "keep"), [(1, 1.0), (2, 0.7)])
def test_qlsd_has_the_right_noise(gaussian, agents_per_round, keep):
    """The noise is the server's; thinning is unbiased, and adds variance that vanishes with the step."""
    method = QLSD(particles=2000, step_size=4e-3, batch=1000, keep=keep)
    particles = run(gaussian_problem(gaussian), method, 800, agents_per_round=agents_per_round)
    errors = gaussian.errors(particles)
    assert errors["posterior_mean_error"] < 0.03
    assert errors["posterior_std_ratio"] == pytest.approx(1.0, abs=0.05 if keep == 1 else 0.15)


def test_distilling_leaves_t_k_alone_when_nothing_changed():
    """Otherwise the factors drift away, visit after visit."""
    config = make_config(overrides=["data.name=synthetic-mixture", "method.factor=kde", "method.particles=30"])
    problem, method = build_problem(config), config.method
    particles = torch.randn(30, 1, generator=torch.Generator().manual_seed(0))
    local = torch.randn(30, 1, generator=torch.Generator().manual_seed(1))
    visit = Visit(
        problem.task.model, problem.holdings.agents[0], problem.task.prior, particles, {"local_particles": local},
        5, 2, (1.0,), partial(stream, 0),
    )  # fmt: skip
    settled = method.settle(visit, torch.zeros_like(particles))["local_particles"]
    torch.testing.assert_close(settled, local, rtol=0, atol=1e-4)
