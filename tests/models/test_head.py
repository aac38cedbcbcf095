"""A frozen backbone is split off only where that changes nothing."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

from fedstein.models import DenseStack, TorchModule, particle_model, split_head


def log_probabilities(model, particles, x):
    return model.outputs(particles, x).log_softmax(-1)


class Net(nn.Module):
    def __init__(self, forward, **parts):
        super().__init__()
        self.way = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.way(self, x)


def frozen(part):
    return part.requires_grad_(False)


def mlp():
    return nn.Sequential(frozen(nn.Linear(6, 8)), nn.Tanh(), frozen(nn.Linear(8, 8)), nn.Tanh(), nn.Linear(8, 3))


def plain(m, x):
    return m.head(m.backbone(x))


def cnn():
    norm = nn.BatchNorm2d(4)
    norm.running_mean.uniform_()
    norm.running_var.uniform_(0.5, 2.0)
    backbone = nn.Sequential(
        nn.Conv2d(1, 4, 3), norm, nn.ReLU(), nn.Dropout(0.5), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    return Net(plain, backbone=frozen(backbone), head=nn.Linear(4, 3))


def dense(forward, **parts):
    return Net(forward, backbone=frozen(nn.Linear(6, 8)), head=nn.Linear(8, 3), **parts)


SPLIT = {
    "mlp": (mlp, (6,)),
    "cnn with batch norm": (cnn, (1, 8, 8)),
    "logits in a dict": (lambda: dense(lambda m, x: {"logits": plain(m, x), "x": x}), (6,)),
    "deeper head": (
        lambda: Net(
            plain, backbone=frozen(nn.Linear(6, 8)), head=nn.Sequential(nn.ReLU(True), nn.Linear(8, 4), nn.Linear(4, 3))
        ),
        (6,),
    ),
    "not for no rows": (lambda: dense(lambda m, x: plain(m, x.view(len(x), -1))), (2, 3)),
    "transformer": (
        lambda: Net(
            lambda m, x: m.head(m.backbone(x)),
            backbone=frozen(nn.Linear(6, 8)),
            head=nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.Flatten(), nn.Linear(16, 3)),
        ),
        (2, 6),
    ),
    "changes its inputs": (lambda: dense(lambda m, x: m.head(m.backbone(x.mul_(2)))), (6,)),
}


@pytest.mark.parametrize("name", SPLIT)
def test_a_head_is_split_off(name, generator):
    make, shape = SPLIT[name]
    module = make().train()
    before = copy.deepcopy(module.state_dict())
    x = torch.randn(600, *shape, generator=generator)  # more than a chunk
    kept = x.clone()
    split = split_head(module, x[:5])
    assert split is not None
    head, prepare = split
    inputs = prepare(x)
    assert not inputs.requires_grad
    assert len(inputs) == 600
    assert len(prepare(x[:0])) == 0
    assert prepare(x[:0]).shape[1:] == inputs.shape[1:]
    y = torch.randint(0, 3, (600,), generator=generator)
    whole, part = TorchModule(module, way="loop"), particle_model(head, way="loop", example=inputs[:2])
    particles = whole.draw(2, generator)
    torch.testing.assert_close(
        log_probabilities(part, particles, inputs), log_probabilities(whole, particles, x), rtol=1e-4, atol=1e-5
    )
    torch.testing.assert_close(
        part.loss_gradient(particles, inputs, y), whole.loss_gradient(particles, x, y), rtol=1e-4, atol=1e-6
    )
    assert torch.equal(x, kept)
    assert module.training
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())
    for left in (module, head, prepare.whole):
        assert not any(part._forward_pre_hooks or part._forward_hooks for part in left.modules())


def test_a_linear_head_takes_the_fast_path(generator):
    split = split_head(mlp(), torch.randn(4, 6, generator=generator))
    assert split is not None
    assert isinstance(particle_model(split[0], example=split[1](torch.randn(2, 6, generator=generator))), DenseStack)


def test_the_frozen_part_goes_to_another_process(generator):
    x = torch.randn(4, 6, generator=generator)
    split = split_head(mlp(), x)
    assert split is not None
    assert torch.equal(pickle.loads(pickle.dumps(split[1]))(x), split[1](x))


def tied_ends():
    made = Net(
        lambda m, x: m.head(m.backbone(x)), backbone=nn.Linear(6, 6, bias=False), head=nn.Linear(6, 6, bias=False)
    )
    made.head.weight = made.backbone.weight
    return made


def tied_behind_a_wall():
    made = Net(lambda m, x: m.head(m.backbone(x).detach()), head=nn.Linear(6, 6), backbone=nn.Linear(6, 6))
    frozen(made.backbone)
    made.backbone.weight = made.head.weight
    return made


def twice(m, x):
    return m.head(m.backbone(x)) + 0 * m.head(m.backbone(x))


def in_place(m, x):
    return plain(m, x).mul_(1.0)


def by_hand(m, x):
    return nn.functional.linear(m.backbone(x), m.head.weight, m.head.bias)


def from_the_trained(m, x):
    return m.head(m.backbone(x) * m.head.weight.sum())


def of_the_batch(m, x):
    inner = m.backbone(x)
    return m.head(inner - inner.mean(0))


def two_arguments(m, x):
    return m.head(m.backbone(x), x)


class Two(nn.Linear):
    def forward(self, x, other):
        return super().forward(x)


class Told(nn.Linear):
    def forward(self, x):
        return super().forward(x) + self.aside


def told_aside(m, x):
    m.head.aside = x.sum()
    return m.head(m.backbone(x))


NOT_SPLIT = {
    "all trained": lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)),
    "none trained": lambda: frozen(nn.Sequential(nn.Linear(6, 3))),
    "one layer": lambda: nn.Linear(6, 3),
    "post-processed": lambda: dense(lambda m, x: plain(m, x) * 2),
    "post-processed, not on these inputs": lambda: dense(lambda m, x: plain(m, x).clamp(-1e3, 1e3)),
    "post-processed in place": lambda: dense(in_place),
    "called twice": lambda: dense(twice),
    "never called": lambda: dense(by_hand),
    "two places": lambda: dense(lambda m, x: m.head(m.middle(m.backbone(x))), middle=nn.Linear(8, 8)),
    "tied to what is before": tied_ends,
    "tied, and no gradient shows it": tied_behind_a_wall,
    "its input depends on it": lambda: dense(from_the_trained),
    "random before": lambda: dense(lambda m, x: m.head(nn.functional.dropout(m.backbone(x)))),
    "depends on the batch": lambda: dense(of_the_batch),
    "two arguments": lambda: Net(two_arguments, backbone=frozen(nn.Linear(6, 8)), head=Two(8, 3)),
    "told aside": lambda: Net(told_aside, backbone=frozen(nn.Linear(6, 8)), head=Told(8, 3)),
    "not by example": lambda: dense(lambda m, x: m.head(m.backbone(x).sum(0, keepdim=True)).expand(len(x), 3)),
    "does not run": lambda: dense(lambda m, x: plain(m, x[:, :2])),
}


@pytest.mark.parametrize("name", NOT_SPLIT)
def test_whatever_else_is_left_whole(name, generator):
    assert split_head(NOT_SPLIT[name](), torch.randn(4, 6, generator=generator)) is None
