"""What every method must do, whatever it is."""

from __future__ import annotations

import pytest
import torch

from fedstein.data import Examples, Holdings, load_digits
from fedstein.engines import Local
from fedstein.errors import UserError
from fedstein.methods import DSVGD, METHODS, FedAvg, minibatches
from fedstein.models import DenseStack, Task
from fedstein.protocol import Schedule
from fedstein.protocol.server import rounds, start
from fedstein.streams import stream
from fedstein.testing import check_method

CASES = [
    *((name, {}) for name in METHODS),
    ("fedavg", {"particles": 1}),
    ("qlsd", {"keep": 0.2}),
    ("dsvgd", {"factor": "kde", "distil_steps": 3}),
    ("dsvgd", {"factor": "linear"}),
    ("dsvgd", {"factor": "linear", "resample": "bootstrap"}),
    ("dsvgd", {"kernel": "imq", "step": "adagrad", "step_size": 0.01}),
    ("svgd", {"kernel": "imq", "likelihood": "mean"}),
]


@pytest.fixture(scope="module")
def digits():
    return load_digits()


def learnt_by(*agents):
    return Task(DenseStack([64, 16, 10])), Holdings(agents)


def one_round(task, holdings, method, schedule, state, among=None):
    return next(rounds(task, holdings, method, schedule, 0, state, Local(task, holdings), among=among))[0].particles


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_every_method_keeps_what_is_asked_of_one(name, settings):
    """Same seed same bits, another seed others; going on; the download; agents with one example or one class."""
    check_method(METHODS[name], **settings)


def test_several_agents_start_from_the_same_particles_and_are_averaged(digits):
    task, holdings = learnt_by(*(digits.train.take(torch.arange(k * 30, (k + 1) * 30)) for k in range(4)))
    method = FedAvg(local_steps=3)
    first = start(task, method, 0)
    alone = [one_round(task, holdings, method, Schedule(), first, [agent]) - first.particles for agent in (0, 1)]
    together = one_round(task, holdings, method, Schedule(agents_per_round=2), first)
    torch.testing.assert_close(together, first.particles + (alone[0] + alone[1]) / 2)


def test_fedavg_is_plain_sgd_of_torch(digits):
    """One agent, full batch: the same numbers as torch.optim.SGD."""
    data = digits.train.take(torch.arange(40))
    task, holdings = learnt_by(data)
    method = FedAvg(local_steps=4, batch=40, step="gradient", step_size=0.5)
    first = start(task, method, 0)
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 16), torch.nn.ReLU(), torch.nn.Linear(16, 10))
    torch.nn.utils.vector_to_parameters(first.particles[0].clone(), module.parameters())
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    for _ in range(4):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module(data.x), data.y).backward()
        optimizer.step()
    ours = one_round(task, holdings, method, Schedule(), first)[0]
    torch.testing.assert_close(
        ours, torch.nn.utils.parameters_to_vector(module.parameters()).detach(), rtol=1e-4, atol=1e-6
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
        with pytest.raises(UserError):
            DSVGD(**bad)
    with pytest.raises(UserError):
        FedAvg(particles=0)
