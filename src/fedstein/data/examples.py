"""Examples: the one shape in which data travels through fedstein, checked once on the way in."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedstein.errors import UserError

__all__ = ["Dataset", "Examples", "as_examples", "as_inputs", "as_numbers", "as_taken", "read_examples"]


@dataclass(frozen=True)
class Examples:
    """Inputs `x` (n, ...) of float32, or int64 if they are token ids; targets `y` (n, ...), as a likelihood wants."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.x)

    def take(self, indices: Tensor) -> Examples:
        """The examples at `indices`."""
        return Examples(self.x[indices], self.y[indices])

    def none(self) -> Examples:
        """No examples, of the same shape."""
        return self.take(torch.arange(0))

    def __repr__(self) -> str:
        """Its shape: nobody wants to see anybody's examples in a log or a notebook."""
        return f"Examples({len(self)} of shape {tuple(self.x.shape[1:])})"


@dataclass(frozen=True)
class Dataset:
    """A data set as its source gives it."""

    name: str
    train: Examples
    test: Examples
    classes: int | None  # None: the targets are no labels
    class_names: tuple[str, ...] = ()  # what people call them
    settings: Mapping[str, Any] = field(default_factory=dict)  # of `data`, found when it was read: a run keeps them
    notes: tuple[str, ...] = ()  # what was made of it, for people


def as_examples(data: Any, what: str, tokens: bool = False) -> Examples:
    """Check and convert (x, y) arrays or tensors, or a map-style torch data set, into `Examples`.

    Args:
        data: what the user brought.
        what: its name in messages, for instance "agents[3]".
        tokens: `x` are whole numbers that name something, and stay so (int64); else they are made float32.

    Raises:
        UserError: several inputs, shapes that do not fit, no examples, NaN or infinity. Whether the targets fit a
            likelihood is that one's to say.
    """
    return as_taken(read_examples(data, what), what, tokens)


def as_taken(raw: Examples, what: str, tokens: bool) -> Examples:
    """Examples with inputs as a module takes them.

    Args:
        raw: as they were read.
        what: their name in messages.
        tokens: the inputs are token ids.
    """
    x = _whole(raw.x, f"{what}: x") if tokens else as_numbers(raw.x)
    if not torch.isfinite(x).all():
        row = int((~torch.isfinite(x)).reshape(len(x), -1).any(1).nonzero()[0])
        raise UserError(f"{what}: x has NaN or infinity, first in row {row}. Clean or impute it first.")
    return Examples(x, raw.y)


def read_examples(data: Any, what: str) -> Examples:
    """What a user brought, with inputs of whatever type they are: as long as it is not known what the module takes.

    Args:
        data: (x, y), or a map-style data set.
        what: its name in messages.
    """
    if isinstance(data, Examples):
        x, y = data.x, data.y
    elif isinstance(data, tuple | list) and len(data) == 2:
        y = _tensor(data[1], f"{what}: y")
        _refuse_several(data[0], what, y)
        x = _tensor(data[0], f"{what}: x")
    elif hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        if len(data) == 0:
            raise UserError(f"{what} has no examples. Give every agent at least one, or leave the agent out.")
        try:
            items = [_pair(data[i], what) for i in range(len(data))]
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
    if y.is_floating_point() and not torch.isfinite(y).all():
        raise UserError(f"{what}: y has NaN or infinity. Clean or impute it first.")
    return Examples(x, y)


def as_inputs(value: Any, what: str, shape: torch.Size, tokens: bool = False) -> Tensor:
    """Check and convert inputs to predict.

    Args:
        value: (n, ...) numbers, as many a row as `shape` has.
        what: its name in messages.
        shape: of one input.
        tokens: they are token ids, and stay whole numbers (int64).
    """
    x = _tensor(value, what)
    x = _whole(x, what) if tokens else as_numbers(x)
    if x.dim() < 2 or len(x) == 0 or x[0].numel() != shape.numel():
        raise UserError(f"{what} must be (n, ...) with {shape.numel()} numbers a row. Got {tuple(x.shape)}.")
    if not torch.isfinite(x).all():
        raise UserError(f"{what} has NaN or infinity. Clean or impute it first.")
    return x.reshape(len(x), *shape)


def as_numbers(x: Tensor) -> Tensor:
    """Inputs as float32. Bytes are taken for images, and said to be: a factor of 255 must never come in silently."""
    if x.dtype != torch.uint8:
        return x.float()
    warnings.warn("Inputs of bytes (uint8) are divided by 255, as images are. Give floats to keep them.", stacklevel=3)
    return x.float() / 255.0


def _pair(item: Any, what: str) -> tuple[Any, ...]:
    if isinstance(item, Mapping):
        names = ", ".join(map(repr, item))
        raise UserError(f"{what} must have items that are pairs (x, y). Got a mapping with {names} instead.")
    pair = tuple(item)[:2]
    _refuse_several(pair[0], what)
    return pair


def _refuse_several(x: Any, what: str, y: Tensor | None = None) -> None:
    """Refuse an x of several parts, as a module with several inputs would take them."""
    parts = isinstance(x, tuple) and all(isinstance(part, Tensor | np.ndarray) and part.ndim for part in x)
    rows = y is not None and y.dim() > 0 and parts and len(x) == len(y)  # a tuple of rows is one array
    if isinstance(x, Mapping) or (parts and not rows):
        raise UserError(
            f"{what}: x must be one array or tensor. Got a {type(x).__name__} of {len(x)} instead. A module with "
            "several inputs must take them as one tensor, and part it itself."
        )


def _whole(x: Tensor, what: str) -> Tensor:
    if x.is_floating_point() and not (torch.isfinite(x).all() and torch.equal(x, x.round())):
        raise UserError(f"{what} must be token ids, which are whole numbers. Got {x.dtype} with others instead.")
    return x.long()


def _tensor(value: Any, what: str) -> Tensor:
    try:
        tensor = torch.as_tensor(np.asarray(value) if not isinstance(value, Tensor) else value).detach().cpu()
        if tensor.is_complex():
            raise TypeError("complex numbers")
        return tensor
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{what} must be numbers in an array or a tensor: {error}.") from error
