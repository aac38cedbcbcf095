"""What every method must do, whatever it is."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from fedstein.data import Examples, load_digits
from fedstein.engines import Schedule, rounds, start
from fedstein.methods import DSVGD, METHODS, FedAvg, minibatches
from fedstein.models import DenseStack
from fedstein.problem import Problem
from fedstein.streams import stream
from fedstein.training import fit

CASES = [
    *((name, {}) for name in METHODS),
    ("fedavg", {"particles": 1}),
    ("qlsd", {"keep": 0.2}),
    ("dsvgd", {"factor": "kde", "distil_steps": 3}),
    ("dsvgd", {"factor": "linear"}),
    ("dsvgd", {"kernel": "imq", "step": "adagrad", "step_size": 0.01}),
    ("svgd", {"kernel": "imq", "likelihood": "mean"}),
]


@pytest.fixture(scope="module")
def digits():
    return load_digits()


def make(name, settings, **more):
    few = {"particles": 3}
    if name == "qlsd":
        more.pop("local_steps", None)  # always 1
    return METHODS[name](**(few | settings | more))


def problem(digits, agents=4, examples=30):
    parts = [digits.train.take(torch.arange(k * examples, (k + 1) * examples)) for k in range(agents)]
    return Problem(DenseStack([64, 16, 10]), parts, test=digits.test)


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_same_seed_same_bits_and_another_seed_others(digits, name, settings):
    method = make(name, settings, local_steps=3, batch=10)

    def trained(seed):
        return fit(problem(digits), method, rounds_to_do=5, schedule=Schedule(), seed=seed, evaluate_every=5).particles

    assert torch.equal(trained(1), trained(1))
    assert not torch.equal(trained(1), trained(2))


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_going_on_from_a_state_is_the_same_run(digits, name, settings):
    method, schedule, task = make(name, settings, local_steps=2, batch=10), Schedule(order="random"), problem(digits)
    whole = rounds(task, method, schedule, 0, start(task, method, 0))
    states = [next(whole) for _ in range(6)]
    again = rounds(task, method, schedule, 0, states[2])
    assert torch.equal([next(again) for _ in range(3)][-1].particles, states[-1].particles)


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_the_download_is_not_changed(digits, name, settings):
    method, task = make(name, settings, local_steps=2), problem(digits)
    first = start(task, method, 0)
    before = first.particles.clone()
    state = next(rounds(task, method, Schedule(agents_per_round=1 if method.central else 2), 0, first))
    assert torch.equal(first.particles, before)
    assert not torch.equal(state.particles, before)


@pytest.mark.parametrize(("name", "settings"), CASES)
@pytest.mark.parametrize("data", ["one example", "one class"])
def test_a_poor_agent_works(digits, name, settings, data):
    poor = digits.train.take((digits.train.y == 3).nonzero()[: 1 if data == "one example" else 20, 0])
    task = Problem(DenseStack([64, 16, 10]), [poor, digits.train.take(torch.arange(50))], test=digits.test)
    method = make(name, settings, local_steps=2)
    found = fit(task, method, rounds_to_do=4, schedule=Schedule(), seed=0, evaluate_every=4)
    assert torch.isfinite(found.particles).all()


def test_several_agents_start_from_the_same_particles_and_are_averaged(digits):
    task, method = problem(digits), FedAvg(local_steps=3)
    first = start(task, method, 0)
    alone = []
    for agent in (0, 1):
        single = Problem(task.model, task.agents, test=task.test)
        schedule = _Only(agent)
        alone.append(next(rounds(single, method, schedule, 0, first)).particles - first.particles)
    together = next(rounds(task, method, Schedule(agents_per_round=2), 0, first)).particles
    torch.testing.assert_close(together, first.particles + (alone[0] + alone[1]) / 2)


class _Only(Schedule):
    def __init__(self, agent):
        super().__init__()
        object.__setattr__(self, "_agent", agent)

    def pick(self, round, agents, seed):
        return [self._agent]


def test_fedavg_is_plain_sgd_of_torch(digits):
    """One agent, full batch: the same numbers as torch.optim.SGD."""
    data = digits.train.take(torch.arange(40))
    task = Problem(DenseStack([64, 16, 10]), [data], test=digits.test)
    method = FedAvg(local_steps=4, batch=40, step="gradient", step_size=0.5)
    first = start(task, method, 0)
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 16), torch.nn.ReLU(), torch.nn.Linear(16, 10))
    torch.nn.utils.vector_to_parameters(first.particles[0].clone(), module.parameters())
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    for _ in range(4):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module(data.x), data.y).backward()
        optimizer.step()
    found = next(rounds(task, method, Schedule(), 0, first)).particles[0]
    torch.testing.assert_close(
        found, torch.nn.utils.parameters_to_vector(module.parameters()).detach(), rtol=1e-4, atol=1e-6
    )


def test_minibatches_use_every_example_before_any_again():
    data = Examples(torch.arange(10.0)[:, None], torch.arange(10))
    seen = torch.cat([y for _, y in minibatches(data, 3, 20, stream(0, "batches"))])
    assert len(seen) == 60
    for start_ in range(0, 60, 10):
        assert sorted(seen[start_ : start_ + 10].tolist()) == list(range(10))


def test_settings_fit_the_factor_and_bad_ones_are_refused():
    assert (DSVGD(factor="linear").kernel, DSVGD(factor="linear").step) == ("none", "gradient")
    assert DSVGD(factor="kde").kernel == "density"
    assert DSVGD(factor="linear", step="adagrad").step_size == 1e-3
    for bad in ({"factor": "linear", "kernel": "rbf"}, {"particles": 0}, {"step_size": float("nan")}, {"step_sise": 1}):
        with pytest.raises(ValidationError):
            DSVGD(**bad)
    with pytest.raises(ValidationError):
        FedAvg(particles=0)
