"""Inputs that are read when they are wanted: a data set need not fit into memory, and augmentation happens each time.

Whatever a data set draws while it gives an item (from torch's, numpy's or Python's global generators) is drawn from a
seed of that item and of the moment. So a run is the same again whoever reads, in whatever process, and after any stop.
"""

from __future__ import annotations

import os
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedstein.errors import UserError
from fedstein.streams import seeded

__all__ = ["MEMORY", "LazyRows", "Reader", "Rows", "chunks", "item_seed", "joined", "loaded", "spooled"]

MEMORY = 256 * 2**20  # bytes: if everybody's inputs together are fewer, they are read once, and stay
CHUNK = 256  # rows at a time where all are gone through

Reader = Callable[[Sequence[int]], Tensor]
"""Raw inputs (B, ...) of some items, in their order."""


@dataclass(frozen=True, repr=False, eq=False)
class LazyRows:
    """Looks like a tensor (n, ...) as far as shape, type, length and indexing go.

    Args:
        reader: gives raw inputs.
        places: (n,) numbers of the items.
        row: the shape of one input, as indexing gives it.
        dtype: of the inputs, as indexing gives them.
        what: the name in messages.
        draws: something is drawn for an item each time.
        made: raw inputs (B, ...) to those that a module takes; None: they are the same.
        after: what is frozen before the model, where it has to be gone through each time.
    """

    reader: Reader
    places: Tensor
    row: torch.Size
    dtype: torch.dtype
    what: str
    draws: bool = False
    made: Callable[[Tensor], Tensor] | None = None
    after: Callable[[Tensor], Tensor] | None = None

    def __len__(self) -> int:
        return len(self.places)

    @property
    def shape(self) -> torch.Size:
        """(n, ...)."""
        return torch.Size([len(self), *self.row])

    def __getitem__(self, where: Tensor | slice | int) -> Tensor:
        """Inputs as nobody in particular sees them: whatever is drawn for them comes from the same seed."""
        return self.read(slice(where, where + 1), 0)[0] if isinstance(where, int) else self.read(where, 0)

    def read(self, where: Tensor | slice, seed: int) -> Tensor:
        """(B, ...) the inputs at `where`.

        Args:
            where: positions, or a slice of them.
            seed: of whatever the data set draws.

        Raises:
            UserError: they are not what the first ones were like.
        """
        places = self.places[where].tolist()
        if not places:
            return torch.empty(0, *self.row, dtype=self.dtype)
        if self.draws:
            with seeded() as seed_with:
                x = torch.cat([self._one(place, seed, seed_with) for place in places])
        else:
            x = self.reader(places)
        x = x if self.made is None else self.made(x)
        if x.is_floating_point() and not torch.isfinite(x).all():
            row = places[int((~torch.isfinite(x)).reshape(len(x), -1).any(1).nonzero()[0])]
            raise UserError(f"{self.what}: x has NaN or infinity, in example {row}. Clean or impute it first.")
        x = x if self.after is None else self.after(x)
        if x.shape != (len(places), *self.row):
            raise UserError(
                f"{self.what}: every x must have the shape {tuple(self.row)}, as the first has. Got "
                f"{tuple(x.shape[1:])} among the examples {places[0]}..{places[-1]}."
            )
        return x

    def some(self, where: Tensor) -> LazyRows:
        """The same for some of the positions; nothing is read."""
        return replace(self, places=self.places[where])

    def _one(self, place: int, seed: int, seed_with: Callable[[int], None]) -> Tensor:
        seed_with(item_seed(seed, place))
        return self.reader([place])

    def __repr__(self) -> str:
        return f"LazyRows{tuple(self.shape)}"


Rows = Tensor | LazyRows
"""Inputs (n, ...): in memory, or read when they are wanted."""


def item_seed(seed: int, place: int) -> int:
    """Of what is drawn for an item at a moment."""
    return (seed * 0x9E3779B97F4A7C15 + place * 0xD1B54A32D192ED03 + 1) % 2**63


def chunks(x: Rows, size: int) -> Iterator[Tensor]:
    """(B, ...) inputs, at most `size` at a time; one that is empty if there are none."""
    for begin in range(0, max(len(x), 1), size):
        yield x[begin : begin + size]


def loaded(x: Rows) -> Tensor:
    """All of them, in memory."""
    return x if isinstance(x, Tensor) else x[:]


def joined(parts: Sequence[Rows]) -> Rows:
    """The rows of several, one after the other."""
    tensors = [part for part in parts if isinstance(part, Tensor)]
    if len(tensors) == len(parts):
        return torch.cat(tensors)
    lazy = next(part for part in parts if isinstance(part, LazyRows))
    several = _Several([part for part in parts if len(part)])
    draws = any(isinstance(part, LazyRows) and part.draws for part in parts)
    # What the parts make of an item is done by them.
    return replace(
        lazy, reader=several, places=torch.arange(sum(map(len, parts))), draws=draws, made=None, after=None
    )  # fmt: skip


class _Several:
    """Reads in several, which are numbered through."""

    def __init__(self, parts: Sequence[Rows]) -> None:
        self._parts = parts
        self._ends = np.cumsum([len(part) for part in parts]).tolist()

    def __call__(self, places: Sequence[int]) -> Tensor:
        return torch.stack([self._one(place) for place in places])

    def _one(self, place: int) -> Tensor:
        at = bisect_right(self._ends, place)
        part, inside = self._parts[at], place - (self._ends[at - 1] if at else 0)
        if isinstance(part, Tensor):
            return part[inside]
        # Whoever reads all of them has seeded for this item.
        return replace(part, draws=False).read(slice(inside, inside + 1), 0)[0]


def spooled(parts: Iterable[Tensor]) -> Tensor:
    """Rows that come in parts, as one tensor that the system keeps on disk where memory is short.

    The file has no name: it is gone with the process, however that ends.

    Args:
        parts: (B, ...) each, of one shape and type; at least one.
    """
    first: Tensor | None = None
    rows = 0
    with tempfile.TemporaryFile(prefix="fedstein-") as file:
        for part in parts:
            first = part[:1] if first is None else first
            file.write(part.contiguous().numpy().tobytes())
            rows += len(part)
        assert first is not None
        file.flush()
        shape, dtype = (rows, *first.shape[1:]), first.numpy().dtype
        if rows == 0 or os.fstat(file.fileno()).st_size == 0:
            return torch.empty(shape, dtype=first.dtype)
        # Copy on write: torch wants to be allowed to write, and nobody does.
        return torch.from_numpy(np.memmap(file, dtype=dtype, mode="c", shape=shape))
