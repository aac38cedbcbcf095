"""Predictions with networks on another device: the same as on the CPU, and worked out there in float64."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch
from torch import nn

from fedstein.data import Examples, Holdings
from fedstein.devices import CPU
from fedstein.likelihoods import Bernoulli, Categorical, Gaussian, OwnLoss, Poisson
from fedstein.models import DenseStack, TorchModule, split_head
from fedstein.runs.judge import Judge, predict, quality
from fedstein.streams import stream

LIKELIHOODS = {
    "categorical": Categorical(),
    "gaussian": Gaussian(center=2.0, scale=3.0),
    "gaussian, learnt": Gaussian(variance="learnt"),
    "bernoulli": Bernoulli(),
    "poisson": Poisson(rate=2.0),
}


def make_model(path, likelihood, device):
    outputs = likelihood.outputs(3)
    if path == "dense":
        return DenseStack([6, 5, outputs], likelihood=likelihood, device=device)
    torch.manual_seed(0)
    return TorchModule(nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.Linear(5, outputs)), likelihood, way=path,
                       device=device)  # fmt: skip


def examples(likelihood, count=2500):
    """More than are predicted at a time."""
    generator = stream(0, "examples")
    spoken = torch.randn(count, likelihood.outputs(3), generator=generator)
    return Examples(torch.randn(count, 6, generator=generator), likelihood.draw(spoken, generator))


def near(device, one, other):
    assert other.device == CPU
    if device.type == "twin":
        assert torch.equal(one, other)
    else:
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("path", ["dense", "vmap", "loop"])
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_predictions(device, name, path):
    likelihood = LIKELIHOODS[name]
    data = examples(likelihood)
    here, there = (make_model(path, likelihood, place) for place in (CPU, device))
    particles = here.draw(3, stream(0, "particles"))
    said, other = (predict(model, particles, data.x) for model in (here, there))
    for field in fields(said):
        near(device, getattr(said, field.name), getattr(other, field.name))
    judged = [
        Judge(data).evaluate(model, Holdings([data.take(torch.arange(40)), data], (0,)), particles)
        for model in (here, there)
    ]
    assert judged[0].keys() == judged[1].keys()
    assert quality(there, particles, data) == pytest.approx(quality(here, particles, data), rel=1e-4)
    if device.type == "twin":
        assert judged[0] == judged[1]


@pytest.mark.parametrize("path", ["vmap", "loop"])
def test_a_loss_of_ones_own(device, path):
    loss = OwnLoss(lambda outputs, y: (outputs[:, 0] - y).abs())
    generator = stream(0, "examples")
    data = Examples(torch.randn(2500, 6, generator=generator), torch.randn(2500, generator=generator))
    here, there = (TorchModule(nn.Linear(6, 1), loss, way=path, device=place) for place in (CPU, device))
    particles = here.draw(2, stream(0, "particles"))
    values = [Judge(data).evaluate(model, Holdings([data]), particles)["loss"] for model in (here, there)]
    assert values[1] == pytest.approx(values[0], rel=1e-5)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_likelihoods_go_where_their_outputs_are(device, name, doubles):
    """Used alone, on a device that has float64: mixtures, metrics, draws by a generator of the CPU, guesses."""
    if device.type == "mps":
        pytest.skip("MPS has no float64: there, outputs are brought to the CPU first, as fedstein itself does")
    likelihood = LIKELIHOODS[name]
    data = examples(likelihood, 60)
    spoken = torch.randn(3, 60, likelihood.outputs(3), generator=stream(0, "outputs"))
    said = []
    for place in (CPU, device):
        outputs, y = spoken.to(place), data.y.to(place)
        prediction = likelihood.predict(outputs)
        drawn = likelihood.draw(outputs[0], stream(0, "draw"))
        known = likelihood.better_than_a_guess(outputs, y)
        losses, density = likelihood.losses(outputs[0], y), likelihood.log_density(prediction, y)
        assert {one.device for one in (drawn, known, losses, density)} == {torch.empty(0, device=place).device}
        assert repr(prediction)
        assert prediction._repr_html_()
        said.append([one.cpu() for one in (drawn, known, losses, density)] + [likelihood.scores(prediction, y)])
    for one, other in zip(said[0][:4], said[1][:4], strict=True):
        near(device, one, other)
    for key, value in said[0][4].items():
        assert said[1][4][key] == pytest.approx(value, rel=1e-5), key


def test_what_is_frozen_is_computed_there(device, work):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    module[0].requires_grad_(False)
    x = torch.randn(300, 6, generator=stream(0, "inputs"))
    _, before = split_head(module, x[:2])
    expected = before(x)
    near(device, expected, before.on(device)(x))
    assert before.on(device)(x[:0]).shape == (0, 5)
    assert next(before.on(device).as_module().parameters()).device == CPU
    if device.type == "twin":
        assert work()["aten.addmm.default"] == 2  # of 256 inputs and of the rest
