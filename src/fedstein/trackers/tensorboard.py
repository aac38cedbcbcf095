"""TensorBoard."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from fedstein.protocol.state import State, Told
from fedstein.trackers.base import scalars

__all__ = ["TensorBoard"]


class TensorBoard:
    """Event files in RUN/tensorboard: `tensorboard --logdir RUN/tensorboard`."""

    def __init__(self, run: Path, settings: Mapping[str, Any], round: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(run / "tensorboard"), purge_step=round + 1 if round else None)
        if not round:
            rows = "\n".join(f"| {key} | {value} |" for key, value in settings.items())
            self._writer.add_text("config", f"| key | value |\n|---|---|\n{rows}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def after_round(self, state: State, told: Told) -> None:
        """Tell what was evaluated."""
        for name, value in scalars(state, told):
            self._writer.add_scalar(name, value, state.round)
        if told.metrics is not None:
            self._writer.flush()
