from __future__ import annotations

import gzip
import json
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedstein.data import (
    DataConfig,
    as_examples,
    class_pairs,
    dirichlet,
    fit_targets,
    from_indices,
    iid,
    load_digits,
    load_npz,
    who_has_what,
)
from fedstein.data.sources import fashion_mnist as source
from fedstein.data.sources.idx import read_idx
from fedstein.errors import UserError
from fedstein.likelihoods import Categorical


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes()


def test_fashion_mnist_is_the_real_one(fashion_mnist):
    assert fashion_mnist.train.x.shape == (60_000, 1, 28, 28)
    assert fashion_mnist.test.x.shape == (10_000, 1, 28, 28)
    assert fashion_mnist.train.y.bincount().tolist() == [6000] * 10
    assert fashion_mnist.test.y.bincount().tolist() == [1000] * 10
    assert fashion_mnist.train.x.min() == 0.0
    assert fashion_mnist.train.x.max() == 1.0
    assert fashion_mnist.train.x.mean().item() == pytest.approx(0.2860, abs=1e-4)  # as commonly published


def test_digits_are_those_of_scikit_learn_split_as_it_does_it():
    from sklearn.datasets import load_digits as load
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    x, y = load(return_X_y=True)
    parts = train_test_split(x.reshape(-1, 1, 8, 8) / 16.0, y, test_size=360, random_state=0, stratify=y)
    for part, theirs in zip((digits.train.x, digits.test.x, digits.train.y, digits.test.y), parts, strict=True):
        assert torch.equal(part, torch.from_numpy(theirs).to(part.dtype))
    assert (len(digits.train), len(digits.test)) == (1437, 360)


def test_digits_without_scikit_learn_say_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(UserError, match=r"The digits need an extra: pip install 'fedstein\[report\]'"):
        load_digits()


@pytest.mark.parametrize("packed", [False, True])
def test_idx_round_trip(tmp_path, packed):
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(idx(array)) if packed else idx(array))
    assert (read_idx(path) == array).all()


@given(st.binary(max_size=64))
@settings(deadline=None, max_examples=300)
def test_idx_never_trusts_its_input(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("idx") / "file"
    path.write_bytes(content)
    try:
        array = read_idx(path)
    except UserError:
        return
    assert idx(array) == content


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\x00",
        idx(np.zeros((2, 3), np.uint8))[:-1],
        idx(np.zeros((2, 3), np.uint8)) + b"x",
        b"\x00\x00\x0d\x01\x00\x00\x00\x01\x00",
        gzip.compress(idx(np.zeros((9, 9), np.uint8)), mtime=0)[:-9],
        b"\x1f\x8bnot gzip at all",
    ],
)
def test_damaged_idx_is_refused(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(UserError, match="data file"):
        read_idx(path)


def test_a_changed_file_is_refused(tmp_path):
    for name in source.FILES:
        (tmp_path / name).write_bytes(idx(np.zeros(3, np.uint8)))
    with pytest.raises(UserError, match="SHA-256"):
        source.load_fashion_mnist(tmp_path)


def test_missing_data_says_what_to_do(tmp_path):
    with pytest.raises(UserError, match="fedstein data get fashion-mnist"):
        source.load_fashion_mnist(tmp_path)


@pytest.fixture
def labels(generator):
    return torch.randint(0, 10, (2000,), generator=generator)


def disjoint(parts):
    together = torch.cat(parts)
    return len(together) == len(torch.unique(together))


def test_iid(labels, generator):
    parts = iid(labels, 7, None, generator)
    assert [len(part) for part in parts] == [285] * 7
    assert disjoint(parts)
    assert [len(part) for part in iid(labels, 3, 100, generator)] == [100] * 3


def test_class_pairs_is_the_letters_split(labels, generator):
    parts = class_pairs(labels, 10, 100, generator)
    held = [torch.unique(labels[part]).tolist() for part in parts]
    assert held == [[0, 1]] * 2 + [[2, 9]] * 2 + [[3, 4]] * 2 + [[5, 6]] * 2 + [[7, 8]] * 2
    assert all((labels[part] == pair[0]).sum() == 50 for part, pair in zip(parts, held, strict=True))
    assert disjoint(parts)


@given(st.integers(1, 40), st.floats(0.01, 100), st.integers(0, 5))
@settings(deadline=None, max_examples=40)
def test_dirichlet_leaves_nobody_empty(agents, concentration, seed):
    labels = torch.arange(200) % 10
    parts = dirichlet(labels, agents, None, concentration, torch.Generator().manual_seed(seed))
    assert len(parts) == agents
    assert min(map(len, parts)) >= 1
    assert disjoint(parts)
    assert sum(map(len, parts)) == 200


def test_dirichlet_concentration_matters(labels):
    def largest_share(concentration):
        parts = dirichlet(labels, 10, None, concentration, torch.Generator().manual_seed(1))
        return np.mean([labels[part].bincount(minlength=10).max().item() / len(part) for part in parts])

    assert largest_share(0.05) > 0.5
    assert largest_share(1000.0) < 0.2


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (lambda y, g: iid(y, 10, 201, g), "data.agents"),
        (lambda y, g: iid(y, 2001, None, g), "data.agents"),
        (lambda y, g: class_pairs(y, 7, 100, g), "multiple of 5"),
        (lambda y, g: class_pairs(y, 10, 101, g), "even number"),
        (lambda y, g: class_pairs(y, 10, 2000, g), "even number"),
        (lambda y, g: class_pairs(y % 5, 10, 10, g), "even number of classes"),
        (lambda y, g: dirichlet(y, 2001, None, 1.0, g), "data.agents"),
        (lambda y, g: from_indices(y, [[0, 1], [1]]), "twice"),
        (lambda y, g: from_indices(y, [[0, 0]]), "twice"),
        (lambda y, g: from_indices(y, [[2000]]), "0..1999"),
        (lambda y, g: from_indices(y, [[]]), "empty"),
    ],
)
def test_impossible_splits_are_refused(labels, generator, split, message):
    with pytest.raises(UserError, match=message):
        split(labels, generator)


def test_examples_come_in_many_shapes(generator):
    x, y = torch.rand(4, 3, generator=generator), torch.tensor([0, 1, 1, 0])
    wanted = as_examples((x, y), "a")
    for data in ((x.numpy(), y.numpy()), (x.tolist(), y.tolist()), torch.utils.data.TensorDataset(x, y), wanted):
        examples = as_examples(data, "a")
        torch.testing.assert_close(examples.x, wanted.x)
        assert examples.y.tolist() == y.tolist()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((torch.zeros(0, 2), torch.zeros(0)), "no examples"),
        ((torch.zeros(2, 2), torch.zeros(3)), "as many x as y"),
        ((torch.tensor([[0.0], [torch.nan]]), torch.zeros(2)), "row 1"),
        ((torch.zeros(2, 2), torch.tensor([0, 2])), r"0\.\.1"),
        ((torch.zeros(2, 2), torch.tensor([-1, 0])), r"0\.\.1"),
        ((torch.zeros(2, 2), torch.tensor([0.5, 0])), "whole-number"),
        (7, "pair"),
        ((["a"], [0]), "numbers"),
        ([], "no examples"),
    ],
)
def test_bad_examples_are_refused(data, message):
    with pytest.raises(UserError, match=message):
        Categorical().check(as_examples(data, "agents[0]").y, "agents[0]", 2)


def save(path, **arrays):
    good = {"x_train": np.zeros((4, 2)), "y_train": np.array([0, 1, 0, 1])}
    good |= {"x_test": np.zeros((2, 2)), "y_test": np.array([0, 1])}
    np.savez(path, **{k: v for k, v in (good | arrays).items() if v is not None})


def test_npz(tmp_path):
    save(tmp_path / "a.npz")
    own = load_npz(tmp_path / "a.npz")
    assert (own.classes, len(own.train), len(own.test)) == (2, 4, 2)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y_test": None}, "Missing: y_test"),
        ({"x_train": np.full((4, 2), np.nan)}, "NaN"),
        ({"y_test": np.array([0, 2])}, "labels must be in"),
        ({"y_train": np.array([0.0, 1, 0, 1])}, "whole-number"),
        ({"y_train": np.zeros(4, int)}, "at least two classes"),
        ({"x_test": np.zeros((2, 3))}, "same shape"),
        ({"x_train": np.array([{}, {}, {}, {}], dtype=object)}, r"never loaded. Save numbers: np.savez\(file, x="),
    ],
)
def test_bad_npz_is_refused(tmp_path, arrays, message):
    save(tmp_path / "a.npz", **arrays)
    data = DataConfig(name="npz", path=str(tmp_path / "a.npz"), agents=2)
    with pytest.raises(UserError, match=message) as error:
        fit_targets(who_has_what(data, 0), Categorical())
    assert "pickle" not in str(error.value)  # numpy would have it allowed


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 broken", json.dumps([1]).encode()])
def test_no_npz_is_refused(tmp_path, content):
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(UserError, match="Cannot read") as error:
        load_npz(tmp_path / "a.npz")
    assert "pickle" not in str(error.value)
