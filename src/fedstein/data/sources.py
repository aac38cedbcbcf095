"""Sources of classification data by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from fedstein.data.examples import Dataset, Examples, as_examples
from fedstein.data.fashion_mnist import load_fashion_mnist
from fedstein.errors import UserError

__all__ = ["SOURCES", "class_names", "load_digits", "load_npz", "load_source"]

SOURCES = {
    "fashion-mnist": "Fashion-MNIST, 60,000 + 10,000 images of 28 x 28; from a folder, the cache or Debian's package",
    "digits": "1,437 + 360 digits of 8 x 8, shipped inside scikit-learn",
    "npz": "your own file with x_train, y_train, x_test, y_test (data.path)",
    "synthetic-gaussian": "Gaussian means with a known posterior (one agent a batch of observations)",
    "synthetic-mixture": "two agents, a mixture of two Gaussians each, in one dimension; the exact product is known",
}


_FASHION = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")


def class_names(source: str, classes: int) -> list[str]:
    """What people call the classes of a source; their numbers where it has no names."""
    return list(_FASHION) if source == "fashion-mnist" else [str(label) for label in range(classes)]


def load_source(name: str, path: Path | None) -> Dataset:
    """The classification source called `name`."""
    if name == "fashion-mnist":
        return load_fashion_mnist(path)
    if name == "digits":
        return load_digits()
    if path is None:
        raise UserError("The 'data.path' must name your .npz file when data.name is 'npz'. Got nothing.")
    return load_npz(path)


def load_digits() -> Dataset:
    """scikit-learn's digits as (n, 1, 8, 8) in 0..1, a fifth of each class held out for testing."""
    from sklearn.datasets import load_digits as load
    from sklearn.model_selection import train_test_split

    x, y = load(return_X_y=True)
    parts = train_test_split(x.reshape(-1, 1, 8, 8) / 16.0, y, test_size=360, random_state=0, stratify=y)
    x_train, x_test = (torch.from_numpy(part).float() for part in parts[:2])
    y_train, y_test = (torch.from_numpy(part).long() for part in parts[2:])
    return Dataset("digits", Examples(x_train, y_train), Examples(x_test, y_test), classes=10)


def load_npz(path: Path) -> Dataset:
    """A user's own .npz: x_train, y_train, x_test, y_test. Labels 0..C-1; nothing is unpickled."""
    names = ("x_train", "y_train", "x_test", "y_test")
    try:
        # A file object of our own: numpy leaves its own one open when the archive is damaged.
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            if missing := [name for name in names if name not in file]:
                raise UserError(f"The file {path} must have {', '.join(names)}. Missing: {', '.join(missing)}.")
            x_train, y_train, x_test, y_test = (np.asarray(file[name]) for name in names)
    except UserError:
        raise
    except Exception as error:  # a hostile file can make numpy and zipfile raise nearly anything
        raise UserError(f"Cannot read {path} as an .npz of plain arrays: {error}.") from error
    if not np.issubdtype(y_train.dtype, np.integer) or y_train.ndim != 1 or not len(y_train):
        raise UserError(f"{path}: y_train must be whole-number labels of shape (n,). Got {y_train.dtype}.")
    classes = int(y_train.max()) + 1
    if not 2 <= classes <= len(y_train):
        raise UserError(
            f"{path}: y_train must be labels 0..C-1 of 2 to {len(y_train)} classes. Got up to {classes - 1}."
        )
    train = as_examples((x_train, y_train), f"{path}: train", classes)
    test = as_examples((x_test, y_test), f"{path}: test", classes)
    if train.x.shape[1:] != test.x.shape[1:]:
        raise UserError(
            f"{path}: x_train and x_test must have the same shape behind the first axis. "
            f"Got {tuple(train.x.shape[1:])} and {tuple(test.x.shape[1:])} instead."
        )
    return Dataset("npz", train, test, classes)
