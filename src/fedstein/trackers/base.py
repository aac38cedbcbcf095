"""Trackers: somebody else's dashboard sees a run's metrics as well. metrics.jsonl stays the truth.

A tracker is told of every round. It is made with the run folder, the settings by their dotted keys, and the round that
the run goes on from: what it was told of later rounds will be done again.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from fedstein.errors import UserError
from fedstein.protocol.state import State, Told
from fedstein.registry import Registry

__all__ = ["TRACKERS", "Tracker", "TrackerMaker", "Watcher", "check_trackers", "open_trackers", "scalars"]


class Watcher(Protocol):
    """Is told after every round; a progress bar, a recorder."""

    def after_round(self, state: State, told: Told) -> None:
        """The state after the round, and what is told about it: bills, and metrics where it was evaluated."""
        ...


class Tracker(Watcher, Protocol):
    """A watcher with a beginning and an end."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


TrackerMaker = Callable[[Path, Mapping[str, Any], int], Tracker]
"""(run folder, settings by their dotted keys, round that the run goes on from) -> a tracker."""

TRACKERS: Registry[TrackerMaker] = Registry(
    "tracker",
    "who else is told of a run's metrics (recording.trackers)",
    {
        "tensorboard": "fedstein.trackers.tensorboard:TensorBoard",
        "mlflow": "fedstein.trackers.mlflow:MLflow",
    },
)


def check_trackers(names: Sequence[str]) -> None:
    """Refuse trackers that are not installed, before any work is done."""
    for name in names:
        if TRACKERS.source(name) == "fedstein" and importlib.util.find_spec(name) is None:
            raise _missing(name)
        if TRACKERS.source(name) != "fedstein":
            TRACKERS[name]  # one that cannot be loaded says so now


def _missing(name: str) -> UserError:
    return UserError(
        f"The 'recording.trackers' {name} is not installed. Install it with: pip install 'fedstein[{name}]'."
    )


def open_trackers(names: Sequence[str], run: Path, settings: Mapping[str, Any], round: int) -> list[Tracker]:
    """Trackers by name. One that fails later on is left out with a warning: the run goes on.

    Args:
        names: as in recording.trackers.
        run: the run folder.
        settings: by their dotted keys.
        round: that the run goes on from.
    """
    trackers: list[Tracker] = []
    for name in names:
        try:
            trackers.append(_Guarded(TRACKERS[name](run, settings, round), name))
        except ImportError as error:
            raise _missing(name) from error
        except UserError:
            raise
        except Exception as error:  # whatever its library raises
            raise UserError(f"The 'recording.trackers' {name} cannot be opened: {error}") from error
    return trackers


class _Guarded:
    """A tracker whose failures do not end the training."""

    def __init__(self, tracker: Tracker, name: str) -> None:
        self._tracker, self._name, self._well = tracker, name, True

    def __enter__(self) -> Self:
        self._tracker.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._try(lambda: self._tracker.__exit__(kind, error, trace))

    def after_round(self, state: State, told: Told) -> None:
        """Tell the tracker."""
        self._try(lambda: self._tracker.after_round(state, told))

    def _try(self, work: Callable[[], None]) -> None:
        if not self._well:
            return
        try:
            work()
        except Exception as error:  # whatever its library raises
            self._well = False
            warnings.warn(f"The tracker {self._name} failed and is told nothing more: {error}", stacklevel=2)


def scalars(state: State, told: Told) -> Iterator[tuple[str, float]]:
    """The single numbers of a round, by name."""
    metrics = told.metrics
    for name, value in (metrics or {}).items():
        if name not in ("round", "ece_bins") and isinstance(value, int | float):
            yield f"evaluation/{name}", float(value)
    if metrics is not None:
        yield "uplink/total_upload_bits", float(state.totals.upload_bits)
        yield "uplink/refused", float(state.totals.refused)
        if told.uploads:
            yield "uplink/captured", sum(upload.captured for upload in told.uploads) / len(told.uploads)
