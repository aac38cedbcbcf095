from __future__ import annotations

import pytest
import torch
from torch import nn

from fedstein.errors import UserError
from fedstein.likelihoods import Categorical, Gaussian
from fedstein.models import DenseStack, TorchModule, dense, particle_model


def log_probabilities(model, particles, x):
    return model.outputs(particles, x).log_softmax(-1)


STACKS = {
    "mlp": lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10)),
    "tanh, three layers": lambda: nn.Sequential(
        nn.Linear(20, 16), nn.Tanh(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3)
    ),
    "logistic regression": lambda: nn.Linear(20, 4),
}


def random_batch(module, batch, generator):
    linear = [part for part in module.modules() if isinstance(part, nn.Linear)]
    x = torch.rand(batch, linear[0].in_features, generator=generator)
    return x, torch.randint(0, linear[-1].out_features, (batch,), generator=generator)


@pytest.mark.parametrize("batch", [1, 7, 300])
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("name", STACKS)
def test_both_paths_agree(name, n, batch, generator):
    module = STACKS[name]()
    fast, general = particle_model(module), TorchModule(module)
    assert isinstance(fast, DenseStack)
    assert fast.dim == general.dim
    x, y = random_batch(module, batch, generator)
    particles = general.draw(n, generator)
    particles += 0.05 * torch.randn(particles.shape, generator=generator)  # biases are not 0
    out = torch.full_like(particles, torch.nan)
    gradient = fast.loss_gradient(particles, x, y, scale=-2.0, out=out)
    expected = general.loss_gradient(particles, x, y, scale=-2.0)
    assert gradient is out
    assert (gradient - expected).abs().max() < 1e-5
    torch.testing.assert_close(fast.loss(particles, x, y), general.loss(particles, x, y))
    torch.testing.assert_close(
        log_probabilities(fast, particles, x), log_probabilities(general, particles, x), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("likelihood", [Categorical(), Categorical(class_weights=(1.0, 2.0, 0.5)), Gaussian(std=2.0)])
@pytest.mark.parametrize("batch", [1, 7, 300])
@pytest.mark.parametrize("name", ["tanh, three layers", "linear"])
def test_both_paths_weigh_examples_alike(name, batch, likelihood, generator):
    module = nn.Linear(20, 3) if name == "linear" else STACKS[name]()
    fast, general = particle_model(module, likelihood), TorchModule(module, likelihood, way="loop")
    assert isinstance(fast, DenseStack)
    x, y = random_batch(module, batch, generator)
    if isinstance(likelihood, Gaussian):
        y = torch.randn(batch, 3, generator=generator)
    particles = general.draw(4, generator)
    particles += 0.05 * torch.randn(particles.shape, generator=generator)
    weights = -torch.rand(4, batch, generator=generator).log()
    out = torch.full_like(particles, torch.nan)
    assert fast.loss_gradient(particles, x, y, scale=-2.0, out=out, weights=weights) is out
    torch.testing.assert_close(out, general.loss_gradient(particles, x, y, -2.0, weights=weights), rtol=1e-4, atol=1e-5)
    plain = fast.loss_gradient(particles, x, y)
    alike = fast.loss_gradient(particles, x, y, weights=torch.ones(4, batch))
    assert (alike - plain).norm() <= 1e-6 * plain.norm()
    with pytest.raises(UserError, match="'weights' must be"):
        fast.loss_gradient(particles, x, y, weights=torch.ones(batch))


def test_general_path_is_autograd_on_a_cnn(generator):
    cnn = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(196, 10)
    )
    model = particle_model(cnn)
    assert isinstance(model, TorchModule)
    x, y = torch.rand(5, 1, 28, 28, generator=generator), torch.randint(0, 10, (5,), generator=generator)
    particles = model.draw(2, generator)
    gradients = model.loss_gradient(particles, x, y)
    for particle, gradient in zip(particles, gradients, strict=True):
        nn.utils.vector_to_parameters(particle.clone(), cnn.parameters())
        loss = nn.functional.cross_entropy(cnn(x), y)
        expected = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(cnn.parameters()))])
        torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-6)


def test_particles_start_as_usual_for_a_network(generator):
    module = STACKS["mlp"]()
    for model in (particle_model(module), TorchModule(module)):
        first = model.draw(50, generator)[:, :78400]
        assert first.std().item() == pytest.approx(785**-0.5, rel=0.02)
        assert model.draw(3, generator)[:, 78400:78500].abs().max() == 0


def test_bf16_without_units_stays_float32_and_says_so(generator, monkeypatch):
    monkeypatch.setattr(dense, "has_bf16_units", lambda device: False)
    with pytest.warns(UserWarning, match="no bf16 matrix units"):
        model = DenseStack([784, 100, 10], precision="bf16")
    particles, (x, y) = model.draw(2, generator), random_batch(STACKS["mlp"](), 5, generator)
    assert torch.equal(model.loss_gradient(particles, x, y), DenseStack([784, 100, 10]).loss_gradient(particles, x, y))


def test_bf16_is_close(generator, monkeypatch):
    monkeypatch.setattr(dense, "has_bf16_units", lambda device: True)
    particles, (x, y) = DenseStack([784, 100, 10]).draw(3, generator), random_batch(STACKS["mlp"](), 50, generator)
    exact = DenseStack([784, 100, 10]).loss_gradient(particles, x, y)
    rounded = DenseStack([784, 100, 10], precision="bf16").loss_gradient(particles, x, y)
    error = (rounded - exact).norm() / exact.norm()
    assert 0 < error < 0.05


def test_features_are_the_last_hidden_layer(generator):
    module = STACKS["tanh, three layers"]()
    model = DenseStack([20, 16, 8, 3], "tanh")
    particle = nn.utils.parameters_to_vector(module.parameters()).detach()
    x = torch.rand(6, 20, generator=generator)
    torch.testing.assert_close(model.features(particle, x), module[:4](x).detach())


def test_what_is_not_a_dense_stack():
    assert isinstance(particle_model(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))), TorchModule)
    assert isinstance(particle_model(nn.Linear(4, 2, bias=False)), TorchModule)
    mixed = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    assert isinstance(particle_model(mixed), TorchModule)


def test_frozen_parameters_are_no_part_of_a_particle(generator):
    module = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    module[0].requires_grad_(False)
    model = particle_model(module)
    assert model.dim == 14
    x, y = torch.rand(3, 4, generator=generator), torch.tensor([0, 1, 1])
    assert model.loss_gradient(model.draw(2, generator), x, y).shape == (2, 14)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: particle_model(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))), "batch statistics"),
        (lambda: particle_model(nn.ReLU()), "has none"),
        (lambda: DenseStack([4]), "two or more"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(UserError, match=message):
        make()
