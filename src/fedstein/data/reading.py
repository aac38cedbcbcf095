"""Data sets of torch as people have them: map-style or iterable, in memory or far larger, with augmentation or not.

Every item is gone through once, because everybody's targets have to be known. What is small and always the same then
stays in memory; the rest is read again whenever it is wanted (`rows.py`).
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Subset, TensorDataset

from fedstein.data import rows
from fedstein.data.rows import LazyRows, Rows, item_seed, spooled
from fedstein.errors import UserError
from fedstein.streams import seeded

__all__ = ["as_tensor", "no_examples", "read_items", "read_stream", "refuse_several"]

_TRIED = 8  # items that are looked at twice


def read_items(data: Any, what: str, memory: int) -> tuple[Rows, Tensor]:
    """The inputs and targets of a map-style data set.

    Args:
        data: it has `len`, and gives (x, y) for a number.
        what: its name in messages.
        memory: bytes that its inputs may take, as float32, to stay.
    """
    count = len(data)
    if count == 0:
        raise no_examples(what)
    if tensors := _tensors_of(data):
        return tensors
    x: list[Tensor] | None = []
    first, targets, size, draws = None, [], 0, False
    with seeded() as seed_with:
        for place in range(count):
            seed_with(item_seed(0, place))
            before = None if draws else _random_state()
            row, target = _item(data, place, what)
            draws = draws or before != _random_state()
            targets.append(target)
            first, size = (row if first is None else first), size + 4 * row.numel()
            if draws or size > memory:
                x = None
            elif x is not None:
                x.append(row)
        own = _differs(data, x, seed_with, what)
        if draws or own:
            _refuse_moving_targets(data, targets, seed_with, what)
    assert first is not None
    if own:
        warnings.warn(
            f"{what} gives something else for the same item each time, from random numbers of its own: a run with it "
            "cannot be repeated. Draw from torch's, numpy's or Python's global generators instead.",
            stacklevel=2,
        )
    y = _stacked(targets, f"{what}: y")
    if x is not None and not own:
        return _stacked(x, f"{what}: x"), y
    return LazyRows(_Items(data, what), torch.arange(count), first.shape, first.dtype, what, draws or own), y


def read_stream(data: Iterable[Any], what: str, memory: int) -> tuple[Rows, Tensor]:
    """The inputs and targets of an iterable data set: gone through once, and kept on disk where they are many.

    Args:
        data: gives pairs (x, y), and ends.
        what: its name in messages.
        memory: bytes that its inputs may take, as float32, to stay.
    """
    targets: list[Tensor] = []

    def parts() -> Iterator[Tensor]:
        part: list[Tensor] = []
        first: Tensor | None = None
        for item in data:
            x, y = pair_of(item, what)
            part.append(as_tensor(x, f"{what}: x"))
            targets.append(as_tensor(y, f"{what}: y"))
            first = part[0] if first is None else first
            if first.shape != part[-1].shape or first.dtype != part[-1].dtype:
                raise UserError(f"{what}: all x must have one shape and type.")
            if len(part) == rows.CHUNK:
                yield torch.stack(part)
                part = []
        if part:
            yield torch.stack(part)
        elif first is None:
            raise no_examples(what)

    if isinstance(data, DataLoader):
        raise UserError(f"{what} is a DataLoader, which gives batches. Give its data set: loader.dataset.")
    with seeded() as seed_with:
        seed_with(item_seed(0, 0))
        x = spooled(parts())
    y = _stacked(targets, f"{what}: y")
    if 4 * x.numel() <= memory:
        return x.clone(), y
    return LazyRows(_Mapped(x), torch.arange(len(x)), x.shape[1:], x.dtype, what), y


class _Mapped:
    """Reads in a tensor that is on disk."""

    def __init__(self, x: Tensor) -> None:
        self._x = x

    def __call__(self, places: Sequence[int]) -> Tensor:
        return self._x[torch.as_tensor(list(places))]


class _Items:
    """Reads in a map-style data set."""

    def __init__(self, data: Any, what: str) -> None:
        self._data, self._what = data, what

    def __call__(self, places: Sequence[int]) -> Tensor:
        return _stacked([_item(self._data, place, self._what)[0] for place in places], f"{self._what}: x")


def _tensors_of(data: Any) -> tuple[Tensor, Tensor] | None:
    """Of what is in memory as tensors already."""
    if type(data) is TensorDataset and len(data.tensors) == 2:  # one of its kind may do more to an item
        return data.tensors[0].detach().cpu(), data.tensors[1].detach().cpu()
    if type(data) is Subset and (whole := _tensors_of(data.dataset)):
        places = torch.as_tensor(list(data.indices), dtype=torch.int64)
        return whole[0][places], whole[1][places]
    return None


def _differs(data: Any, x: list[Tensor] | None, seed_with: Any, what: str) -> bool:
    """Whether an item is another one when it is asked for again, although nothing was drawn that can be seen."""
    for place in range(min(_TRIED, len(data))):
        seed_with(item_seed(0, place))
        again = _item(data, place, what)[0]
        seed_with(item_seed(0, place))
        if not _same(x[place] if x is not None else _item(data, place, what)[0], again):
            return True
    return False


def _refuse_moving_targets(data: Any, targets: Sequence[Tensor], seed_with: Any, what: str) -> None:
    """Targets are read once, inputs each time: a target that is drawn would not belong to its input."""
    for place in range(min(_TRIED, len(data))):
        seed_with(item_seed(1, place))
        if not _same(_item(data, place, what)[1], targets[place]):
            raise UserError(
                f"{what} draws the target of an item, y, as well as its input (mixup is such a thing): the two are "
                "read at different times. Draw inputs alone, or give each drawn example an item of its own."
            )


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num())


def _random_state() -> tuple[bytes, bytes, int, Any]:
    """Of the global generators that a data set may draw from."""
    _, keys, place, *_ = np.random.get_state()  # noqa: NPY002  (the one that data sets use)
    return torch.random.get_rng_state().numpy().tobytes(), np.asarray(keys).tobytes(), int(place), random.getstate()


def _item(data: Any, place: int, what: str) -> tuple[Tensor, Tensor]:
    try:
        x, y = pair_of(data[place], what)
    except UserError:
        raise
    except (KeyError, IndexError, TypeError) as error:
        raise UserError(f"{what} must be a data set whose items are pairs (x, y) of one shape: {error}.") from error
    except Exception as error:  # whatever a user's code raises
        raise UserError(f"{what}: item {place} cannot be read: {type(error).__name__}: {error}.") from error
    return as_tensor(x, f"{what}: x"), as_tensor(y, f"{what}: y")


def pair_of(item: Any, what: str) -> tuple[Any, Any]:
    """The x and y of an item."""
    if isinstance(item, Mapping):
        names = ", ".join(map(repr, item))
        raise UserError(
            f"{what} must have items that are pairs (x, y). Got a mapping with {names} instead. Say which is which: "
            "fedstein.data.columns(data, x=..., y=...)."
        )
    pair = tuple(item)[:2]
    if len(pair) < 2:
        raise UserError(f"{what} must have items that are pairs (x, y). Got {len(pair)} part instead.")
    refuse_several(pair[0], what)
    return pair


def refuse_several(x: Any, what: str, y: Tensor | None = None) -> None:
    """Refuse an x of several parts, as a module with several inputs would take them.

    Args:
        x: of an item, or of all.
        what: its name in messages.
        y: of all, if `x` is.
    """
    parts = isinstance(x, tuple) and all(isinstance(part, Tensor | np.ndarray) and part.ndim for part in x)
    several = y is not None and y.dim() > 0 and parts and len(x) == len(y)  # a tuple of rows is one array
    if isinstance(x, Mapping) or (parts and not several):
        raise UserError(
            f"{what}: x must be one array or tensor. Got a {type(x).__name__} of {len(x)} instead. A module with "
            "several inputs must take them as one tensor, and part it itself."
        )


def no_examples(what: str) -> UserError:
    """What to raise where an agent has none."""
    return UserError(f"{what} has no examples. Give every agent at least one, or leave the agent out.")


def as_tensor(value: Any, what: str) -> Tensor:
    """Numbers in whatever array they are."""
    try:
        tensor = torch.as_tensor(np.asarray(value) if not isinstance(value, Tensor) else value).detach().cpu()
        if tensor.is_complex():
            raise TypeError("complex numbers")
        if tensor.dtype in (torch.uint16, torch.uint32, torch.uint64):  # torch can do little with them
            if tensor.dtype == torch.uint64 and bool((tensor.view(torch.int64) < 0).any()):
                raise TypeError("whole numbers beyond int64")
            return tensor.to(torch.int64)
        return tensor
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{what} must be numbers in an array or a tensor: {error}.") from error


def _stacked(several: Sequence[Tensor], what: str) -> Tensor:
    try:
        return torch.stack(list(several))
    except (RuntimeError, TypeError) as error:
        raise UserError(f"{what}: all must have one shape and type: {error}.") from error
