"""Frames of pandas, and data sets with named columns (Hugging Face's among them), as everybody's data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedstein.data.holdings import divide
from fedstein.data.pixels import eight_bits
from fedstein.data.settings import DataConfig
from fedstein.data.sources import Held
from fedstein.data.sources.table import from_tables
from fedstein.data.tables import from_frame as table_of
from fedstein.data.tables import is_frame
from fedstein.errors import UserError, nearest

__all__ = ["Columns", "columns", "from_frame"]


def from_frame(
    frame: Any,
    *,
    target: str | Sequence[str],
    agent_column: str | None = None,
    features: Sequence[str] = (),
    test: Any = None,
    center: Mapping[str, float] | None = None,
    scale: Mapping[str, float] | None = None,
    standardise: str | None = None,
    agents: int = 10,
    partition: str = "iid",
    seed: int = 0,
) -> Held:
    """Everybody's data from a DataFrame, for `fedstein.train`: a row an example, as with `data.name = "table"`.

    Args:
        frame: the rows.
        target: the column to learn, or several; texts are classes.
        agent_column: the column that says whose row it is; `partition` divides them if left out.
        features: the columns of the inputs; all others if left out.
        test: a frame of test rows, or the share of everybody's rows that is drawn for testing; 0.2 if left out.
        center: what is taken from columns of numbers; public constants, never the agents' means.
        scale: what they are then divided by; likewise.
        standardise: "test": those that are left out are those of the test frame, which no agent holds.
        agents: how many agents, where no column says.
        partition: how the rows are divided among them.
        seed: of the division.

    Returns:
        Data with `agents`, `test`, `class_names` and `agent_names`.
    """
    if not is_frame(frame):
        raise UserError(f"The 'frame' must be a DataFrame of pandas. Got {type(frame).__name__} instead.")
    settings: dict[str, Any] = {
        "name": "table",
        "target": [target] if isinstance(target, str) else list(target),
        "features": list(features),
        "agent_column": agent_column,
        "test": None if is_frame(test) else test,
        "center": dict(center or {}),
        "scale": dict(scale or {}),
        "standardise": standardise,
        "agents": agents,
        "partition": partition,
        "seed": seed,
    }
    data = DataConfig(**settings)
    came = from_tables(data, table_of(frame, "the frame"), table_of(test, "the test frame") if is_frame(test) else None)
    return came if isinstance(came, Held) else divide(came, data, seed)


class Columns:
    """Two columns of a data set whose items have names for their parts: pairs (x, y)."""

    def __init__(self, data: Any, x: str, y: str) -> None:
        self._data, self._x, self._y = data, x, y
        self.class_names: tuple[str, ...] = _class_names(data, y)

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, place: int) -> tuple[Any, Any]:
        item = self._data[place]
        for name in (self._x, self._y):
            if name not in item:
                raise UserError(f"The data has no column '{name}'. {nearest(name, item)}")
        return _array(item[self._x]), item[self._y]


def columns(data: Any, x: str, y: str) -> Columns:
    """A data set for `fedstein.train` from one with named columns, for instance of Hugging Face's `datasets`.

    Args:
        data: it has `len`, and gives a mapping for a number.
        x: the column of the inputs; images become (channels, height, width).
        y: the column of the targets.

    >>> len(columns([{"pixels": [0.0, 1.0], "label": 3}], x="pixels", y="label"))
    1
    """
    if not hasattr(data, "__getitem__") or not hasattr(data, "__len__"):
        raise UserError(
            f"The 'data' must have a length, and give an item for a number. Got {type(data).__name__} instead. "
            "A stream is read into one first: list(stream)."
        )
    names = getattr(data, "column_names", None)
    if isinstance(names, list) and (missing := [name for name in (x, y) if name not in names]):
        raise UserError(f"The data has no column '{missing[0]}'. {nearest(missing[0], names)}")
    if hasattr(data, "select_columns"):  # others need not be read
        data = data.select_columns([x, y])
    return Columns(data, x, y)


def _class_names(data: Any, y: str) -> tuple[str, ...]:
    """As Hugging Face's class labels have them."""
    features = getattr(data, "features", None)
    label = features.get(y) if isinstance(features, Mapping) else None
    names = getattr(label, "names", None)
    return tuple(names) if isinstance(names, list) and all(isinstance(name, str) for name in names) else ()


def _array(value: Any) -> Any:
    if not hasattr(value, "getbands"):  # an image of pillow
        return value
    value = eight_bits(value, "An image")
    pixels = np.array(value if value.mode in ("L", "RGB") else value.convert("RGB"), dtype=np.uint8)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
