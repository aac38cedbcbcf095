"""Inputs that are read when they are wanted."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset, TensorDataset, random_split

import fedstein
from fedstein.data import LazyRows, as_examples, chunks, loaded, rows
from fedstein.data.rows import joined, spooled
from fedstein.errors import UserError
from fedstein.methods.base import minibatches

HEIGHT = 6


class Images(Dataset):
    """Map-style; counts what is read. With `noise` every reading is another one, from the generator of that name."""

    def __init__(self, count=40, noise=None, seed=0):
        generator = torch.Generator().manual_seed(seed)
        self.y = torch.arange(count) % 3
        self.x = torch.rand(count, 1, HEIGHT, HEIGHT, generator=generator) + self.y.view(-1, 1, 1, 1).float()
        self.noise, self.reads, self.own = noise, 0, np.random.default_rng(0)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, place):
        self.reads += 1
        draws = {
            None: lambda: 0.0,
            "torch": lambda: torch.rand(()).item(),
            "numpy": lambda: np.random.rand(),  # noqa: NPY002  (the one that data sets use)
            "python": lambda: random.random(),
            "own": lambda: self.own.random(),
        }
        return self.x[place] + draws[self.noise](), int(self.y[place])


class Stream(IterableDataset):
    def __init__(self, count):
        self.images = Images(count)

    def __iter__(self):
        return (self.images[place] for place in range(len(self.images)))


def test_small_and_always_the_same_is_read_once_and_stays():
    data = Images()
    examples = as_examples(data, "agents[0]")
    assert isinstance(examples.x, torch.Tensor)
    assert torch.equal(examples.x, data.x)
    assert torch.equal(examples.y, data.y)


@pytest.mark.parametrize("noise", ["torch", "numpy", "python"])
def test_augmentation_happens_each_time_and_hangs_on_the_seed_alone(noise):
    examples = as_examples(Images(noise=noise), "agents[0]")
    assert isinstance(examples.x, LazyRows)
    where = torch.tensor([3, 1, 3])
    once, again, other = examples.x.read(where, 5), examples.x.read(where, 5), examples.x.read(where, 6)
    assert torch.equal(once, again)
    assert not torch.equal(once, other)
    # An item's draws are its own, whatever else is in the batch: so it is the same whoever reads, side by side or not.
    assert torch.equal(examples.x.read(torch.tensor([1]), 5)[0], once[1])
    assert torch.equal(examples.take(torch.tensor([1, 3])).x.read(slice(0, 1), 5)[0], once[1])


def test_reading_leaves_the_global_generators_as_they_were():
    torch.manual_seed(1), np.random.seed(1), random.seed(1)  # noqa: NPY002
    expected = torch.rand(3), np.random.rand(3), random.random()  # noqa: NPY002
    torch.manual_seed(1), np.random.seed(1), random.seed(1)  # noqa: NPY002
    for noise in ("torch", "numpy", "python"):
        as_examples(Images(noise=noise), "agents[0]").x.read(slice(0, 4), 9)
    assert torch.equal(torch.rand(3), expected[0])
    assert np.array_equal(np.random.rand(3), expected[1])  # noqa: NPY002
    assert random.random() == expected[2]


def test_a_generator_of_its_own_is_told():
    with pytest.warns(UserWarning, match="random numbers of its own"):
        examples = as_examples(Images(noise="own"), "agents[0]")
    assert isinstance(examples.x, LazyRows)


def test_batches_of_one_visit_see_other_augmentation(generator):
    examples = as_examples(Images(count=5, noise="torch"), "agents[0]")
    draws = torch.Generator().manual_seed(3)
    first, second = (x for x, _ in minibatches(examples, 10, 2, generator, draws))
    assert not torch.equal(first, second)
    again = next(x for x, _ in minibatches(examples, 10, 2, generator, torch.Generator().manual_seed(3)))
    assert torch.equal(first, again)


def test_large_data_is_read_when_it_is_wanted(generator):
    data = Images(count=100)
    examples = as_examples(data, "agents[0]", memory=1000)
    assert isinstance(examples.x, LazyRows)
    assert examples.x.shape == (100, 1, HEIGHT, HEIGHT)
    data.reads = 0
    batches = list(minibatches(examples, 7, 3, generator))
    assert data.reads == 21
    for x, y in batches:
        assert torch.equal(x.mean((1, 2, 3)).floor().long().clamp(0, 2), y)
    assert torch.equal(loaded(examples.x), data.x)
    assert torch.equal(torch.cat(list(chunks(examples.x, 32))), data.x)


def test_subsets_of_tensors_are_tensors(generator):
    x, y = torch.rand(10, 4), torch.arange(10) % 2
    part = random_split(TensorDataset(x, y), [4, 6], generator)[0]
    examples = as_examples(part, "agents[0]")
    assert isinstance(examples.x, torch.Tensor)
    assert torch.equal(examples.x, x[list(part.indices)])


@pytest.mark.parametrize("count", [1, 5, 2 * rows.CHUNK + 3])
def test_an_iterable_is_gone_through_once(count):
    stream = Stream(count)
    examples = as_examples(stream, "agents[0]")
    assert stream.images.reads == count
    assert torch.equal(loaded(examples.x), stream.images.x)
    assert torch.equal(examples.y, stream.images.y)


def test_an_empty_iterable_and_one_of_two_shapes_are_refused():
    with pytest.raises(UserError, match="has no examples"):
        as_examples(Stream(0), "agents[0]")
    with pytest.raises(UserError, match="one shape and type"):
        as_examples(iter([(torch.zeros(3), 0), (torch.zeros(4), 1)]), "agents[0]")


def test_an_item_that_changes_its_shape_or_is_not_finite_is_told():
    data = Images()
    examples = as_examples(data, "agents[0]", memory=0)
    data.x[7] = float("nan")
    with pytest.raises(UserError, match=r"agents\[0\]: x has NaN or infinity, in example 7"):
        examples.x.read(torch.tensor([1, 7]), 0)
    data.x = data.x[:, :, :3]
    with pytest.raises(UserError, match="must have the shape"):
        examples.x.read(torch.tensor([1]), 0)


def test_rows_of_several():
    lazy = as_examples(Images(count=4), "a", memory=0).x
    noisy = as_examples(Images(count=3, noise="torch", seed=1), "b").x
    tensor = torch.rand(5, 1, HEIGHT, HEIGHT)
    both = joined([lazy, tensor, noisy])
    assert len(both) == 12
    assert both.draws
    assert torch.equal(both[torch.tensor([0, 4, 8])], torch.stack([lazy[0], tensor[0], tensor[4]]))
    assert not torch.equal(both.read(slice(9, 12), 1), both.read(slice(9, 12), 2))
    assert torch.equal(both.read(slice(9, 12), 1), both.read(slice(9, 12), 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8])
def test_spooled_rows_are_those_that_came(dtype):
    whole = (100 * torch.rand(50, 3)).to(dtype)
    assert torch.equal(spooled(iter(torch.split(whole, 7))), whole)


METHOD = fedstein.DSVGD(particles=2, local_steps=3, batch=8, anneal_over=9)


def _trained(agents, **more):
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
    return fedstein.train(module, agents, method=METHOD, rounds=4, progress=False, way="loop", **more)


def test_lazy_rows_train_as_tensors_do(monkeypatch):
    inside = _trained([Images(seed=k) for k in range(2)], test=Images(seed=9))
    monkeypatch.setattr("fedstein.runs.given.MEMORY", 0)
    lazily = _trained([Images(seed=k) for k in range(2)], test=Images(seed=9))
    assert torch.equal(inside.particles, lazily.particles)
    assert inside.metrics == lazily.metrics


def test_augmentation_survives_a_stop_bit_for_bit(tmp_path):
    agents = [Images(seed=k, noise="torch") for k in range(2)]
    whole = _trained(agents, test=Images(seed=9), out=tmp_path / "whole")
    again = _trained([Images(seed=k, noise="torch") for k in range(2)], test=Images(seed=9))
    assert torch.equal(whole.particles, again.particles)
    assert not torch.equal(whole.particles, _trained([Images(seed=k) for k in range(2)], test=Images(seed=9)).particles)
    longer = fedstein.open(tmp_path / "whole").resume(rounds=6)
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
    straight = fedstein.train(module, agents, method=METHOD, rounds=6, progress=False, way="loop", test=Images(seed=9))
    assert torch.equal(longer.particles, straight.particles)


def test_whole_numbers_that_float32_does_not_have_are_told():
    with pytest.warns(UserWarning, match="lose digits as float32"):
        as_examples((np.array([[2**24 + 1]]), np.array([0])), "agents[0]")


class Own(TensorDataset):
    """One of its kind that does more to an item."""

    def __getitem__(self, place):
        x, y = super().__getitem__(place)
        return x + 100, y


class Rotated(Images):
    """Draws its target."""

    def __getitem__(self, place):
        turn = int(torch.randint(4, ()))
        return torch.rot90(self.x[place], turn, (1, 2)), turn


class Mixed(Images):
    """Draws from a global generator, and from one of its own."""

    def __getitem__(self, place):
        return self.x[place] + torch.rand(()) + self.own.random(), int(self.y[place])


def test_data_sets_that_cannot_be_what_they_seem():
    x, y = torch.rand(10, 4), torch.arange(10) % 2
    assert float(as_examples(Own(x, y), "a").x.min()) >= 100
    assert float(as_examples(torch.utils.data.Subset(Own(x, y), [1, 3]), "a").x.min()) >= 100
    with pytest.raises(UserError, match="draws the target of an item"):
        as_examples(Rotated(), "agents[0]")
    with pytest.warns(UserWarning, match="random numbers of its own"):
        as_examples(Mixed(), "agents[0]")
    with pytest.raises(UserError, match=r"is a DataLoader, which gives batches. Give its data set"):
        as_examples(torch.utils.data.DataLoader(TensorDataset(x, y), batch_size=2), "agents[0]")


def test_bytes_beside_numbers_are_refused_and_a_factor_of_255_is_told():
    raw = (255 * torch.rand(20, 4)).to(torch.uint8)
    y = torch.arange(20) % 2
    with pytest.raises(UserError, match=r"agents\[0\] has bytes .* and agents\[1\] has float32"):
        fedstein.train(nn.Linear(4, 2), [(raw, y), (raw.float(), y)])
    with pytest.warns(UserWarning, match="divided by 255"):
        run = fedstein.train(nn.Linear(4, 2), [(raw, y)], test=(raw, y), rounds=1, progress=False)
    with pytest.warns(UserWarning, match="are they scaled alike"):
        run.predict(raw.int())


def test_another_order_of_the_sides_is_refused():
    x, y = torch.rand(20, 3, 4, 4), torch.arange(20) % 2
    run = fedstein.train(nn.Sequential(nn.Flatten(), nn.Linear(48, 2)), [(x, y)], rounds=1, progress=False)
    assert torch.equal(run.predict(x).probabilities, run.predict(x.flatten(1)).probabilities)
    with pytest.raises(UserError, match=r"must be \(n, 3, 4, 4\), or flat, with 48 numbers a row. Got \(20, 4, 4, 3\)"):
        run.predict(x.permute(0, 2, 3, 1))


def test_data_sets_must_call_the_classes_alike():
    one, other = Images(), Images()
    one.classes, other.classes = ["cat", "dog", "eel"], ["dog", "cat", "eel"]
    with pytest.raises(UserError, match="must call the classes alike"):
        _trained([one, other])


def test_what_a_data_set_raises_comes_with_its_name():
    data = Images()
    data.x = None
    with pytest.raises(UserError, match=r"agents\[0\] must be a data set whose items are pairs"):
        as_examples(data, "agents[0]")
