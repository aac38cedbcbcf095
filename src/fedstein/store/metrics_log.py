"""RUN/metrics.jsonl: one JSON object for each round, with its bills, and its metrics where it was evaluated.

The lines are a pure function of the config: they have no times in them, and a run that was killed and resumed has the
same lines as one that was not.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from fedstein.coding import Upload
from fedstein.metrics.names import NAMES
from fedstein.protocol.state import State, Told
from fedstein.store.files import read_lines

__all__ = ["is_metrics", "lines_in_order", "metrics_line", "read_metrics", "told_in"]

_NUMBERS = {field.name for field in fields(Upload) if field.name != "budget_bits"}


def metrics_line(state: State, told: Told) -> dict[str, Any]:
    """The line of a round."""
    bills = [asdict(upload) for upload in told.uploads]
    totals = {f"total_{name}": value for name, value in asdict(state.totals).items() if name != "max_upload_bits"}
    return {"round": state.round, "uploads": bills, **totals, **(told.metrics or {})}


def told_in(line: dict[str, Any]) -> Told:
    """What a line tells about its round; its frames are not in it."""
    return Told(tuple(Upload(**upload) for upload in line["uploads"]))


def is_metrics(line: dict[str, Any]) -> bool:
    """Whether an object has what every line has: somebody may have edited the file."""
    uploads = line.get("uploads")
    return (
        isinstance(uploads, list)
        and all(isinstance(upload, dict) and upload.keys() == _NUMBERS | {"budget_bits"} for upload in uploads)
        and all(isinstance(upload[name], int | float) for upload in uploads for name in _NUMBERS)
        and all(isinstance(upload.get("budget_bits"), int | None) for upload in uploads)
        and all(isinstance(line.get(f"total_{name}"), int) for name in ("uploads", "upload_bits", "download_bits"))
        and all(isinstance(value, int | float | list | None) for value in line.values())
        and all(isinstance(line.get(name), int | float | None) for name in NAMES)
    )


def lines_in_order(run: Path) -> Iterator[tuple[dict[str, Any], int]]:
    """The lines with the positions of their ends, as long as none is missing."""
    for expected, (line, end) in enumerate(read_lines(run / "metrics.jsonl"), start=1):
        if line.get("round") != expected or not is_metrics(line):
            return
        yield line, end


def read_metrics(run: Path) -> Iterator[dict[str, Any]]:
    """The lines, one for each round from the first on; a warning where one of them is damaged."""
    last = end = 0
    for line, place in lines_in_order(run):
        last, end = line["round"], place
        yield line
    path = run / "metrics.jsonl"
    with suppress(OSError), path.open("rb") as file:
        file.seek(end)
        if b"\n" in file.read(1 << 20):
            warnings.warn(f"The file {path} is damaged after round {last}: nothing beyond it is used.", stacklevel=2)
