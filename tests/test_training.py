from __future__ import annotations

import pytest
import torch
from torch import nn

import fedstein
from fedstein import DSVGD, DivergedError, FedAvg, GaussianPrior, UserError
from fedstein.data import iid, load_digits


@pytest.fixture(scope="module")
def digits():
    return load_digits()


@pytest.fixture(scope="module")
def agents(digits):
    parts = iid(digits.train.y, 5, None, torch.Generator().manual_seed(0))
    return [(digits.train.x[part], digits.train.y[part]) for part in parts]


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def test_train_and_predict(digits, agents):
    run = fedstein.train(mlp(), agents, rounds=60, method=DSVGD(particles=5), test=(digits.test.x, digits.test.y))
    assert run.metrics["accuracy"] > 0.9
    assert run.metrics["nll"] < 0.4
    assert [entry["round"] for entry in run.history] == [50, 60]
    prediction = run.predict(digits.test.x)
    torch.testing.assert_close(prediction.probabilities.sum(1), torch.ones(360))
    noise = run.predict(torch.rand(300, 1, 8, 8, generator=torch.Generator().manual_seed(0)) * 3)
    assert noise.epistemic.mean() > 2 * prediction.epistemic.mean()


def test_a_cnn_learns(digits, agents):
    cnn = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 10))
    run = fedstein.train(cnn, agents, rounds=60, method=DSVGD(particles=3), test=(digits.test.x, digits.test.y))
    assert run.metrics["accuracy"] > 0.85


def test_data_sets_are_welcome(digits, agents):
    sets = [torch.utils.data.TensorDataset(torch.as_tensor(x), torch.as_tensor(y)) for x, y in agents]
    one = fedstein.train(mlp(), sets, rounds=3)
    two = fedstein.train(mlp(), agents, rounds=3)
    assert torch.equal(one.particles, two.particles)


def test_the_module_itself_is_not_changed(agents):
    module = mlp()
    before = nn.utils.parameters_to_vector(module.parameters()).clone()
    fedstein.train(module, agents, rounds=2)
    assert torch.equal(before, nn.utils.parameters_to_vector(module.parameters()))


def test_divergence_says_where_and_keeps_the_last_good_state(tmp_path, agents):
    class Keep:
        state = None

        def after_round(self, state, told):
            self.state = state

    keep = Keep()
    spoilt = [*agents[:3], (torch.as_tensor(agents[3][0]) * 1e30, agents[3][1]), agents[4]]
    logistic = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    terms = {"method": FedAvg(step="gradient", step_size=1e10, anneal_over=9), "watchers": [keep]}
    with pytest.raises(DivergedError, match=r"round 4, agent 3, .*step_size = 1e.10"):
        fedstein.train(logistic, spoilt, rounds=9, **terms, out=tmp_path / "run")
    assert keep.state.round == 3
    assert torch.isfinite(keep.state.particles).all()
    kept = fedstein.open(tmp_path / "run", module=logistic, agents=spoilt)
    assert kept.rounds == 3
    assert torch.equal(kept.particles, keep.state.particles)
    short = fedstein.train(logistic, spoilt, rounds=3, **terms)  # stopped of its own accord in the round before
    assert torch.equal(kept.particles, short.particles)
    assert not torch.equal(kept.particles, fedstein.train(logistic, spoilt, rounds=2, **terms).particles)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"agents": []}, "one data set for each agent"),
        ({"rounds": 0}, "at least 1"),
        ({"agents": [(torch.zeros(0, 64), torch.zeros(0))]}, r"agents\[0\] has no examples"),
        ({"agents": [(torch.zeros(2, 64), torch.tensor([0, 10]))]}, r"0\.\.9"),
        ({"agents": [(torch.zeros(2, 63), torch.tensor([0, 1]))]}, "does not run on the inputs of agents"),
        ({"agents": [(torch.zeros(2, 64), [0, 1]), (torch.zeros(2, 65), [0, 1])]}, r"agents\[1\]: x must be shaped"),
        ({"method": DSVGD(factor="linear", stiffness=0.5)}, "method.stiffness"),
        ({"method": DSVGD(factor="linear"), "prior": fedstein.UniformPrior(-1, 1)}, "Gaussian prior"),
        ({"method": "dsvgd"}, "must be a Method"),
        ({"seed": -1}, "'seed'"),
        ({"init": "Prior"}, "'init'"),
        ({"precision": "fp16"}, "'precision'"),
        ({"prior": 1.0}, "'prior'"),
        ({"agents": {"a": 1}}, "'agents'"),
        ({"test": (torch.zeros(2, 65), [0, 1])}, "test: x must be shaped"),
        ({"schedule": fedstein.Schedule(agents_per_round=6)}, "agents_per_round"),
    ],
)
def test_mistakes_are_named(agents, change, message):
    settings = {"module": mlp(), "agents": agents, "rounds": 1, "prior": GaussianPrior()} | change
    with pytest.raises(UserError, match=message):
        fedstein.train(settings.pop("module"), settings.pop("agents"), **settings)
