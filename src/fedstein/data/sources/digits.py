"""scikit-learn's handwritten digits: small, and there wherever scikit-learn is.

Its file is read, and split as its `train_test_split` does it, without importing it: that takes a second, most of it for
SciPy and pandas.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fedstein.data.examples import Dataset, Examples
from fedstein.data.sources.base import Source
from fedstein.extras import needs_extra

__all__ = ["SOURCE", "load_digits"]


def load_digits(path: Path | None = None) -> Dataset:
    """All 1,797 digits as (n, 1, 8, 8) in 0..1, a fifth of each class held out for testing."""
    table = np.loadtxt(_file(), delimiter=",", dtype=np.float32)
    x = torch.from_numpy(table[:, :-1].reshape(-1, 1, 8, 8) / 16)
    y = torch.from_numpy(table[:, -1]).long()
    train, test = (Examples(x[rows], y[rows]) for rows in _split(y.numpy(), 360))
    return Dataset("digits", train, test, classes=10)


def _file() -> Path:
    """Where scikit-learn has them."""
    with needs_extra("report", "The digits"):
        found = find_spec("sklearn")
        if found is None or found.origin is None:
            raise ImportError("scikit-learn is not installed")
    return Path(found.origin).parent / "datasets" / "data" / "digits.csv.gz"


def _split(labels: NDArray[np.int64], held_out: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows to train and to test with: `train_test_split(..., test_size=held_out, random_state=0, stratify=labels)`.

    Every class keeps its share of the rows, rounded down; those that lose most by that get one more, and among equals
    the draw decides.
    """
    random = np.random.RandomState(0)  # the stream that the split was drawn from
    shares = np.bincount(labels) * (1 - held_out / len(labels))
    counts = shares.astype(int)
    lost = shares - counts
    missing = len(labels) - held_out - counts.sum()
    for most in np.unique(lost)[::-1]:
        if missing:
            equals = np.flatnonzero(lost == most)
            more = random.choice(equals, min(len(equals), missing), replace=False)
            counts[more] += 1
            missing -= len(more)
    train: list[int] = []
    test: list[int] = []
    for label, count in enumerate(counts):
        rows = random.permutation(np.flatnonzero(labels == label))
        train.extend(rows[:count])
        test.extend(rows[count:])
    return random.permutation(train), random.permutation(test)


SOURCE = Source("1,437 + 360 digits of 8 x 8, shipped inside scikit-learn", load_digits)
