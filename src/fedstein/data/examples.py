"""Examples: the one shape in which data travels through fedstein, checked on the way in.

Inputs are in memory, or read when they are wanted (`rows.py`).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from fedstein.data.reading import as_tensor, no_examples, read_items, read_stream, refuse_several
from fedstein.data.rows import MEMORY, LazyRows, Rows
from fedstein.data.tables import is_frame
from fedstein.errors import UserError

__all__ = [
    "Dataset",
    "Examples",
    "Takes",
    "as_examples",
    "as_inputs",
    "as_taken",
    "fits_shape",
    "of_one_kind",
    "read_examples",
]

Takes = Literal["numbers", "ids", "either", "mixed"]
"""What a network takes.

numbers: float32. Bytes are images, and divided by 255.
ids:     int64 alone: whole numbers that name something.
either:  float32 as well as int64, and looks something up by it: whole numbers stay what they are.
mixed:   float32 alone, and looks something up by some of it.
"""


@dataclass(frozen=True)
class Examples:
    """Inputs `x` (n, ...) and targets `y` (n, ...).

    A source gives both as they are. Only when the network is known, `x` becomes what that takes, float32 or int64, and
    `y` what the likelihood does: so an id stays the id that it is.
    """

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
    contents: Mapping[str, Mapping[str, Path | str]] = field(default_factory=dict)  # of its files (contents.py)


def as_examples(data: Any, what: str, takes: Takes = "numbers", memory: int = MEMORY) -> Examples:
    """Check and convert (x, y) arrays or tensors, or a data set of torch, into `Examples` as a network takes them.

    Args:
        data: what the user brought.
        what: its name in messages, for instance "agents[3]".
        takes: what the network takes.
        memory: bytes that the inputs of a data set may take to be read once and stay.

    Raises:
        UserError: several inputs, shapes that do not fit, no examples, NaN or infinity. Whether the targets fit a
            likelihood is that one's to say.
    """
    return as_taken(read_examples(data, what, memory), what, takes)


def as_taken(raw: Examples, what: str, takes: Takes) -> Examples:
    """Examples with inputs as a network takes them.

    Args:
        raw: as they were read.
        what: their name in messages.
        takes: what the network takes.
    """
    x = raw.x
    if isinstance(x, LazyRows):
        if x.made is not None:
            return raw
        if x.dtype == torch.uint8 and takes == "numbers":
            _say_scaled()
        make = partial(_taken, what=f"{what}: x", takes=takes, say=False)
        return Examples(replace(x, made=make, dtype=make(torch.empty(0, dtype=x.dtype)).dtype), raw.y)
    return Examples(_taken(x, f"{what}: x", takes), raw.y)


def of_one_kind(several: Mapping[str, Examples]) -> dict[str, Examples]:
    """Everybody's raw inputs of one kind, so that they may be put together.

    Bytes are images, and no others are; whole numbers of one and fractions of another become float64, which has both.

    Args:
        several: by their names in messages.
    """
    kinds = {name: data.x.dtype for name, data in several.items()}
    bytes_in = [name for name, kind in kinds.items() if kind == torch.uint8]
    if bytes_in and len(bytes_in) < len(kinds):
        other = next(name for name in kinds if name not in bytes_in)
        raise UserError(
            f"All inputs must be of one kind. {bytes_in[0]} has bytes (uint8), which are divided by 255, and {other} "
            f"has {str(kinds[other]).removeprefix('torch.')}, which is taken as it is. Give all of them alike."
        )
    if len({kind.is_floating_point for kind in kinds.values()}) < 2:
        return dict(several)
    return {name: _with_fractions(data, name) for name, data in several.items()}


def _with_fractions(data: Examples, what: str) -> Examples:
    if data.x.dtype.is_floating_point:
        return data
    if not isinstance(data.x, Tensor):
        raise UserError(
            f"All inputs must be of one kind. {what} has whole numbers, and others fractions. Make all floats."
        )
    _refuse_rounded(data.x, f"{what}: x", torch.float64)
    return Examples(data.x.double(), data.y)


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
    if isinstance(x, Tensor) and x.is_floating_point():
        _refuse_gaps(x.float(), f"{what}: x")  # float32 has no 1e300
    return Examples(x, y)


def as_inputs(value: Any, what: str, shape: torch.Size, takes: Takes = "numbers") -> Rows:
    """Check and convert inputs to predict.

    Args:
        value: (n, ...) numbers, as many a row as `shape` has; or rows of that shape, which are read when wanted.
        what: its name in messages.
        shape: of one input.
        takes: what the network takes.
    """
    if isinstance(value, LazyRows) and value.row == shape:
        return value
    x = _taken(as_tensor(value, what), what, takes)
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


def _taken(x: Tensor, what: str, takes: Takes, say: bool = True) -> Tensor:
    """Inputs as a network takes them.

    Args:
        x: of any type.
        what: their name in messages.
        takes: what the network takes.
        say: that something is made of them; a factor of 255 must never come in silently.
    """
    if takes == "ids":
        return _whole(x, what)
    if takes == "numbers":
        if say and x.dtype == torch.uint8:
            _say_scaled()
        elif say and not x.is_floating_point() and x.dtype != torch.bool and _largest(x) > _exact(torch.float32):
            warnings.warn(
                f"Whole numbers beyond {_exact(torch.float32):,} lose digits as float32. Scale the inputs.",
                stacklevel=3,
            )
        return x.float() / 255.0 if x.dtype == torch.uint8 else x.float()
    if x.dtype == torch.uint8:
        raise UserError(
            f"{what} is of bytes (uint8), which are images, divided by 255; and this network looks something up in an "
            "embedding. Give ids as int64, or images as floats."
        )
    if takes == "either" and not x.is_floating_point():
        return x.long()
    coarse = x.is_floating_point() and _exact(x.dtype) < _exact(torch.float32)
    _refuse_rounded(x, what, x.dtype if coarse else torch.float32)
    return x.float()


def _whole(x: Tensor, what: str) -> Tensor:
    if x.is_floating_point():
        if not (torch.isfinite(x).all() and torch.equal(x, x.round())):
            raise UserError(f"{what} must be token ids, which are whole numbers. Got {x.dtype} with others instead.")
        _refuse_rounded(x, what, x.dtype)
    return x.long()


def _refuse_rounded(x: Tensor, what: str, kind: torch.dtype) -> None:
    """Whole numbers that a type has not: something else would be looked up."""
    whole = x[(x == x.round()) & x.isfinite()] if x.is_floating_point() else x
    if (most := _largest(whole)) >= _exact(kind):
        name = str(kind).removeprefix("torch.")
        raise UserError(
            f"{what} has whole numbers of {_exact(kind):,} and more (up to {most:,}), not all of which {name} has: "
            "another id might be looked up. Give ids as int64 to a network that takes them so; scale what is no id."
        )


def _exact(kind: torch.dtype) -> int:
    """Up to here a type has every whole number: 2^24 for float32."""
    return int(2 / torch.finfo(kind).eps)


def _largest(x: Tensor) -> int:
    """The largest whole number, whatever its sign; 0 if there is none."""
    return max(int(x.max()), -int(x.min())) if x.numel() else 0


def _refuse_gaps(x: Tensor, what: str) -> None:
    if not torch.isfinite(x).all():
        row = int((~torch.isfinite(x)).reshape(len(x), -1).any(1).nonzero()[0])
        raise UserError(f"{what} has NaN or infinity, first in row {row}. Clean or impute it first.")


def _say_scaled() -> None:
    warnings.warn("Inputs of bytes (uint8) are divided by 255, as images are. Give floats to keep them.", stacklevel=4)
