"""Examples: the one shape in which data travels through fedstein, checked once on the way in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedstein.errors import UserError

__all__ = ["Dataset", "Examples", "as_examples", "as_inputs"]


@dataclass(frozen=True)
class Examples:
    """Inputs `x` (n, ...) of float32 and targets `y` (n, ...), int64 labels for a classifier."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.x)

    def take(self, indices: Tensor) -> Examples:
        """The examples at `indices`."""
        return Examples(self.x[indices], self.y[indices])


@dataclass(frozen=True)
class Dataset:
    """A classification data set as its source gives it."""

    name: str
    train: Examples
    test: Examples
    classes: int


def as_examples(data: Any, what: str, classes: int | None = None) -> Examples:
    """Check and convert (x, y) arrays or tensors, or a map-style torch data set, into `Examples`.

    Args:
        data: what the user brought.
        what: its name in messages, for instance "agents[3]".
        classes: labels must be below this; None if `y` is not a label.

    Raises:
        UserError: shapes that do not fit, no examples, NaN or infinity, labels out of range.
    """
    if isinstance(data, Examples):
        x, y = data.x, data.y
    elif isinstance(data, tuple | list) and len(data) == 2:
        x, y = _tensor(data[0], f"{what}: x"), _tensor(data[1], f"{what}: y")
    elif hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        if len(data) == 0:
            raise UserError(f"{what} has no examples. Give every agent at least one, or leave the agent out.")
        try:
            items = [tuple(data[i])[:2] for i in range(len(data))]
            x = torch.stack([_tensor(item[0], f"{what}: x") for item in items])
            y = torch.stack([_tensor(item[1], f"{what}: y") for item in items])
        except (KeyError, IndexError, TypeError, RuntimeError) as error:
            raise UserError(f"{what} must be a data set whose items are pairs (x, y) of one shape: {error}.") from error
    else:
        raise UserError(f"{what} must be a pair (x, y) or a map-style data set. Got {type(data).__name__} instead.")
    if x.dim() == 0 or y.dim() == 0 or len(x) != len(y):
        raise UserError(f"{what} must have as many x as y. Got shapes {tuple(x.shape)} and {tuple(y.shape)} instead.")
    if len(x) == 0:
        raise UserError(f"{what} has no examples. Give every agent at least one, or leave the agent out.")
    x = x.float()
    if not torch.isfinite(x).all():
        row = int((~torch.isfinite(x)).reshape(len(x), -1).any(1).nonzero()[0])
        raise UserError(f"{what}: x has NaN or infinity, first in row {row}. Clean or impute it first.")
    if classes is not None:
        if y.dim() != 1 or (y.is_floating_point() and not torch.equal(y, y.round())):
            raise UserError(f"{what}: y must be whole-number labels of shape (n,). Got {y.dtype} {tuple(y.shape)}.")
        y = y.long()
        if int(y.min()) < 0 or int(y.max()) >= classes:
            raise UserError(
                f"{what}: labels must be in 0..{classes - 1} for {classes} classes. "
                f"Got {int(y.min())}..{int(y.max())} instead."
            )
    elif y.is_floating_point() and not torch.isfinite(y).all():
        raise UserError(f"{what}: y has NaN or infinity. Clean or impute it first.")
    return Examples(x, y)


def as_inputs(value: Any, what: str, shape: torch.Size) -> Tensor:
    """Check and convert inputs to predict: (n, ...) numbers, as many a row as `shape` has."""
    x = _tensor(value, what).float()
    if x.dim() < 2 or len(x) == 0 or x[0].numel() != shape.numel():
        raise UserError(f"{what} must be (n, ...) with {shape.numel()} numbers a row. Got {tuple(x.shape)}.")
    if not torch.isfinite(x).all():
        raise UserError(f"{what} has NaN or infinity. Clean or impute it first.")
    return x.reshape(len(x), *shape)


def _tensor(value: Any, what: str) -> Tensor:
    try:
        found = torch.as_tensor(np.asarray(value) if not isinstance(value, Tensor) else value).detach()
        if found.is_complex():
            raise TypeError("complex numbers")
        return found
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{what} must be numbers in an array or a tensor: {error}.") from error
