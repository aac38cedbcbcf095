"""Sources of classification data by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from fedstein.data.examples import Dataset, Examples, as_examples
from fedstein.data.fashion_mnist import load_fashion_mnist
from fedstein.errors import UserError

__all__ = [
    "SOURCES",
    "class_names",
    "load_digits",
    "load_examples",
    "load_npz",
    "load_own",
    "load_source",
    "load_test",
    "save_examples",
]

SOURCES = {
    "fashion-mnist": "Fashion-MNIST, 60,000 + 10,000 images of 28 x 28; from a folder, the cache or Debian's package",
    "digits": "1,437 + 360 digits of 8 x 8, shipped inside scikit-learn",
    "npz": "your own file with x_train, y_train, x_test, y_test (data.path)",
    "folder": "test.npz and one file an agent: agent-0.npz, agent-1.npz, ... with x and y (data.path)",
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
    file = _arrays(path, ("x_train", "y_train", "x_test", "y_test"))
    classes = _classes(path, "y_train", file["y_train"])
    train = as_examples((file["x_train"], file["y_train"]), f"{path}: train", classes)
    test = as_examples((file["x_test"], file["y_test"]), f"{path}: test", classes)
    if train.x.shape[1:] != test.x.shape[1:]:
        raise UserError(
            f"{path}: x_train and x_test must have the same shape behind the first axis. "
            f"Got {tuple(train.x.shape[1:])} and {tuple(test.x.shape[1:])} instead."
        )
    return Dataset("npz", train, test, classes)


def load_test(path: Path) -> tuple[Examples, int]:
    """The test examples of a folder, test.npz with x and y, and how many classes there are."""
    file = _arrays(path, ("x", "y"))
    classes = _classes(path, "y", file["y"])
    return as_examples((file["x"], file["y"]), str(path), classes), classes


def load_examples(path: Path, shape: torch.Size, classes: int) -> Examples:
    """One agent's own examples: an .npz with x (as many numbers a row as `shape`) and y."""
    file = _arrays(path, ("x", "y"))
    found = as_examples((file["x"], file["y"]), str(path), classes)
    if found.x[0].numel() != shape.numel():
        raise UserError(f"{path}: x must have {shape.numel()} numbers a row. Got {tuple(found.x.shape[1:])} instead.")
    return Examples(found.x.reshape(len(found), *shape), found.y)


def load_own(path: Path) -> Examples:
    """One agent's own examples, before it is known what the model takes: whatever is wrong in any case is refused."""
    file = _arrays(path, ("x", "y"))
    labels = file["y"]
    whole = np.issubdtype(labels.dtype, np.integer) and labels.size
    return as_examples((file["x"], labels), str(path), max(1, int(labels.max()) + 1) if whole else 1)


def save_examples(path: Path, examples: Examples) -> None:
    """Write such a file."""
    np.savez(path, x=examples.x.numpy(), y=examples.y.numpy())


def _arrays(path: Path, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    try:
        # A file object of our own: numpy leaves its own one open when the archive is damaged.
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            if missing := [name for name in names if name not in file]:
                raise UserError(f"The file {path} must have {', '.join(names)}. Missing: {', '.join(missing)}.")
            return {name: np.asarray(file[name]) for name in names}
    except UserError:
        raise
    except Exception as error:  # a hostile file can make numpy and zipfile raise nearly anything
        raise UserError(f"Cannot read {path} as an .npz of plain arrays: {error}.") from error


def _classes(path: Path, name: str, labels: np.ndarray) -> int:
    if not np.issubdtype(labels.dtype, np.integer) or labels.ndim != 1 or not len(labels):
        raise UserError(f"{path}: {name} must be whole-number labels of shape (n,). Got {labels.dtype}.")
    classes = int(labels.max()) + 1
    if not 2 <= classes <= len(labels):
        raise UserError(f"{path}: {name} must be labels 0..C-1 of 2 to {len(labels)} classes. Got up to {classes - 1}.")
    return classes
