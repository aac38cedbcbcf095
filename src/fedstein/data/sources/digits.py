"""scikit-learn's handwritten digits: small, and there wherever scikit-learn is."""

from __future__ import annotations

from pathlib import Path

import torch

from fedstein.data.examples import Dataset, Examples
from fedstein.data.sources.base import Source
from fedstein.extras import needs_extra

__all__ = ["SOURCE", "load_digits"]


def load_digits(path: Path | None = None) -> Dataset:
    """All 1,797 digits as (n, 1, 8, 8) in 0..1, a fifth of each class held out for testing."""
    with needs_extra("report", "The digits"):
        from sklearn.datasets import load_digits as load
        from sklearn.model_selection import train_test_split

    x, y = load(return_X_y=True)
    parts = train_test_split(x.reshape(-1, 1, 8, 8) / 16.0, y, test_size=360, random_state=0, stratify=y)
    x_train, x_test = (torch.from_numpy(part).float() for part in parts[:2])
    y_train, y_test = (torch.from_numpy(part).long() for part in parts[2:])
    return Dataset("digits", Examples(x_train, y_train), Examples(x_test, y_test), classes=10)


SOURCE = Source("1,437 + 360 digits of 8 x 8, shipped inside scikit-learn", load_digits)
