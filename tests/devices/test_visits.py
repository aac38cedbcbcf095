"""Whole visits on another device: the same frames and memories as on the CPU, and nothing made in the wrong place."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedstein.data import Examples, Holdings
from fedstein.devices import CPU
from fedstein.engines import Local
from fedstein.inference import KERNELS, STEP_RULES, GaussianPrior, UniformPrior
from fedstein.likelihoods import Bernoulli, Categorical, Gaussian, Poisson
from fedstein.methods import DSVGD, FORGETTING, METHODS, FedAvg
from fedstein.models import DenseStack, Task, TorchModule, dense, particle_model
from fedstein.protocol import Schedule, Uplink
from fedstein.protocol.agent import answer, settle
from fedstein.protocol.messages import Order, Outcome, Terms
from fedstein.protocol.server import rounds, start
from fedstein.streams import stream

SMALL = {"particles": 3, "local_steps": 2, "batch": 10}
CASES = {
    **{name: (METHODS, name, {}) for name in METHODS if name != "qlsd"},
    "qlsd": (METHODS, "qlsd", {"local_steps": 1}),
    "qlsd, thinned": (METHODS, "qlsd", {"local_steps": 1, "keep": 0.2}),
    "kde": (METHODS, "dsvgd", {"factor": "kde", "distil_steps": 2}),
    "linear": (METHODS, "dsvgd", {"factor": "linear"}),
    "all examples at once": (METHODS, "dsvgd", {"batch": 1000}),
    **{f"kernel {name}": (METHODS, "dsvgd", {"kernel": name}) for name in KERNELS},
    **{f"step {name}": (METHODS, "fedavg", {"step": name}) for name in STEP_RULES},
    "forget-svgd": (FORGETTING, "forget-svgd", {}),
    "forget-svgd, unguarded": (FORGETTING, "forget-svgd", {"guarded": False, "factor": "kde", "distil_steps": 2}),
    "take-back": (FORGETTING, "take-back", {"factor": "linear"}),
}


def network(outputs):
    """(torch.func's rule for group norm ends the process where a device is made in Python: layer norm instead.)"""
    return nn.Sequential(
        nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 2, 3), nn.LayerNorm(4), nn.GELU(), nn.Flatten(), nn.Linear(8, outputs)
    )


def make_model(path, likelihood, device):
    outputs = likelihood.outputs(3)
    if path == "dense":
        return DenseStack([6, 5, outputs], likelihood=likelihood, device=device)
    torch.manual_seed(0)
    return TorchModule(network(outputs), likelihood, way=path, device=device)


def examples(likelihood):
    generator = stream(0, "examples")
    spoken = torch.randn(25, likelihood.outputs(3), generator=generator)
    return Examples(torch.randn(25, 6, generator=generator), likelihood.draw(spoken, generator))


def three_visits(method, task, data, link):
    """Frames, memories and wishes of an agent whose second answer is refused."""
    particles, memory, came = method.start(task, stream(0, "particles")), {}, []
    for round in range(3):
        order = Order(0, round, Terms(method, 0, link), particles, 4, (0.5, 0.5), memory)
        reply, waiting = answer(order, task, data)
        memory = settle(waiting, None if round == 1 else Outcome(round, 0.5))
        for tensor in (waiting.wish, waiting.arrives, waiting.visit.particles, *memory.values()):
            assert tensor.device == CPU
        came.append((reply.frame, waiting.wish, memory))
        particles = method.server_step(particles + 0.5 * waiting.arrives, stream(0, "server", round))
    return came


def assert_same(device, here, there):
    """On the stand-in to the last bit; on a real accelerator nearly."""
    for (frame, wish, memory), (other_frame, other_wish, other_memory) in zip(here, there, strict=True):
        assert memory.keys() == other_memory.keys()
        assert len(frame) == len(other_frame) or device.type != "twin"
        for one, other in [(wish, other_wish), *((memory[name], other_memory[name]) for name in memory)]:
            assert torch.isfinite(other).all()
            if device.type == "twin":
                assert torch.equal(one, other)
            else:
                torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
        assert device.type != "twin" or frame == other_frame


@pytest.mark.parametrize("path", ["dense", "vmap", "loop"])
@pytest.mark.parametrize("case", CASES)
def test_visits(device, work, case, path):
    registry, name, settings = CASES[case]
    method = registry[name](**(SMALL | settings))
    data = examples(Categorical())
    dim = make_model(path, Categorical(), CPU).dim
    link = None if method.central else Uplink("20.0d", feedback=True).link(method, dim)
    here, there = (
        three_visits(method, Task(make_model(path, Categorical(), place), GaussianPrior(1.0)), data, link)
        for place in (CPU, device)
    )
    assert_same(device, here, there)
    if device.type == "twin" and name != "take-back":  # the work was done there, and not on the CPU
        assert work()["aten.mm.default"] + work()["aten.bmm.default"] + work()["aten.baddbmm.default"] > 3


@pytest.mark.parametrize("path", ["dense", "vmap", "loop"])
@pytest.mark.parametrize(
    "likelihood",
    [
        Categorical(class_weights=(1.0, 2.0, 0.5)),
        Gaussian(center=(1.0, 2.0, 3.0), scale=2.0),
        Gaussian(variance="learnt"),
        Bernoulli(),
        Poisson(rate=3.0),
    ],
    ids=lambda likelihood: likelihood.name,
)
@pytest.mark.parametrize("name", ["dsvgd", "forget-svgd"])
def test_visits_with_every_likelihood(device, name, likelihood, path):
    method = (FORGETTING | dict(METHODS.items()))[name](**SMALL)
    here, there = (
        three_visits(method, Task(make_model(path, likelihood, place)), examples(likelihood), None)
        for place in (CPU, device)
    )
    assert_same(device, here, there)


def test_a_uniform_prior(device):
    data, prior = examples(Categorical()), UniformPrior(-2.0, 2.0)
    method = DSVGD(factor="kde", distil_steps=2, **SMALL)
    here, there = (
        three_visits(method, Task(make_model("dense", Categorical(), place), prior, "prior"), data, None)
        for place in (CPU, device)
    )
    assert_same(device, here, there)


def test_a_wide_batch_and_many_columns(device):
    """The products of the hand-batched path that only large work takes."""
    generator = stream(0, "wide")
    data = Examples(torch.randn(300, 40, generator=generator), torch.randint(0, 3, (300,), generator=generator))
    method = DSVGD(particles=3, local_steps=1, batch=300, kernel="imq")
    here, there = (
        three_visits(method, Task(DenseStack([40, 30, 3], "tanh", device=place)), data, None) for place in (CPU, device)
    )
    assert_same(device, here, there)


def test_a_batch_that_is_all_examples_moves_once(twin, work):
    data, task = examples(Categorical()), Task(make_model("dense", Categorical(), twin))
    method = FedAvg(particles=2, local_steps=5, batch=25)
    order = Order(0, 0, Terms(method, 0), method.start(task, stream(0, "particles")), 1, (1.0,))
    answer(order, task, data)
    assert work()["came"] == 3  # the particles, x and y, once each


def test_bf16_follows_the_device(device, monkeypatch):
    monkeypatch.setattr(dense, "has_bf16_units", lambda where: where == device)
    seen = []

    class Looks(nn.Linear):
        def forward(self, x):
            seen.append(torch.is_autocast_enabled(device.type))
            return super().forward(x)

    model = TorchModule(Looks(6, 3), way="loop", precision="bf16", device=device)
    particles = model.draw(2, stream(0, "bf16")).to(device)
    data = examples(Categorical())
    gradient = model.loss_gradient(particles, data.x.to(device), data.y.to(device))
    assert all(seen)
    assert gradient.device == device
    with pytest.warns(UserWarning, match="no bf16 matrix units"):
        TorchModule(nn.Linear(6, 3), precision="bf16", device=CPU)


def test_bf16_of_a_dense_stack(twin, work, monkeypatch):
    monkeypatch.setattr(dense, "has_bf16_units", lambda where: True)
    data, gradients = examples(Categorical()), []
    for place in (CPU, twin):
        model = DenseStack([6, 5, 3], precision="bf16", device=place)
        particles = model.draw(2, stream(0, "bf16")).to(place)
        gradients.append(model.loss_gradient(particles, data.x.to(place), data.y.to(place)).cpu())
    assert torch.equal(*gradients)


def test_no_units_for_bf16_is_said(twin, stand_in, monkeypatch):
    monkeypatch.setattr(stand_in, "bf16", False)
    with pytest.warns(UserWarning, match="The device twin:0 has no bf16 matrix units"):
        DenseStack([6, 3], precision="bf16", device=twin)


def test_auto_is_measured_there(device):
    data = examples(Categorical())
    model = particle_model(network(3), way="auto", device=device)
    assert model.choose(data.x, data.y, model.draw(3, stream(0, "way"))) in ("vmap", "loop")


def test_the_rounds_of_a_server(device):
    """Several agents of a round, an engine, escrow: what the server keeps is on the CPU."""
    data = examples(Categorical())
    agents = [data.take(torch.arange(k, 25, 2)) for k in range(2)]
    method = DSVGD(factor="linear", **SMALL)
    states = []
    for place in (CPU, device):
        task = Task(make_model("vmap", Categorical(), place))
        engine, first = Local(task, Holdings(agents)), start(task, method, 0)
        schedule = Schedule(agents_per_round=2)
        running = rounds(task, Holdings(agents), method, schedule, 0, first, engine, escrow=True)
        states.append([next(running)[0] for _ in range(3)][-1])
    for state in states:
        kept = [value for memory in state.memories.values() for value in memory.values()]
        assert len(kept) == 4
        assert all(value.device == CPU for value in (state.particles, *kept))
    if device.type == "twin":
        assert torch.equal(states[0].particles, states[1].particles)
    else:
        torch.testing.assert_close(states[0].particles, states[1].particles, rtol=1e-3, atol=1e-4)


def test_what_is_in_the_wrong_place_is_noticed(twin):
    """The tests above can fail: a module that makes its numbers on the CPU, a draw on the device, a double."""

    class Here(nn.Linear):
        def forward(self, x):
            return super().forward(x) + torch.ones(3)

    data = examples(Categorical())
    model = TorchModule(Here(6, 3), way="loop", device=twin)
    with pytest.raises(RuntimeError, match="tensors on twin and on cpu"):
        model.loss(model.draw(2, stream(0, "a")).to(twin), data.x.to(twin), data.y.to(twin))
    with pytest.raises(RuntimeError, match="generator of twin"):
        torch.randn(3, generator=stream(0, "a"), device=twin)
    with pytest.raises(TypeError, match="no float64"):
        torch.zeros(3, device=twin).double()
    with pytest.raises(RuntimeError, match="tensors on twin and on cpu"):
        torch.zeros(3, device=twin)[torch.arange(2)]
