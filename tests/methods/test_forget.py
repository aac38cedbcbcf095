"""Forgetting against exact answers: the posterior without the agent."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import islice

import pytest
import torch

from fedstein.coding import Contract, Link
from fedstein.data import Holdings, load_digits
from fedstein.data.synthetic import GaussianMean, MixtureAgents, negative
from fedstein.engines import Local
from fedstein.errors import DivergedError
from fedstein.methods import DSVGD, ForgetSVGD, TakeBack
from fedstein.metrics import nll
from fedstein.models import DenseStack, Task, TorchModule
from fedstein.protocol import Schedule
from fedstein.protocol.server import rounds, start
from fedstein.runs.judge import Judge, predict
from fedstein.runs.problem import Problem, build_problem
from fedstein.runs.training import fit
from fedstein.runs.verbs import fit_config
from fedstein.settings import make_config


def going_on(problem, method, schedule, seed, state, **terms):
    """What each round yields, without end."""
    task, holdings = problem.task, problem.holdings
    return rounds(task, holdings, method, schedule, seed, state, Local(task, holdings), **terms)


def fitted(problem, method, **terms):
    return fit(problem.task, problem.holdings, problem.evaluate, method, **terms)


@pytest.fixture(scope="module")
def mixture():
    """DSVGD with kde factors on the 1-D product of two mixtures, at the exact posterior."""
    overrides = ["data.name=synthetic-mixture", "method.factor=kde", "method.particles=50", "method.local_steps=200",
                 "rounds=20", "evaluation.every=20", "threads=1"]  # fmt: skip
    config = make_config(overrides=overrides)
    problem = build_problem(config)
    return MixtureAgents.two(), problem, fit_config(config, problem=problem)


def forget(problem, trained, agent, count, **settings):
    """The states after each of `count` forgetting rounds of one agent."""
    method = ForgetSVGD(factor="kde", particles=50, local_steps=200, **settings)
    state = replace(trained.state, memories=trained.state.memories.without([agent]))
    return (now for now, _ in islice(going_on(problem, method, Schedule(), 0, state, among=[agent]), count))


def distance(exact, particles, agents):
    return 0.5 * float((exact.smoothed(particles, 0.55) - exact.exact(agents)).abs().sum())


@pytest.mark.parametrize("agent", [0, 1])
def test_guarded_forgetting_reaches_the_posterior_without_the_agent_and_stays(mixture, agent):
    exact, problem, trained = mixture
    without = (exact.agents[1 - agent],)
    before = distance(exact, trained.particles, without)
    distances = [distance(exact, state.particles, without) for state in forget(problem, trained, agent, 40)]
    assert before > 0.2
    assert max(distances) < before / 3  # measured: 0.207 to 0.038, 0.208 to 0.022


@pytest.mark.parametrize("agent", [0, 1])
def test_as_the_letter_writes_it_the_particles_run_away(mixture, agent):
    """Random local particles, and nothing that remembers what was taken away: in the end it is worse than before."""
    exact, problem, trained = mixture
    without = (exact.agents[1 - agent],)
    before = distance(exact, trained.particles, without)
    distances = []
    with suppress(DivergedError):  # agent 0, in the third round: 0.21, 0.48, 1.00, then not finite
        for state in forget(problem, trained, agent, 40, guarded=False):
            distances.append(distance(exact, state.particles, without))
    # Agent 1: 0.21 to 0.43 on one kind of CPU, to 0.38 on another; what grows here is the rounding as well.
    assert len(distances) < 40 or distances[-1] > 1.5 * before
    assert max(distances) > 1.5 * before


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("likelihood", ["sum", "mean"])
def test_taking_the_site_back_ends_at_the_exact_posterior_without_the_agent(generator, likelihood, compressed):
    """Each particle alone: the anchored optimum of the agents that stay, in closed form."""
    gaussian = GaussianMean.draw(agents=4, examples=20, dim=3, generator=generator, noise=2.0)
    task = Task(TorchModule(gaussian.module(), negative), gaussian.prior, "prior")
    problem = Problem(task, Holdings(gaussian.agents))
    settings = {"factor": "linear", "particles": 6, "likelihood": likelihood, "local_steps": 20, "step_size": 0.3}
    method = DSVGD(**settings, stiffness=1.0)
    link = Link(Contract(3, 6, 1, 8, 170), feedback=True) if compressed else None
    state = fitted(problem, method, rounds_to_do=150, schedule=Schedule(), seed=3, evaluate_every=150, link=link).state

    def exact(agents):
        mean, std = replace(gaussian, agents=agents).posterior(likelihood)
        return mean + gaussian.prior.precision * std**2 * start(task, method, 3).particles.double()

    tolerance = 0.03 if compressed else 5e-3
    assert (state.particles - exact(gaussian.agents)).abs().max() < tolerance
    assert (state.particles - exact(gaussian.agents[1:])).abs().max() > 0.1
    # Without the residual: what was never sent was never part of the model.
    memory = state.memories[0]
    state = replace(state, memories=state.memories.put({0: {"site": memory["site"]}}))
    taking = going_on(problem, TakeBack(**settings, stiffness=1.0), Schedule(), 3, state, link=link, among=[0])
    *_, (taken, _) = islice(taking, 40)
    assert taken.memories[0]["site"].abs().max() < 1e-2 * memory["site"].abs().max()
    state = replace(taken, memories=taken.memories.without([0]))
    *_, (last, told) = islice(going_on(problem, method, Schedule(), 3, state, link=link, among=[1, 2, 3]), 150)
    assert {upload.agent for upload in told.uploads} <= {1, 2, 3}
    assert 0 not in last.memories
    assert (last.particles - exact(gaussian.agents[1:])).abs().max() < tolerance


def test_examples_as_unlikely_as_a_guess_push_no_more():
    digits = load_digits()
    agents = [digits.train.take((digits.train.y == label).nonzero()[:60, 0]) for label in range(10)]
    problem = Problem(Task(DenseStack([64, 10])), Holdings(agents), Judge(digits.test))
    model = problem.task.model
    method = DSVGD(particles=3, step="gradient", step_size=1.0)
    schedule = Schedule(agents_per_round=10)
    trained = fitted(problem, method, rounds_to_do=60, schedule=schedule, seed=0, evaluate_every=60)
    known = predict(model, trained.particles, agents[7].x).probabilities
    assert nll(known, agents[7].y) < 1.0
    guess = torch.tensor(10.0).log()
    losses = {}
    for chance in (True, False):
        forgetting = ForgetSVGD(particles=3, step="gradient", step_size=0.1, chance=chance, density_floor=0.0)
        *_, (last, _) = islice(going_on(problem, forgetting, Schedule(), 0, trained.state, among=[7]), 30)
        losses[chance] = nll(predict(model, last.particles, agents[7].x).probabilities, agents[7].y)
    assert guess * 0.9 < losses[True] < 2 * guess
    assert losses[False] > losses[True]


def test_only_those_among_are_scheduled():
    digits = load_digits()
    parts = [digits.train.take(torch.arange(k * 30, (k + 1) * 30)) for k in range(5)]
    problem, method = Problem(Task(DenseStack([64, 10])), Holdings(parts)), DSVGD(particles=2, local_steps=2)
    for order in ("round-robin", "random"):
        run = going_on(problem, method, Schedule(order=order), 0, start(problem.task, method, 0), among=[1, 4])
        assert {upload.agent for _, told in islice(run, 8) for upload in told.uploads} == {1, 4}
