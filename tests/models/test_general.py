"""The general path: two ways that agree with each other and with plain autograd, on modules of many kinds."""

from __future__ import annotations

import copy
import pickle
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

import fedstein
from fedstein.errors import UserError
from fedstein.models import DenseStack, TorchModule, dense, module, particle_model, ways
from fedstein.models.held import single_output


def log_probabilities(model, particles, x):
    return model.outputs(particles, x).log_softmax(-1)


class Function(nn.Module):
    """Parts, and what is done with them."""

    def __init__(self, function, **parts):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.function(self, x)


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 5)
    )


def last_state(m, x):
    return m.head(m.rows(x)[0][:, -1])


def recurrent(kind):
    return Function(last_state, rows=kind(8, 6, batch_first=True), head=nn.Linear(6, 5))


def encode(m, x):
    return m.head(m.encoder(m.tokens(x)).mean(1))


def transformer(dropout=0.0):
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=dropout, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
    return Function(encode, tokens=nn.Embedding(11, 8), encoder=encoder, head=nn.Linear(8, 5))


def from_mean_token(m, x):
    return m.head(m.tokens(x).mean(1).tanh())


def tied():
    made = Function(from_mean_token, tokens=nn.Embedding(11, 7), head=nn.Linear(7, 11, bias=False))
    made.head.weight = made.tokens.weight
    return made


def by_item(m, x):
    out = m.head(x)
    return 2 * out if out.sum().item() > 0 else out


def in_place(m, x):
    out = torch.zeros(len(x), 5)
    out[:] = m.head(x)
    return out


def by_mask(m, x):
    out = m.head(x)
    out = out.clone()
    out[out[:, 0] > 0] *= 2
    return out


def with_checkpoint(m, x):
    return m.head(checkpoint(m.below, x + 0 * m.below.bias.sum(), use_reentrant=True).tanh())


def head():
    return nn.Linear(8, 5)


FLAT, IMAGES, ROWS, TOKENS = "flat", "images", "rows", "tokens"
MODULES = {
    "cnn": (cnn, IMAGES, True),
    "dense": (lambda: nn.Sequential(nn.Linear(8, 6), nn.GELU(), nn.Linear(6, 5)), FLAT, True),
    "gru": (lambda: recurrent(nn.GRU), ROWS, False),
    "lstm": (lambda: recurrent(nn.LSTM), ROWS, False),
    "transformer": (transformer, TOKENS, False),  # vmap falls back to a loop of its own, with a warning
    "tied weights": (tied, TOKENS, True),
    "value decides": (lambda: Function(by_item, head=head()), FLAT, False),
    "in place": (lambda: Function(in_place, head=head()), FLAT, False),
    "dynamic shapes": (lambda: Function(by_mask, head=head()), FLAT, False),
    "changes its inputs": (lambda: nn.Sequential(nn.ReLU(inplace=True), head()), FLAT, True),
    "checkpoints": (lambda: Function(with_checkpoint, below=nn.Linear(8, 8), head=head()), FLAT, False),
    "weight norm": (lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(head())), FLAT, False),
    "sparse gradient": (
        lambda: nn.Sequential(nn.Embedding(11, 4, sparse=True), nn.Flatten(), nn.Linear(24, 5)),
        TOKENS,
        False,
    ),
    "a part unused": (lambda: Function(lambda m, x: m.head(x), head=head(), other=nn.Linear(2, 2)), FLAT, True),
    "frozen below": (lambda: nn.Sequential(nn.Linear(8, 8).requires_grad_(False), nn.Tanh(), head()), FLAT, True),
    "logits in a dict": (lambda: Function(lambda m, x: {"logits": m.head(x), "x": x}, head=head()), FLAT, True),
}


def batch(kind, size, generator):
    shapes = {FLAT: (8,), IMAGES: (1, 8, 8), ROWS: (4, 8)}
    y = torch.randint(0, 5, (size,), generator=generator)
    if kind == TOKENS:
        return torch.randint(0, 11, (size, 6), generator=generator), y
    return torch.randn(size, *shapes[kind], generator=generator), y


def autograd(made, particles, x, y, weights=None):
    """Gradients by a plain loop over networks."""
    rows = []
    for place, particle in enumerate(particles):
        network = copy.deepcopy(made).eval()
        trained = [p for p in network.parameters() if p.requires_grad]
        nn.utils.vector_to_parameters(particle.clone(), trained)
        losses = nn.functional.cross_entropy(single_output(network(x.clone())), y, reduction="none")
        (losses if weights is None else losses * weights[place]).mean().backward()
        pieces = [torch.zeros_like(p) if p.grad is None else p.grad.to_dense() for p in trained]
        rows.append(torch.cat([piece.flatten() for piece in pieces]))
    return torch.stack(rows)


def off(ours, expected):
    return float((ours - expected).norm() / expected.norm())


@pytest.mark.parametrize("name", MODULES)
def test_both_ways_are_autograd(name, generator):
    make, kind, can_vmap = MODULES[name]
    made = make()
    before = copy.deepcopy(made.state_dict())
    x, y = batch(kind, 6, generator)
    kept = x.clone()
    loop = TorchModule(made, way="loop")
    particles = loop.draw(3, generator)
    particles += 0.1 * torch.randn(particles.shape, generator=generator)
    expected = autograd(made, particles, x, y)
    out = torch.full_like(particles, torch.nan)
    assert loop.loss_gradient(particles, x, y, scale=-2.0, out=out) is out
    assert off(out, -2.0 * expected) < 1e-5
    assert torch.equal(loop.loss_gradient(particles, x, y, scale=-2.0), out)  # nothing is left from call to call
    if can_vmap:
        both = TorchModule(made, way="vmap")
        assert off(both.loss_gradient(particles, x, y), expected) < 1e-5
        torch.testing.assert_close(both.loss(particles, x, y), loop.loss(particles, x, y))
        torch.testing.assert_close(
            log_probabilities(both, particles, x), log_probabilities(loop, particles, x), rtol=1e-4, atol=1e-5
        )
    assert torch.equal(x, kept)
    assert all(torch.equal(value, before[key]) for key, value in made.state_dict().items())
    assert all(p.grad is None for p in made.parameters())


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")  # of checkpoints, without gradients
@pytest.mark.parametrize("name", MODULES)
def test_auto_takes_a_way_that_goes(name, generator):
    make, kind, can_vmap = MODULES[name]
    x, y = batch(kind, 4, generator)
    model = TorchModule(make(), way="auto")
    model.check(x, y)
    assert model.way == "auto"
    particles = model.draw(2, generator)
    first = model.loss_gradient(particles, x, y)
    assert model.way in (("vmap", "loop") if can_vmap else ("loop",))
    pinned = TorchModule(make(), way=model.way)
    assert pinned.choose(x, y, particles) == model.way
    assert first.shape == (2, model.dim)


@pytest.mark.parametrize(("slow", "taken"), [(ways.Loop, "vmap"), (ways.Vmap, "loop")])
def test_auto_takes_the_faster(slow, taken, generator, monkeypatch):
    clock = [0.0]

    def timed(path, seconds):
        plain = path.gradient

        def gradient(self, *arguments):
            clock[0] += seconds
            return plain(self, *arguments)

        monkeypatch.setattr(path, "gradient", gradient)

    timed(ways.Loop, 1.0 if slow is ways.Loop else 0.1)
    timed(ways.Vmap, 1.0 if slow is ways.Vmap else 0.1)
    monkeypatch.setattr(ways, "clock", lambda device: clock[0])
    x, y = batch(FLAT, 4, generator)
    model = TorchModule(MODULES["dense"][0](), way="auto")
    assert model.choose(x, y, model.draw(2, generator)) == model.way == taken


def test_auto_does_not_trust_a_vmap_that_computes_something_else(generator, monkeypatch):
    plain = ways.Vmap.gradient
    monkeypatch.setattr(ways.Vmap, "gradient", lambda self, *arguments: 1.01 * plain(self, *arguments))
    monkeypatch.setattr(ways, "_WORTH", 1e9)
    x, y = batch(FLAT, 4, generator)
    model = TorchModule(MODULES["dense"][0](), way="auto")
    assert model.choose(x, y, model.draw(2, generator)) == "loop"
    monkeypatch.setattr(ways.Vmap, "gradient", plain)
    model = TorchModule(MODULES["dense"][0](), way="auto")
    assert model.choose(x, y, model.draw(2, generator)) == "vmap"


def test_auto_wants_outputs_as_well_as_gradients(generator, monkeypatch):
    monkeypatch.setattr(ways, "_WORTH", 1e9)  # vmap can make gradients of a GRU, and no outputs without them
    x, y = batch(ROWS, 4, generator)
    model = TorchModule(recurrent(nn.GRU), way="auto")
    assert model.choose(x, y, model.draw(2, generator)) == "loop"


def test_nothing_is_measured_unless_asked_for(generator, monkeypatch):
    monkeypatch.setattr(module, "faster", None)
    x, y = batch(FLAT, 4, generator)
    for model in (TorchModule(head()), particle_model(nn.Sequential(head(), nn.GELU()))):
        assert model.way == "vmap"
        model.loss_gradient(model.draw(2, generator), x, y)


@given(count=st.integers(1, 4), size=st.integers(1, 9), scale=st.floats(-1e3, 1e3), seed=st.integers(0, 2**31))
def test_loop_is_vmap_for_any_particles_and_batch(count, size, scale, seed):
    generator = torch.Generator().manual_seed(seed)
    made = cnn()
    x, y = batch(IMAGES, size, generator)
    loop, both = TorchModule(made, way="loop"), TorchModule(made, way="vmap")
    particles = both.draw(count, generator)
    ours, expected = (model.loss_gradient(particles, x, y, scale) for model in (loop, both))
    assert (ours - expected).norm() <= 1e-5 * expected.norm()


@pytest.mark.parametrize("name", MODULES)
def test_examples_can_be_weighted_for_each_particle(name, generator):
    make, kind, can_vmap = MODULES[name]
    made = make()
    x, y = batch(kind, 6, generator)
    for way in ("loop", "vmap") if can_vmap else ("loop",):
        model = TorchModule(made, way=way)
        particles = model.draw(3, generator)
        weights = 3 * torch.rand(3, 6, generator=generator)
        out = torch.full_like(particles, torch.nan)
        assert model.loss_gradient(particles, x, y, scale=-2.0, out=out, weights=weights) is out
        assert off(out, -2.0 * autograd(made, particles, x, y, weights)) < 1e-5
        plain = model.loss_gradient(particles, x, y)
        assert off(model.loss_gradient(particles, x, y, weights=torch.ones(3, 6)), plain) < 1e-6
        assert torch.equal(model.loss_gradient(particles, x, y, weights=None), plain)


@pytest.mark.parametrize("way", ["vmap", "loop"])
def test_weights_that_do_not_fit_are_refused(way, generator):
    x, y = batch(FLAT, 6, generator)
    model = TorchModule(head(), way=way)
    particles = model.draw(3, generator)
    for shape in ((6,), (3, 5), (1, 6), (3, 1)):
        with pytest.raises(UserError, match=r"'weights' must be \(3, 6\): particles, examples"):
            model.loss_gradient(particles, x, y, weights=torch.ones(shape))
    summed = TorchModule(head(), mean_loss, way=way)
    with pytest.raises(UserError, match="one loss for each example"):
        summed.loss_gradient(particles, x, y, weights=torch.ones(3, 6))


@pytest.mark.parametrize("way", ["vmap", "loop"])
def test_a_copy_is_on_its_own(way, generator):
    x, y = batch(IMAGES, 4, generator)
    model = TorchModule(cnn(), way=way)
    particles = model.draw(2, generator)
    expected = model.loss_gradient(particles, x, y)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):  # between processes, as Ray does it
        other.loss_gradient(model.draw(3, generator), x, y)
        assert torch.equal(other.loss_gradient(particles, x, y), expected)
        assert torch.equal(model.loss_gradient(particles, x, y), expected)


def test_particles_start_alike_whatever_was_computed_before(generator):
    norm = nn.Sequential(nn.Linear(8, 4), nn.LayerNorm(4), nn.Linear(4, 5))
    nn.init.constant_(norm[1].weight, 3.0)
    x, y = batch(FLAT, 4, generator)
    model = TorchModule(norm, way="loop")
    model.loss_gradient(torch.randn(2, model.dim, generator=generator), x, y)
    assert (model.draw(2, generator)[:, 36:40] == 3.0).all()


def test_tied_weights_count_once():
    assert TorchModule(tied()).dim == 77


def test_wider_particles_are_computed_wider(generator):
    made = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), head())
    model = TorchModule(made, way="loop")
    x, y = batch(FLAT, 4, generator)
    particles = model.draw(2, generator)
    narrow = model.loss_gradient(particles, x, y)
    wide = model.loss_gradient(particles.double(), x.double(), y)
    assert wide.dtype == torch.float64
    assert off(narrow, wide) < 1e-5
    assert torch.equal(model.loss_gradient(particles, x, y), narrow)


@pytest.mark.parametrize("way", ["vmap", "loop"])
@pytest.mark.parametrize("name", ["cnn", "gru", "dense"])
def test_bf16_is_close(name, way, generator, monkeypatch):
    make, kind, can_vmap = MODULES[name]
    if way == "vmap" and not can_vmap:
        pytest.skip("vmap cannot go through it")
    monkeypatch.setattr(dense, "has_bf16_units", lambda device: True)
    made = make()
    x, y = batch(kind, 20, generator)
    model = particle_model(made, precision="bf16", way=way)
    assert isinstance(model, TorchModule)
    particles = model.draw(3, generator)
    ours, expected = model.loss_gradient(particles, x, y), autograd(made, particles, x, y)
    assert ours.dtype == log_probabilities(model, particles, x).dtype == torch.float32
    assert 1e-6 < off(ours, expected) < 0.1


def test_bf16_without_units_stays_float32_and_says_so(generator, monkeypatch):
    monkeypatch.setattr(dense, "has_bf16_units", lambda device: False)
    x, y = batch(IMAGES, 4, generator)
    made = cnn()
    with pytest.warns(UserWarning, match="no bf16 matrix units"):
        model = particle_model(made, precision="bf16")
    particles = model.draw(2, generator)
    assert torch.equal(model.loss_gradient(particles, x, y), TorchModule(made).loss_gradient(particles, x, y))


@pytest.mark.parametrize("way", ["vmap", "loop"])
def test_inputs_are_not_cast(way, generator):
    seen = []

    def look(m, x):
        seen.append(x.dtype)
        return m.head(x.float())

    model = TorchModule(Function(look, head=head()), way=way)
    for kind in (torch.int64, torch.uint8, torch.float32):
        x, y = torch.ones(3, 8, dtype=kind), torch.zeros(3, dtype=torch.long)
        model.loss_gradient(model.draw(2, generator), x, y)
        log_probabilities(model, model.draw(2, generator), x)
    assert set(seen[:2]) == {torch.int64}
    assert set(seen) == {torch.int64, torch.uint8, torch.float32}


def test_who_takes_tokens(generator):
    tokens, _ = batch(TOKENS, 3, generator)
    model = TorchModule(transformer())
    assert model.takes(tokens) == model.takes(tokens.float()) == "ids"  # as numbers, as they were before anybody knew
    assert TorchModule(nn.Linear(6, 5)).takes(tokens) == "numbers"
    both = Function(lambda m, x: m.head(x.float()), head=nn.Linear(6, 5))
    assert TorchModule(both).takes(tokens) == "numbers"
    looks = {"embed": nn.Embedding(11, 3), "head": nn.Linear(18, 5)}
    cast = Function(lambda m, x: m.head(m.embed(x.long()).flatten(1)), **looks)
    assert TorchModule(cast).takes(tokens) == "either"
    hashed = Function(lambda m, x: m.head(m.embed(x.long() % 11).flatten(1)), **looks)
    assert TorchModule(hashed).takes(tokens + 2**30) == "either"  # float32 has not every one of these
    beside = Function(
        lambda m, x: m.head(torch.cat([m.embed(x[:, 1:].long()).flatten(1), x[:, :3] @ m.mix], 1)), **looks
    )
    beside.mix = nn.Parameter(torch.zeros(3, 3))
    assert TorchModule(beside).takes(tokens) == "mixed"
    # Positions are looked up as well, and say nothing of the inputs.
    places = Function(lambda m, x: m.head((m.embed(torch.arange(6)) + x[..., None]).flatten(1)), **looks)
    assert TorchModule(places).takes(tokens) == "numbers"


class Pair(NamedTuple):
    logits: torch.Tensor
    hidden: torch.Tensor


ONE, TWO = torch.ones(3), torch.zeros(3)


@pytest.mark.parametrize(
    "output",
    [
        ONE,
        (ONE,),
        [ONE],
        (ONE, None),
        {"scores": ONE},
        {"logits": ONE, "hidden": TWO},
        Pair(ONE, TWO),
        SimpleNamespace(logits=ONE, hidden=TWO),
    ],
)
def test_the_one_tensor_is_found(output):
    assert single_output(output) is ONE


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ((ONE, TWO), "a tuple with 2 tensors"),
        ({"a": ONE, "b": TWO}, "a dict with the fields 'a', 'b'"),
        ({}, "a dict with 0 tensors"),
        (None, "a NoneType"),
        (3.0, "a float"),
    ],
)
def test_several_tensors_are_refused(output, said):
    with pytest.raises(UserError, match=f"Got {said}"):
        single_output(output)


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = head()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.head(x)


def of(function):
    return Function(function, head=head())


def mean_loss(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets)


REFUSED = {
    "a sum over the batch": (of(lambda m, x: m.head(x).sum(0)), r"\(B, ...\) outputs for \(B, ...\) inputs"),
    "a scalar": (of(lambda m, x: m.head(x).sum()), r"\(B, ...\) outputs"),
    "squeezed": (of(lambda m, x: m.head(x).squeeze(0)), r"\(B, ...\) outputs"),
    "labels": (of(lambda m, x: m.head(x).argmax(1)), "floating-point"),
    "another shape": (of(lambda m, x: m.head(x)[:, : 2 + (len(x) == 1)]), "of one shape"),
    "two tensors": (of(lambda m, x: (m.head(x), x)), "one tensor"),
    "NaN": (of(lambda m, x: m.head(x) / 0 * 0), "NaN for particles as they start"),
    "no classes": (of(lambda m, x: m.head(x)[:, 0]), r"\(B, classes\)"),
    "random": (of(lambda m, x: nn.functional.dropout(m.head(x), 0.5)), "draws at random"),
    "state": (Counting(), "keeps a state"),
    "another width": (nn.Sequential(nn.Linear(9, 5), nn.GELU()), r"does not run on inputs of shape \(3, 8\)"),
    "no gradient": (of(lambda m, x: m.head(x).detach()), "must depend on the parameters"),
    "gradient NaN": (of(lambda m, x: m.head(x) + (0 * m.head.weight.sum()).abs().sqrt()), "gradient of 'head.weight'"),
    "embedding of floats": (nn.Sequential(nn.Embedding(9, 2), nn.Flatten(), nn.Linear(16, 5)), "give them as whole"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_before_training(name, generator):
    made, message = REFUSED[name]
    x, y = batch(FLAT, 3, generator)
    with pytest.raises(UserError, match=message):
        TorchModule(made, way="loop").check(x, y)


def test_one_example_shows_what_two_would(generator):
    x, y = batch(FLAT, 1, generator)
    with pytest.raises(UserError, match=r"Got \(1, 5\) for \(2, 8\)"):
        TorchModule(of(lambda m, x: m.head(x).sum(0, keepdim=True)), way="loop").check(x, y)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (mean_loss, "one loss for each example"),
        (lambda o, t: (o - t).square().mean(1), "does not take outputs"),
        (lambda o, t: o[:, 0] / 0, "'loss' is NaN or infinite"),
        (lambda o, t: o.sum(1).tolist(), "Got a list"),
    ],
)
def test_refused_losses(loss, message, generator):
    x, y = batch(FLAT, 3, generator)
    with pytest.raises(UserError, match=message):
        TorchModule(head(), loss).check(x, y)


@pytest.mark.parametrize("x", [(torch.ones(3, 8), torch.ones(3, 8)), {"a": torch.ones(3, 8)}])
def test_several_inputs_are_refused(x):
    with pytest.raises(UserError, match="several inputs must take them as one tensor"):
        TorchModule(head()).check(x, torch.zeros(3, dtype=torch.long))


def test_examples_that_do_not_fit_are_refused():
    with pytest.raises(UserError, match="as many x as y"):
        TorchModule(head()).check(torch.ones(3, 8), torch.zeros(2, dtype=torch.long))


def test_what_vmap_cannot_do_is_told_before_training(generator):
    x, y = batch(ROWS, 3, generator)
    with pytest.raises(UserError, match="way='loop', or 'auto'"):
        TorchModule(recurrent(nn.GRU), way="vmap").check(x, y)
    TorchModule(recurrent(nn.GRU), way="loop").check(x, y)


@pytest.mark.parametrize("way", ["vmap", "loop"])
@pytest.mark.parametrize("size", [1, 3])
def test_a_good_module_is_not_refused_nor_changed(way, size, generator):
    made = cnn().train()
    x, y = batch(IMAGES, size, generator)
    model = TorchModule(made, way=way)
    model.check(x, y)
    assert made.training
    assert model.notes == ()
    particles = model.draw(2, generator)
    assert off(model.loss_gradient(particles, x, y), autograd(made, particles, x, y)) < 1e-5


@pytest.mark.parametrize("way", ["vmap", "loop"])
def test_shapes_that_change_are_refused_in_training(way, generator):
    model = TorchModule(of(lambda m, x: m.head(x)[:, : len(x)]), way=way)
    particles, (x, y) = model.draw(2, generator), batch(FLAT, 3, generator)
    model.loss_gradient(particles, x, y.clamp(max=2))
    with pytest.raises(UserError, match=r"gave \(3,\) for an input before, and now \(2,\)"):
        model.loss_gradient(particles, x[:2], y[:2].clamp(max=1))


def test_notes(generator):
    x, y = batch(TOKENS, 3, generator)
    model = TorchModule(transformer(dropout=0.1), way="loop")
    assert len(model.notes) == 1
    assert model.notes[0].startswith("Dropout is off")
    normed = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2).requires_grad_(False), nn.Flatten(), nn.Linear(72, 5))
    assert TorchModule(normed).notes == ("Batch norm is frozen, and its statistics are constants: '1'.",)
    assert TorchModule(nn.Sequential(nn.Dropout(0.0), head())).notes == ()
    x, y = batch(FLAT, 3, generator)
    model = TorchModule(MODULES["a part unused"][0](), way="loop")
    model.check(x, y)
    assert "'other.weight', 'other.bias'" in model.notes[0]


def test_modules_that_cannot_be_held():
    with pytest.raises(UserError, match="Call it on an input first"):
        TorchModule(nn.LazyLinear(3))
    uncopied = head()
    uncopied.by = uncopied.weight * 2
    with pytest.raises(UserError, match=r"copy\.deepcopy"):
        TorchModule(uncopied)
    with pytest.raises(UserError, match="'auto', 'vmap' or 'loop'"):
        TorchModule(head(), way="fast")


@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")
def test_scripted_modules_run(generator):
    made = nn.Sequential(nn.Linear(8, 6), nn.GELU(), nn.Linear(6, 5))
    x, y = batch(FLAT, 4, generator)
    model = TorchModule(torch.jit.trace(made, x), way="loop")
    model.check(x, y)
    particles = model.draw(2, generator)
    assert off(model.loss_gradient(particles, x, y), autograd(made, particles, x, y)) < 1e-5


# Batch norm


@pytest.mark.parametrize(
    "norm",
    [
        nn.BatchNorm2d(4),
        nn.BatchNorm2d(4, track_running_stats=False).requires_grad_(False),
        nn.BatchNorm2d(4, affine=False, track_running_stats=False),
    ],
)
def test_trained_batch_norm_is_refused_and_the_way_out_works(norm, generator):
    made = nn.Sequential(nn.Conv2d(1, 4, 3), norm, nn.ReLU(), nn.Flatten(), nn.Linear(144, 5))
    with pytest.raises(UserError, match=r"'1' is a BatchNorm2d.*fedstein\.to_group_norm\(module\)"):
        TorchModule(made)
    x, y = batch(IMAGES, 3, generator)
    TorchModule(fedstein.to_group_norm(made)).check(x, y)


@pytest.mark.parametrize("way", ["vmap", "loop"])
@pytest.mark.parametrize("norm", [nn.BatchNorm2d(4).requires_grad_(False), nn.BatchNorm2d(4, affine=False)])
def test_frozen_batch_norm_has_constant_statistics(norm, way, generator):
    norm.running_mean.uniform_(generator=generator)
    norm.running_var.uniform_(0.5, 2.0, generator=generator)
    made = nn.Sequential(nn.Conv2d(1, 4, 3), norm, nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)).train()
    x, y = batch(IMAGES, 6, generator)
    model = TorchModule(made, way=way)
    model.check(x, y)
    particles = model.draw(2, generator)
    whole = log_probabilities(model, particles, x)
    torch.testing.assert_close(log_probabilities(model, particles, x[:1]), whole[:, :1])
    assert off(model.loss_gradient(particles, x, y), autograd(made, particles, x, y)) < 1e-5


@given(channels=st.integers(1, 300), kind=st.sampled_from([nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d]))
def test_groups_divide_the_channels_and_are_about_eight(channels, kind):
    norm = fedstein.to_group_norm(kind(channels))
    assert isinstance(norm, nn.GroupNorm)
    assert channels % norm.num_groups == 0
    within = channels // norm.num_groups
    assert within >= 2 or norm.num_groups == 1
    if channels % 8 == 0 and channels >= 32:
        assert norm.num_groups == 8


def test_group_norm_takes_over_what_batch_norm_had():
    shared = nn.BatchNorm1d(12, eps=1e-3)
    nn.init.uniform_(shared.weight)
    nn.init.uniform_(shared.bias)
    frozen = nn.BatchNorm2d(4).requires_grad_(False)
    made = nn.ModuleDict(
        {"a": shared, "b": nn.Sequential(shared), "frozen": frozen, "bare": nn.BatchNorm2d(16, affine=False)}
    )
    new = fedstein.to_group_norm(made)
    assert made["a"] is shared
    assert made["b"][0] is shared
    assert new["a"] is new["b"][0]
    assert torch.equal(new["a"].weight, shared.weight)
    assert torch.equal(new["a"].bias, shared.bias)
    assert new["a"].weight is not shared.weight
    assert new["a"].weight.requires_grad
    assert new["a"].eps == 1e-3
    assert isinstance(new["frozen"], nn.BatchNorm2d)  # what was trained with its statistics needs them
    assert new["bare"].weight is None
    assert new["bare"].num_groups == 8


def test_tokens_do_not_take_the_fast_path(generator):
    tokens, _ = batch(TOKENS, 3, generator)
    assert isinstance(particle_model(nn.Linear(6, 5), example=tokens.float()), DenseStack)
    assert isinstance(particle_model(transformer(), example=tokens), TorchModule)
