"""A progress bar for rounds, in a terminal or a notebook; where there is neither, nothing is shown."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

from fedstein.metrics.names import shown
from fedstein.protocol.state import State, Told

__all__ = ["Bar", "can_show", "progress_bar"]


def can_show() -> bool:
    """Whether somebody would see a bar: standard error is a terminal, or this is a notebook that has widgets."""
    if "ipykernel" in sys.modules:
        return importlib.util.find_spec("ipywidgets") is not None
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # there is no standard error, or it is closed
        return False


def progress_bar(first: str = "rounds", last: str = "{task.fields[about]}") -> Any:
    """One look for all bars: a word, the bar, how many of how many, what is known, the time so far and what is left."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn(first),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn(last),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(elapsed_when_finished=False),
        console=Console(stderr=True),
        disable=not can_show(),
    )


class Bar:
    """A watcher that shows how far a training is."""

    def __init__(self, rounds: int) -> None:
        self._progress = progress_bar()
        self._task = self._progress.add_task("", total=rounds, about="")

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def after_round(self, state: State, told: Told) -> None:
        """Move on."""
        if told.metrics is not None and (numbers := shown(told.metrics)):
            about = "  ".join(f"{name.replace('accuracy', 'acc')} {value:.3f}" for name, value in numbers.items())
            self._progress.update(self._task, about=about)
        self._progress.update(self._task, completed=state.round)
