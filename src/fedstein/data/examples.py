"""Examples: the one shape in which data travels through fedstein, checked on the way in.

Inputs are in memory, or read when they are wanted (`rows.py`).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fedstein.data.reading import as_tensor, no_examples, read_items, read_stream, refuse_several
from fedstein.data.rows import MEMORY, LazyRows, Rows
from fedstein.data.tables import is_frame
from fedstein.errors import UserError

__all__ = ["Dataset", "Examples", "as_examples", "as_inputs", "as_numbers", "as_taken", "fits_shape", "read_examples"]


_EXACT = 2**24  # float32 has every whole number up to here


@dataclass(frozen=True)
class Examples:
    """Inputs `x` (n, ...) of float32, or int64 if they are token ids; targets `y` (n, ...), as a likelihood wants."""

    x: Rows
    y: Tensor

    def __len__(self) -> int:
        return len(self.x)

    def take(self, indices: Tensor) -> Examples:
        """The examples at `indices`."""
        x = self.x.some(indices) if isinstance(self.x, LazyRows) else self.x[indices]
        return Examples(x, self.y[indices])

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


def as_examples(data: Any, what: str, tokens: bool = False, memory: int = MEMORY) -> Examples:
    """Check and convert (x, y) arrays or tensors, or a data set of torch, into `Examples`.

    Args:
        data: what the user brought.
        what: its name in messages, for instance "agents[3]".
        tokens: `x` are whole numbers that name something, and stay so (int64); else they are made float32.
        memory: bytes that the inputs of a data set may take to be read once and stay.

    Raises:
        UserError: several inputs, shapes that do not fit, no examples, NaN or infinity. Whether the targets fit a
            likelihood is that one's to say.
    """
    return as_taken(read_examples(data, what, memory), what, tokens)


def as_taken(raw: Examples, what: str, tokens: bool) -> Examples:
    """Examples with inputs as a module takes them.

    Args:
        raw: as they were read.
        what: their name in messages.
        tokens: the inputs are token ids.
    """
    if isinstance(raw.x, LazyRows):
        return Examples(_lazily_taken(raw.x, f"{what}: x", tokens), raw.y)
    x = _whole(raw.x, f"{what}: x") if tokens else as_numbers(raw.x)
    if not torch.isfinite(x).all():
        row = int((~torch.isfinite(x)).reshape(len(x), -1).any(1).nonzero()[0])
        raise UserError(f"{what}: x has NaN or infinity, first in row {row}. Clean or impute it first.")
    return Examples(x, raw.y)


def _lazily_taken(x: LazyRows, what: str, tokens: bool) -> LazyRows:
    if x.made is not None:
        return x
    if tokens:
        return replace(x, made=partial(_whole, what=what), dtype=torch.int64)
    if x.dtype == torch.uint8:
        _say_scaled()
    return replace(x, made=_numbers, dtype=torch.float32)


def read_examples(data: Any, what: str, memory: int = MEMORY) -> Examples:
    """What a user brought, with inputs of whatever type they are: as long as it is not known what the module takes.

    Args:
        data: (x, y), or a data set of torch, map-style or iterable.
        what: its name in messages.
        memory: bytes that the inputs of a data set may take to be read once and stay.
    """
    x: Rows
    if isinstance(data, Examples):
        x, y = data.x if isinstance(data.x, LazyRows) else data.x.cpu(), data.y.cpu()
    elif isinstance(data, tuple | list) and len(data) == 2:
        y = as_tensor(data[1], f"{what}: y")
        refuse_several(data[0], what, y)
        x = as_tensor(data[0], f"{what}: x")
    elif is_frame(data):
        raise UserError(
            f"{what} is a frame: say which column is learnt, fedstein.from_frame(frame, target=..., agent_column=...)."
        )
    elif hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        x, y = read_items(data, what, memory)
    elif hasattr(data, "__iter__") and not isinstance(data, str | bytes | Mapping):
        x, y = read_stream(data, what, memory)
    else:
        raise UserError(f"{what} must be a pair (x, y) or a data set of torch. Got {type(data).__name__} instead.")
    if len(x.shape) == 0 or y.dim() == 0 or len(x) != len(y):
        raise UserError(f"{what} must have as many x as y. Got shapes {tuple(x.shape)} and {tuple(y.shape)} instead.")
    if len(x) == 0:
        raise no_examples(what)
    if y.is_floating_point() and not torch.isfinite(y).all():
        raise UserError(f"{what}: y has NaN or infinity. Clean or impute it first.")
    return Examples(x, y)


def as_inputs(value: Any, what: str, shape: torch.Size, tokens: bool = False) -> Rows:
    """Check and convert inputs to predict.

    Args:
        value: (n, ...) numbers, as many a row as `shape` has; or rows of that shape, which are read when wanted.
        what: its name in messages.
        shape: of one input.
        tokens: they are token ids, and stay whole numbers (int64).
    """
    if isinstance(value, LazyRows) and value.row == shape:
        return value
    x = as_tensor(value, what)
    x = _whole(x, what) if tokens else as_numbers(x)
    if x.dim() < 2 or len(x) == 0 or not fits_shape(x.shape[1:], shape):
        raise UserError(
            f"{what} must be (n, {', '.join(map(str, shape))}), or flat, with {shape.numel()} numbers a row. "
            f"Got {tuple(x.shape)}."
        )
    if not torch.isfinite(x).all():
        raise UserError(f"{what} has NaN or infinity. Clean or impute it first.")
    return x.reshape(len(x), *shape)


def fits_shape(came: torch.Size, shape: torch.Size) -> bool:
    """Whether inputs are of a shape, but for sides of 1, or flat. Another order of the sides is another thing.

    >>> fits_shape(torch.Size([28, 28]), torch.Size([1, 28, 28]))
    True
    >>> fits_shape(torch.Size([8, 8, 3]), torch.Size([3, 8, 8]))
    False
    """
    sides, wanted = ([size for size in one if size != 1] for one in (came, shape))
    return sides == wanted or (len(sides) <= 1 and came.numel() == shape.numel())


def as_numbers(x: Tensor) -> Tensor:
    """Inputs as float32. Bytes are taken for images, and said to be: a factor of 255 must never come in silently."""
    if x.dtype == torch.uint8:
        _say_scaled()
    elif not x.is_floating_point() and x.dtype != torch.bool and len(x) and int(x.abs().max()) > _EXACT:
        warnings.warn(f"Whole numbers beyond {_EXACT:,} lose digits as float32. Scale the inputs.", stacklevel=3)
    return _numbers(x)


def _numbers(x: Tensor) -> Tensor:
    return x.float() / 255.0 if x.dtype == torch.uint8 else x.float()


def _say_scaled() -> None:
    warnings.warn("Inputs of bytes (uint8) are divided by 255, as images are. Give floats to keep them.", stacklevel=4)


def _whole(x: Tensor, what: str) -> Tensor:
    if x.is_floating_point() and not (torch.isfinite(x).all() and torch.equal(x, x.round())):
        raise UserError(f"{what} must be token ids, which are whole numbers. Got {x.dtype} with others instead.")
    return x.long()
