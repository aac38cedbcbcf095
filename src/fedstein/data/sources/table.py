"""A table: one row an example, columns of numbers and of texts, one that says whose row it is.

Nothing of a table is pooled behind the agents' backs. Numbers are standardised by public constants (`data.center`,
`data.scale`) or by the rows of a test file, which no agent holds; never by what agents have: an agent's numbers would
reach the others through a mean, and stay there after its erasure. The levels of text columns and the names of the
classes are the table's schema. They are settings as well; where they are left out they are read off the table once, and
the run writes them down, so that they stay as they are when rows are gone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fedstein.data.examples import Dataset, Examples, read_examples
from fedstein.data.sources.base import Held, Source
from fedstein.data.sources.contents import EVERYBODYS, of_agent, of_rows
from fedstein.data.sources.files import classes_in
from fedstein.data.tables import Table, read_table
from fedstein.errors import UserError, nearest
from fedstein.streams import stream

if TYPE_CHECKING:
    from fedstein.data.settings import DataConfig

__all__ = [
    "SOURCE",
    "Schema",
    "agent_id",
    "drawn",
    "from_tables",
    "numbered",
    "read",
    "schema_of",
    "share_of",
    "some_of",
]

SHARE = 0.2  # of the rows, for testing, if nothing is said
MOST_LEVELS = 200  # of a text column: more is no category


@dataclass(frozen=True)
class Schema:
    """What the columns mean.

    Args:
        features: the columns of the inputs, in order.
        levels: the texts of each text column; one input each.
        center: what is taken from each number column.
        scale: what it is then divided by.
        target: the columns of the targets.
        labels: the names of the classes, where the target is text.
        classes: how many; None if the targets are no labels.
    """

    features: tuple[str, ...]
    levels: Mapping[str, tuple[str, ...]]
    center: Mapping[str, float]
    scale: Mapping[str, float]
    target: tuple[str, ...]
    labels: tuple[str, ...] = ()
    classes: int | None = None

    def examples(self, table: Table) -> Examples:
        """The rows as inputs (n, width) and targets."""
        return read_examples(Examples(self.inputs(table), self._targets(table)), table.where)

    def inputs(self, table: Table) -> Tensor:
        """(n, width) int64 if all of them are whole numbers, else float64; the target need not be there."""
        x = np.concatenate([self._input(table, name) for name in self.features], 1)
        return torch.from_numpy(x.astype(np.int64) if _all_whole(x) else x)

    def _input(self, table: Table, name: str) -> np.ndarray:
        if name in self.levels:
            one_hot: np.ndarray = np.eye(len(self.levels[name]))
            rows: np.ndarray = one_hot[_places(table, name, self.levels[name], "data.levels")]
            return rows
        numbers = table[name].numbers()
        if numbers is None:
            raise UserError(f"{table.where}: the column '{name}' must be numbers, as it was. It has texts now.")
        return ((numbers - self.center.get(name, 0.0)) / self.scale.get(name, 1.0))[:, None]

    def _targets(self, table: Table) -> Tensor:
        if self.labels:
            return torch.from_numpy(_places(table, self.target[0], self.labels, "data.class_names"))
        columns = []
        for name in self.target:
            numbers = table[name].numbers()
            if numbers is None:
                raise UserError(
                    f"{table.where}: the target '{name}' must be numbers. It has texts: only one target may be text, "
                    "and then it is the classes."
                )
            columns.append(numbers)
        whole = all(map(_all_whole, columns))
        y = torch.from_numpy(np.stack(columns, 1).astype(np.int64 if whole else np.float32))
        return y[:, 0] if len(columns) == 1 else y


def _all_whole(numbers: np.ndarray) -> bool:
    """Whether they are whole numbers, of which float64 has rounded none."""
    return bool(((numbers == np.round(numbers)) & (abs(numbers) < 2**53)).all())


def _places(table: Table, name: str, known: Sequence[str], key: str) -> np.ndarray:
    numbers = {text: number for number, text in enumerate(known)}
    texts = table[name].texts()
    for row, text in enumerate(texts):
        if text not in numbers:
            raise UserError(
                f"{table.where}: the column '{name}' has '{text[:80]}' in row {row + 1}, which is none of '{key}': "
                f"{some_of(known)}."
            )
    return np.array([numbers[text] for text in texts], dtype=np.int64)


def read(data: DataConfig, remote: bool) -> Dataset | Held:
    """The table that settings mean.

    Args:
        data: the section.
        remote: the agents keep their rows elsewhere; only the test file is read if there is no table here.
    """
    second = data.test if isinstance(data.test, str) else None
    test = None if second is None else read_table(Path(second))
    if data.path is None and remote and test is not None:
        schema = _schema(data, [test], test)
        examples = schema.examples(test)
        return Held(
            [examples.none()] * data.agents, examples, schema.classes, schema.labels, settings=_settings(schema),
            contents={EVERYBODYS: _files(data)},
        )  # fmt: skip
    if data.path is None:
        raise UserError("The 'data.path' must name your .csv or .parquet file when data.name is 'table'. Got nothing.")
    return from_tables(data, read_table(Path(data.path)), test)


def from_tables(data: DataConfig, table: Table, test: Table | None) -> Dataset | Held:
    """What a table is, as settings say.

    Args:
        data: the section.
        table: the agents' rows.
        test: rows of nobody's; else a share of the others is drawn.
    """
    schema = _schema(data, [table] if test is None else [table, test], test)
    known, notes = _settings(schema), _notes(schema, test is None, data)
    if data.agent_column is None:
        rows = np.arange(len(table))
        train, out = (rows, None) if test is not None else drawn(rows, share_of(data), 0)
        judged = schema.examples(table.take(out) if out is not None else _there(test))
        return Dataset(
            "table", schema.examples(table.take(train)), judged, schema.classes, schema.labels, known, tuple(notes),
            {EVERYBODYS: _files(data)},
        )  # fmt: skip
    names, owners = numbered(table[data.agent_column].texts(), data.agent_ids, table.where, data.agent_column)
    everyone = schema.examples(table)
    held, tests = [], []
    contents: dict[str, Mapping[str, Path | str]] = {} if test is None else {EVERYBODYS: _files(data, shared=False)}
    for agent in range(len(names)):
        rows = (owners == agent).nonzero()[0]
        if len(rows):
            whose = f"agent {agent}'s rows of {Path(table.where).name}"
            contents[of_agent(agent)] = {whose: of_rows(everyone.take(torch.from_numpy(rows)))}
        if test is None:
            rows, out = drawn(rows, share_of(data), agent)
            tests.append(out)
        held.append(rows)
    judged = schema.examples(table.take(np.concatenate(tests)) if test is None else test)
    known |= {"agents": len(names), "agent_ids": data.agent_ids or tuple(map(agent_id, names))}
    notes.append(f"agents by '{data.agent_column}': {some_of([f'{k} {name}' for k, name in enumerate(names)])}")
    agents = [everyone.take(torch.from_numpy(rows)) for rows in held]
    return Held(
        agents, judged, schema.classes, schema.labels, tuple(names), known, tuple(notes), contents=contents
    )  # fmt: skip


def _files(data: DataConfig, shared: bool = True) -> dict[str, Path]:
    """The files of a table that are no single agent's; there are none where it is a frame.

    Args:
        data: the section.
        shared: the rows of the agents are divided among them, so that their file is everybody's.
    """
    named = (data.path if shared else None, data.test if isinstance(data.test, str) else None)
    return {Path(path).name: Path(path) for path in named if path is not None}


def schema_of(data: DataConfig) -> Schema | None:
    """What a run has written down of its table's columns; None where there is no table."""
    if data.name != "table" or not data.features:
        return None
    return Schema(data.features, data.levels, data.center, data.scale, data.target)


def _there(test: Table | None) -> Table:
    assert test is not None
    return test


def share_of(data: DataConfig) -> float:
    """Of everybody's rows, that is drawn for testing."""
    return data.test if isinstance(data.test, float) else SHARE


def drawn(rows: np.ndarray, share: float, agent: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows to learn from and rows for testing: the same for every seed, and for an agent whoever else is there."""
    if not len(rows):
        return rows, rows
    count = min(max(1, round(share * len(rows))), len(rows) - 1)
    if count < 1:
        raise UserError(
            f"The agent number {agent} has one row: none can be drawn for testing. Name a test file: data.test."
        )
    order = torch.randperm(len(rows), generator=stream(0, "test rows", agent=agent)).numpy()
    return rows[np.sort(order[count:])], rows[np.sort(order[:count])]


def agent_id(name: str) -> str:
    """A digest of an agent's name: it keeps its number when others' rows are gone, unnamed after an erasure."""
    return hashlib.sha256(name.encode()).hexdigest()[:16]


def numbered(texts: Sequence[str], ids: Sequence[str], where: str, column: str) -> tuple[list[str], np.ndarray]:
    """The names of the agents in the order of their numbers, and the number of each row's.

    Args:
        texts: of the agent column.
        ids: digests of the names by number, as a run has them; else names are numbered in their order.
        where: the table, for messages.
        column: its name.
    """
    names = sorted(set(texts), key=_in_order)
    if ids:
        by_id = {agent_id(name): name for name in names}
        if new := [name for key, name in by_id.items() if key not in ids]:
            raise UserError(
                f"{where}: the column '{column}' has rows of {some_of(new)}, who took no part when the run began. "
                "Leave them out, or train a new run."
            )
        names = [by_id.get(key, "") for key in ids]
    numbers = {name: number for number, name in enumerate(names) if name}
    return names, np.array([numbers[text] for text in texts], dtype=np.int64)


def _in_order(text: str) -> tuple[float, str]:
    """Numbers as numbers, 9 before 10; texts after them."""
    try:
        number = float(text)
    except ValueError:
        return float("inf"), text
    return (number if np.isfinite(number) else float("inf")), text


def _schema(data: DataConfig, tables: Sequence[Table], test: Table | None) -> Schema:
    first = tables[0]
    if not data.target:
        raise UserError(
            f"The 'data.target' must name the column to learn. Got nothing. {first.where} has "
            f"{some_of(list(first.columns))}."
        )
    for name in (*data.target, *([data.agent_column] if data.agent_column else [])):
        first[name]  # refused if it is not there
    apart = {*data.target, data.agent_column}
    features = data.features or tuple(name for name in first.columns if name not in apart)
    if both := [name for name in features if name in apart]:
        raise UserError(f"The 'data.features' must not have the target or the agent column. Got '{both[0]}'.")
    if not features:
        raise UserError(f"{first.where} must have a column beside the target{' and the agent' * bool(apart)}.")
    levels = {name: texts for name in features if (texts := _levels(data, tables, name))}
    for key, named in (("center", data.center), ("scale", data.scale), ("levels", data.levels)):
        if wrong := [name for name in named if name not in features or (name in levels) != (key == "levels")]:
            raise UserError(
                f"The 'data.{key}' must name columns of {'texts' if key == 'levels' else 'numbers'} among the "
                f"features. Got '{wrong[0]}'. {nearest(wrong[0], features)}"
            )
    center, scale = dict(data.center), dict(data.scale)
    if data.standardise is not None:
        _standardise(features, levels, test, center, scale)
    labels = _labels(data, tables)
    classes = len(labels) or _classes(data, tables)
    return Schema(tuple(features), levels, center, scale, data.target, labels, classes or None)


def _standardise(
    features: Sequence[str],
    levels: Mapping[str, Any],
    test: Table | None,
    center: dict[str, float],
    scale: dict[str, float],
) -> None:
    """Fill in the mean and the standard deviation of the test file's rows, which no agent holds."""
    missing = [name for name in features if name not in levels and (name not in center or name not in scale)]
    if missing and test is None:
        raise UserError(
            "The 'data.standardise' test needs a test file of its own (data.test): rows drawn from the agents' are "
            "theirs. Or give public constants: data.center, data.scale."
        )
    for name in missing:
        numbers = None if test is None else test[name].numbers()
        if numbers is not None:
            center.setdefault(name, float(f"{numbers.mean():.6g}"))
            scale.setdefault(name, float(f"{numbers.std():.6g}") or 1.0)


def _levels(data: DataConfig, tables: Sequence[Table], name: str) -> tuple[str, ...]:
    if name in data.levels:
        return data.levels[name]
    if all(table[name].numbers() is not None for table in tables):
        return ()
    levels = sorted({text for table in tables for text in table[name].texts()})
    if len(levels) > MOST_LEVELS:
        odd = next(text for table in tables for text in table[name].texts() if not _is_number(text))
        raise UserError(
            f"{tables[0].where}: the column '{name}' is text ('{odd[:40]}' is no number) with {len(levels):,} "
            f"different ones, more than {MOST_LEVELS}. Clean it, or leave it out with 'data.features'."
        )
    return tuple(levels)


def _is_number(text: str) -> bool:
    return bool(np.isfinite(_in_order(text)[0]))


def _labels(data: DataConfig, tables: Sequence[Table]) -> tuple[str, ...]:
    """The names of the classes, where the target is text or is listed by name."""
    if len(data.target) != 1:
        return ()
    columns = [table[data.target[0]] for table in tables]
    plain = all(column.numbers() is not None for column in columns)
    if data.class_names:
        named = set(data.class_names)
        return data.class_names if not plain or all(named >= set(column.texts()) for column in columns) else ()
    if plain:
        return ()
    classes = sorted({text for column in columns for text in column.texts()})
    if len(classes) < 2 or len(classes) > 10_000:
        raise UserError(f"{tables[0].where}: the target '{data.target[0]}' is text and must have 2 to 10,000 classes. "
                        f"Got {len(classes):,}.")  # fmt: skip
    return tuple(classes)


def _classes(data: DataConfig, tables: Sequence[Table]) -> int:
    if len(data.target) != 1:
        return 0
    numbers = [values for table in tables if (values := table[data.target[0]].numbers()) is not None]
    together = np.concatenate(numbers)
    if not _all_whole(together):
        return 0
    return classes_in(torch.from_numpy(together.astype(np.int64))) or 0


def _settings(schema: Schema) -> dict[str, Any]:
    known = {
        "features": schema.features,
        "levels": dict(schema.levels),
        "center": dict(schema.center),
        "scale": dict(schema.scale),
    }
    return known | ({"class_names": schema.labels} if schema.labels else {})


def _notes(schema: Schema, drawn: bool, data: DataConfig) -> list[str]:
    numbers = [name for name in schema.features if name not in schema.levels]
    notes = [f"inputs: {some_of(numbers)}" if numbers else "inputs: no column of numbers"]
    notes += [f"'{name}' is text: {some_of(levels)}" for name, levels in schema.levels.items()]
    if raw := [name for name in numbers if name not in schema.scale]:
        notes.append(f"not standardised: {some_of(raw)} (data.center and data.scale, or data.standardise = 'test')")
    if schema.labels:
        notes.append(f"classes: {some_of(schema.labels)}")
    if drawn:
        notes.append(f"{share_of(data):.0%} of the rows were drawn for testing")
    return notes


def some_of(names: Sequence[str], most: int = 12) -> str:
    """The first of them, for a message."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


SOURCE = Source(
    "your own .csv or .parquet: a row an example, its target and whose it is in columns (data.path, data.target)",
    read=read,
    own=True,
)
