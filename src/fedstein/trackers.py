"""Trackers: TensorBoard and MLflow see a run's metrics as well. metrics.jsonl stays the truth.

A tracker is a `Watcher` that is opened before the first round and closed after the last. It is made with the run
folder, the config, and the round that the run goes on from: what it was told of later rounds will be done again. To add
one, write such a class, name it in `TRACKERS`, and in `Tracker` of config.py.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from fedstein.config import Config, flat, to_table
from fedstein.engines import State
from fedstein.errors import UserError
from fedstein.problem import Metrics
from fedstein.runs.files import write
from fedstein.training import Watcher

__all__ = ["TRACKERS", "MLflow", "TensorBoard", "Tracker", "check_trackers", "open_trackers"]


class Tracker(Watcher, Protocol):
    """A watcher with a beginning and an end."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def check_trackers(config: Config) -> None:
    """Refuse trackers that are not installed, before any work is done."""
    for name in config.recording.trackers:
        if importlib.util.find_spec(name) is None:
            raise _missing(name)


def _missing(name: str) -> UserError:
    return UserError(
        f"The 'recording.trackers' {name} is not installed. Install it with: pip install 'fedstein[{name}]'."
    )


def open_trackers(run: Path, config: Config, round: int) -> list[Tracker]:
    """The trackers that a config asks for. One that fails later on is left out with a warning: the run goes on."""
    found: list[Tracker] = []
    for name in config.recording.trackers:
        try:
            found.append(_Guarded(TRACKERS[name](run, config, round), name))
        except ImportError as error:
            raise _missing(name) from error
        except Exception as error:  # whatever its library raises
            raise UserError(f"The 'recording.trackers' {name} cannot be opened: {error}") from error
    return found


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

    def after_round(self, state: State, metrics: Metrics | None) -> None:
        """Tell the tracker."""
        self._try(lambda: self._tracker.after_round(state, metrics))

    def _try(self, work: Callable[[], None]) -> None:
        if not self._well:
            return
        try:
            work()
        except Exception as error:  # whatever its library raises
            self._well = False
            warnings.warn(f"The tracker {self._name} failed and is told nothing more: {error}", stacklevel=2)


def scalars(state: State, metrics: Metrics | None) -> Iterator[tuple[str, float]]:
    """The single numbers of a round, by name."""
    for name, value in (metrics or {}).items():
        if name not in ("round", "ece_bins") and isinstance(value, int | float):
            yield f"evaluation/{name}", float(value)
    if metrics is not None:
        yield "uplink/total_upload_bits", float(state.totals.upload_bits)
        yield "uplink/refused", float(state.totals.refused)
        if state.uploads:
            yield "uplink/captured", sum(upload.captured for upload in state.uploads) / len(state.uploads)


class TensorBoard:
    """Event files in RUN/tensorboard: `tensorboard --logdir RUN/tensorboard`."""

    def __init__(self, run: Path, config: Config, round: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(run / "tensorboard"), purge_step=round + 1 if round else None)
        if not round:
            rows = "\n".join(f"| {key} | {value} |" for key, value in flat(to_table(config)).items())
            self._writer.add_text("config", f"| key | value |\n|---|---|\n{rows}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def after_round(self, state: State, metrics: Metrics | None) -> None:
        """Tell what was evaluated."""
        for name, value in scalars(state, metrics):
            self._writer.add_scalar(name, value, state.round)
        if metrics is not None:
            self._writer.flush()


class MLflow:
    """An MLflow run, wherever MLFLOW_TRACKING_URI says; its id is kept in RUN/mlflow-run-id, so that it is resumed."""

    def __init__(self, run: Path, config: Config, round: int) -> None:
        import mlflow

        self._mlflow: Any = mlflow
        kept = run / "mlflow-run-id"
        if kept.is_file():
            self._run = mlflow.start_run(run_id=kept.read_text(encoding="utf-8").strip())
        else:
            mlflow.set_experiment("fedstein")
            self._run = mlflow.start_run(run_name=run.name)
            write(kept, self._run.info.run_id.encode())
            mlflow.log_params({key: str(value) for key, value in flat(to_table(config)).items()})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._mlflow.end_run("FINISHED" if kind is None else "FAILED")

    def after_round(self, state: State, metrics: Metrics | None) -> None:
        """Tell what was evaluated."""
        if found := dict(scalars(state, metrics)):
            self._mlflow.log_metrics(found, step=state.round)


TRACKERS: dict[str, Callable[[Path, Config, int], Tracker]] = {"tensorboard": TensorBoard, "mlflow": MLflow}
