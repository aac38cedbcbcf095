"""MLflow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from fedstein.protocol.state import State, Told
from fedstein.store.files import write
from fedstein.trackers.base import scalars

__all__ = ["MLflow"]


class MLflow:
    """An MLflow run, wherever MLFLOW_TRACKING_URI says; its id is kept in RUN/mlflow-run-id, so that it is resumed."""

    def __init__(self, run: Path, settings: Mapping[str, Any], round: int) -> None:
        import mlflow

        self._mlflow: Any = mlflow
        kept = run / "mlflow-run-id"
        if kept.is_file():
            self._run = mlflow.start_run(run_id=kept.read_text(encoding="utf-8").strip())
        else:
            mlflow.set_experiment("fedstein")
            self._run = mlflow.start_run(run_name=run.name)
            write(kept, self._run.info.run_id.encode())
            mlflow.log_params({key: str(value) for key, value in settings.items()})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._mlflow.end_run("FINISHED" if kind is None else "FAILED")

    def after_round(self, state: State, told: Told) -> None:
        """Tell what was evaluated."""
        if numbers := dict(scalars(state, told)):
            self._mlflow.log_metrics(numbers, step=state.round)
