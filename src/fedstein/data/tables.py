"""Tables of columns: CSV and Parquet files, and frames of pandas. Nothing is unpickled, nothing is guessed silently.

A table is text or numbers, column by column. What the columns mean is said elsewhere (`sources/table.py`).
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedstein.errors import UserError, nearest
from fedstein.extras import needs_extra

__all__ = ["PARQUET", "TABLES", "Column", "Table", "from_frame", "is_frame", "read_table"]

PARQUET = (".parquet", ".pq")
TABLES = (".csv", ".tsv", ".txt", *PARQUET)
_SEPARATORS = (",", ";", "\t")
_NOTHING = frozenset({"na", "n/a", "nan", "null", "none", "-"})  # said instead of a number that is not there
_MOST_COLUMNS = 20_000
_BYTES_A_CELL = 80  # of a short text in a list


@dataclass(frozen=True, repr=False)
class Column:
    """The values of one column: texts, or numbers (float64)."""

    name: str
    values: Sequence[str] | np.ndarray
    where: str  # for messages

    def __len__(self) -> int:
        return len(self.values)

    def numbers(self) -> np.ndarray | None:
        """As float64; None if it is text.

        Raises:
            UserError: it has numbers, and gaps between them.
        """
        if isinstance(self.values, np.ndarray):
            self._refuse(~np.isfinite(self.values))
            return self.values
        gaps = np.fromiter((_is_gap(text) for text in self.values), bool, len(self))
        try:
            numbers = np.array([float("nan" if gap else text) for text, gap in zip(self.values, gaps, strict=True)])
        except ValueError:
            return None
        if gaps.all():
            self._refuse(gaps)
        self._refuse(~np.isfinite(numbers))
        return numbers

    def texts(self) -> list[str]:
        """As texts, of which none is empty. Whole numbers have no point: 3, not 3.0."""
        if isinstance(self.values, np.ndarray):
            self._refuse(~np.isfinite(self.values))
            return [str(int(value)) if value == int(value) else repr(float(value)) for value in self.values.tolist()]
        texts = [text.strip() for text in self.values]
        self._refuse(np.fromiter((not text for text in texts), bool, len(texts)))
        return texts

    def take(self, rows: np.ndarray) -> Column:
        """Some of its rows."""
        if isinstance(self.values, np.ndarray):
            return Column(self.name, self.values[rows], self.where)
        return Column(self.name, [self.values[row] for row in rows.tolist()], self.where)

    def _refuse(self, missing: np.ndarray) -> None:
        if missing.any():
            first = int(missing.nonzero()[0][0]) + 1
            raise UserError(
                f"{self.where}: the column '{self.name}' has {int(missing.sum()):,} missing values, first in row "
                f"{first} (the first below the header is 1). Fill them, leave the rows out, or leave the column out "
                "with 'data.features'."
            )


def _is_gap(text: str) -> bool:
    bare = text.strip()
    return not bare or bare.lower() in _NOTHING


@dataclass(frozen=True, repr=False)
class Table:
    """Columns of one length, by name."""

    columns: Mapping[str, Column]
    where: str

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, name: str) -> Column:
        if name not in self.columns:
            raise UserError(f"{self.where} has no column '{name}'. {nearest(name, self.columns)} {self._has()}".strip())
        return self.columns[name]

    def take(self, rows: np.ndarray) -> Table:
        """Some of its rows."""
        return Table({name: column.take(rows) for name, column in self.columns.items()}, self.where)

    def _has(self) -> str:
        names = list(self.columns)
        more = f" and {len(names) - 12} more" if len(names) > 12 else ""
        return f"Its columns are {', '.join(names[:12])}{more}."


def read_table(path: Path) -> Table:
    """The table in a CSV file (comma, semicolon or tab; UTF-8; a header), or in a Parquet file.

    Raises:
        UserError: it cannot be read, has no rows, or would not fit into memory.
    """
    if not path.is_file():
        raise UserError(f"Cannot read the table {path}: there is no such file.")
    if path.suffix.lower() in PARQUET:
        return _parquet(path)
    if path.suffix.lower() not in TABLES:
        raise UserError(f"A table must be a .csv or a .parquet file. Got {str(path)!r}.")
    return _csv(path)


def _csv(path: Path) -> Table:
    _refuse_giants(path.stat().st_size * 4, str(path))  # short texts in lists take about that
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header = file.readline(1 << 20)
            file.seek(0)
            rows = csv.reader(file, delimiter=max(_SEPARATORS, key=header.count), strict=True)
            names = _names(next(rows, []), str(path))
            values: list[list[str]] = [[] for _ in names]
            for row in rows:
                if len(row) != len(names) and row:
                    raise UserError(
                        f"{path}: line {rows.line_num} must have {len(names)} values, like the header. Got {len(row)}."
                    )
                for column, text in zip(values, row, strict=False):
                    column.append(text)
    except OSError as error:
        raise UserError(f"Cannot read the table {path}: {error.strerror}.") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"Cannot read {path} as CSV in UTF-8: {error}.") from error
    return _table(zip(names, values, strict=True), str(path))


def _parquet(path: Path) -> Table:
    with needs_extra("table", "Parquet files"):
        import pandas  # noqa: F401  (to_pandas wants it)
        import pyarrow.parquet as parquet
    try:
        with path.open("rb") as raw, parquet.ParquetFile(raw) as file:
            about = file.metadata  # a small file may unpack to a giant one: its own count comes first
            _refuse_giants(about.num_rows * about.num_columns * _BYTES_A_CELL, str(path))
            frame = file.read().to_pandas()
    except OSError as error:
        raise UserError(f"Cannot read the table {path}: {error}.") from error
    except UserError:
        raise
    except Exception as error:  # a hostile file can make pyarrow raise nearly anything
        raise UserError(f"Cannot read {path} as Parquet: {error}.") from error
    return from_frame(frame, str(path))


def is_frame(value: Any) -> bool:
    """Whether it is a DataFrame of pandas, which need not be installed."""
    return type(value).__name__ == "DataFrame" and type(value).__module__.partition(".")[0] == "pandas"


def from_frame(frame: Any, where: str) -> Table:
    """The table in a DataFrame of pandas.

    Args:
        frame: it.
        where: its name in messages.
    """
    names = _names([str(name) for name in frame.columns], where)
    return _table(((name, _values(frame.iloc[:, place])) for place, name in enumerate(names)), where)


def _values(series: Any) -> list[str] | np.ndarray:
    if series.dtype.kind in "biuf":
        return np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan))
    return ["" if gap else str(value) for value, gap in zip(series, series.isna(), strict=True)]


def _names(header: Sequence[str], where: str) -> list[str]:
    names = [name.strip() for name in header]
    if not names or len(names) > _MOST_COLUMNS:
        raise UserError(f"{where} must begin with the names of 1 to {_MOST_COLUMNS:,} columns. Got {len(names):,}.")
    for place, name in enumerate(names):
        if not name or not name.isprintable() or len(name) > 200:
            raise UserError(f"{where}: column {place + 1} must have a short name in plain text. Got {name[:80]!r}.")
        if name in names[:place]:
            raise UserError(f"{where} has two columns '{name}'. Rename one.")
    return names


def _table(columns: Iterable[tuple[str, list[str] | np.ndarray]], where: str) -> Table:
    table = Table({name: Column(name, values, where) for name, values in columns}, where)
    if not len(table):
        raise UserError(f"{where} has no rows.")
    return table


def _refuse_giants(need: int, what: str) -> None:
    have = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if need > have:
        raise UserError(
            f"{what} would need about {need / 2**30:,.0f} GiB of memory, this machine has {have / 2**30:,.0f}."
        )
