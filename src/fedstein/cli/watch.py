"""`fedstein watch`: follow a run in the terminal, from its files alone."""

from __future__ import annotations

import json as jsonlib
import math
import sys
import time
from collections import Counter, deque
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedstein.cli.output import JsonOption, console, print_json, ready

if TYPE_CHECKING:
    from rich.console import Group

    from fedstein.settings import Config

__all__ = ["watch"]

_BLOCKS = "▁▂▃▄▅▆▇█"
_SHOWN = (
    ("accuracy", "accuracy"),
    ("rmse", "RMSE"),
    ("ece", "ECE"),
    ("nll", "NLL"),
    ("coverage_90", "cover 90 %"),
    ("loss", "loss"),
    ("total_variation", "total variation"),
)


def watch(
    run: Annotated[Path, typer.Argument(help="A run folder, running or finished.")],
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look once and end.")] = False,
    json: JsonOption = False,
) -> None:
    """Follow a run: accuracy and ECE as they come, bits, rounds a second, agents. Ends when the run does."""
    from rich.live import Live

    from fedstein.runs.folder import read_run_config

    ready()
    out = console()
    seen = _Seen(run, read_run_config(run))
    seen.look()
    if json:
        print_json(seen.facts())
        return
    if once or not sys.stdout.isatty() or seen.status != "running":
        out.print(seen.view(min(out.width, 100)))
        return
    with Live(seen.view(min(out.width, 100)), console=out, auto_refresh=False) as live:
        while seen.status == "running":
            time.sleep(every)
            seen.look()
            live.update(seen.view(min(out.width, 100)), refresh=True)


class _Tail:
    """The whole lines that were added to a file since the last look; all again if it became shorter (a resume)."""

    def __init__(self, path: Path) -> None:
        self._path, self._at = path, 0

    def new(self) -> tuple[bool, list[dict[str, Any]]]:
        """Whether the file began anew, and its new objects."""
        try:
            if not self._path.is_file():
                return False, []
            size = self._path.stat().st_size
            anew = size < self._at
            self._at = 0 if anew else self._at
            with self._path.open("rb") as file:
                file.seek(self._at)
                content = file.read(size - self._at)
        except OSError:
            return False, []
        end = content.rfind(b"\n") + 1
        self._at += end
        values = []
        for line in content[:end].splitlines():
            try:
                value = jsonlib.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                values.append(value)
        return anew, values


class _Seen:
    """What is known of a run so far."""

    def __init__(self, run: Path, config: Config) -> None:
        self._run, self._config = run, config
        self._metrics, self._journal = _Tail(run / "metrics.jsonl"), _Tail(run / "journal.jsonl")
        self._forget()
        self._times: deque[tuple[float, int]] = deque(maxlen=60)  # when a round was scheduled
        self.status = "stopped"

    def _forget(self) -> None:
        self._history: dict[str, list[float]] = {name: [] for name, _ in _SHOWN}
        self._line: dict[str, Any] = {}
        self._visits: Counter[int] = Counter()

    def look(self) -> None:
        """Read what is new."""
        from fedstein.store.lock import in_use
        from fedstein.store.metrics_log import is_metrics

        anew, lines = self._metrics.new()
        if anew:
            self._forget()
        for line in lines:
            if not is_metrics(line) or not isinstance(line.get("round"), int):
                continue
            self._line = line
            for name, values in self._history.items():
                if isinstance(line.get(name), int | float):
                    values.append(line[name])
            for upload in line["uploads"]:
                self._visits[upload["agent"]] += 1
        for event in self._journal.new()[1]:
            if event.get("event") == "scheduled":
                try:
                    self._times.append((datetime.fromisoformat(event["time"]).timestamp(), int(event["round"])))
                except (KeyError, TypeError, ValueError, OverflowError):
                    continue
            elif event.get("event") in ("started", "resumed"):
                self._times.clear()
        running = in_use(self._run)
        done = self._line.get("round", 0) >= self._config.rounds
        self.status = "running" if running else "finished" if done else "stopped"

    def facts(self) -> dict[str, Any]:
        """For scripts."""
        totals = {name: self._line.get(f"total_{name}") for name in ("uploads", "upload_bits", "refused")}
        latest = {name: values[-1] if values else None for name, values in self._history.items()}
        return {
            "run": str(self._run),
            "status": self.status,
            "round": self._line.get("round", 0),
            "rounds": self._config.rounds,
            "rounds_per_second": self._speed(),
            **latest,
            **totals,
            "agents_seen": len(self._visits),
        }

    def _speed(self) -> float | None:
        if len(self._times) < 2:
            return None
        (first, begin), (last, end) = self._times[0], self._times[-1]
        return (end - begin) / (last - first) if last > first else None

    def view(self, width: int) -> Group:
        """For people."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        facts, config = self.facts(), self._config
        round, rounds = facts["round"], facts["rounds"]
        speed = facts["rounds_per_second"]
        left = f", about {_minutes((rounds - round) / speed)} left" if speed and self.status == "running" else ""
        pace = f", {speed:.1f} rounds a second{left}" if speed else ""
        table = Table.grid(padding=(0, 2))
        for name, word in _SHOWN:
            if values := self._history[name]:
                table.add_row(word, f"{values[-1]:.4f}", Text(_sparkline(values, max(10, width - 40)), style="cyan"),
                              f"{min(values):.3f} to {max(values):.3f}")  # fmt: skip
        budget = "no budget" if config.uplink.budget is None else f"budget {config.uplink.budget} an upload"
        latest = ", ".join(str(upload.get("agent")) for upload in self._line.get("uploads", [])[:8])
        done = int(30 * min(round, rounds) / rounds)
        return Group(
            Text(f"{self._run}: {config.method.name} on {config.data.name}, {self.status}", style="bold"),
            Text("━" * done, style="green").append("━" * (30 - done), style="bright_black").append(
                f"  round {round:,} of {rounds:,}{pace}", style="default"
            ),
            table,
            Text(f"sent up   {(facts['upload_bits'] or 0) / 8e6:,.3f} MB in {facts['uploads'] or 0:,} uploads, "
                 f"{budget}, {facts['refused'] or 0} refused"),
            Text(f"agents    {len(self._visits):,} seen" + (f", the last: {latest}" if latest else "")),
        )  # fmt: skip


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _sparkline(values: list[float], width: int) -> str:
    """The means of so many stretches, as blocks of eight heights.

    >>> _sparkline([0.0, 0.5, 1.0], 10)
    '▁▅█'
    """
    count = min(width, len(values))
    edges = [i * len(values) // count for i in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(means), max(means)
    if high == low or not math.isfinite(8 * (high - low)):
        return _BLOCKS[3] * count
    return "".join(_BLOCKS[min(7, int(8 * (mean - low) / (high - low)))] for mean in means)
