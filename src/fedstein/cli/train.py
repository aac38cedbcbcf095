"""`fedstein train`: train from a config and leave a run folder."""

from __future__ import annotations

import signal
import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fedstein.build import build_problem, fit_config
from fedstein.cli.output import JsonOption, console, print_json, print_metrics
from fedstein.config import Config, load_config
from fedstein.engines import State, start
from fedstein.problem import Metrics, Problem
from fedstein.runs import RunFolder
from fedstein.training import Trained
from fedstein.uplink import Uplink

__all__ = ["train"]


class _Bar:
    """A progress bar on stderr; it shows nothing where that is not a terminal."""

    def __init__(self, rounds: int) -> None:
        self._progress = Progress(
            TextColumn("rounds"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[metrics]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=type(console)(stderr=True),
            disable=not sys.stderr.isatty(),
        )
        self._task = self._progress.add_task("", total=rounds, metrics="")

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def after_round(self, state: State, metrics: Metrics | None) -> None:
        """Move on."""
        if metrics is not None and "accuracy" in metrics:
            self._progress.update(self._task, metrics=f"acc {metrics['accuracy']:.3f}  ECE {metrics['ece']:.3f}")
        self._progress.update(self._task, completed=state.round)


def train(
    config_file: Annotated[Path | None, typer.Argument(metavar="[CONFIG.toml]", help="Defaults if left out.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a config key; repeat as needed.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder to make; runs/<method>-<time> if left out.")] = None,
    json: JsonOption = False,
) -> None:
    """Train a model across agents, and keep the run in a folder."""
    config = _with_whole_paths(load_config(config_file, set_ or []))
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    problem = build_problem(config)
    # Whatever can be refused is refused before there is a run folder.
    uplink = config.uplink.terms(config.method, problem.model.dim)
    config.method.check(problem.prior)
    config.schedule.pick(0, 1 if config.method.central else len(problem.agents), config.seed)
    first = start(problem, config.method, config.seed)
    if out is None:
        out = Path("runs") / f"{config.method.name}-{datetime.now():%Y%m%d-%H%M%S-%f}"
    run = RunFolder(out, config)
    if problem.frozen is not None:
        run.keep_features(problem.frozen)
    if not json:
        console.print(_headline(config, problem))
    last = _Last(first)
    run.save(first)  # so that there is a good state to keep, whatever happens in the first round
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite end is like Ctrl-C
    try:
        with _Bar(config.rounds) as bar:
            trained = fit_config(config, [last, run, bar], problem, last.state)
    finally:
        run.save(last.state)  # whatever ended it, a divergence included
    result = _result(out, trained, uplink)
    run.finish(result)
    if json:
        print_json(result)
    else:
        print_metrics(trained.metrics, f"after {trained.state.round} rounds, {trained.seconds:.1f} s")
        console.print(_bill(result))
        if trained.interrupted:
            console.print("Interrupted: what was learnt so far is kept.")
        console.print(f"Run folder: {out}\nNext:       fedstein evaluate {out}")
    if trained.interrupted:
        raise typer.Exit(130)


def _with_whole_paths(config: Config) -> Config:
    """Paths in a run's config lead to the same place wherever it is read from."""
    data = config.data.model_copy(update={"path": _whole(config.data.path), "indices": _whole(config.data.indices)})
    model = config.model.model_copy(update={"features": _whole(config.model.features)})
    return config.model_copy(update={"data": data, "model": model})


def _whole(path: str | None) -> str | None:
    return None if path is None else str(Path(path).resolve())


class _Last:
    """Remembers the last finished round."""

    def __init__(self, state: State) -> None:
        self.state = state

    def after_round(self, state: State, metrics: Metrics | None) -> None:
        self.state = state


def _bill(result: dict[str, Any]) -> str:
    sent, most, budget = result["total_upload_bits"], result["max_upload_bits"], result["budget_bits"]
    if budget is None:
        return f"Uploads: {sent / 8e6:,.1f} MB in all, as plain float32 (no uplink.budget)"
    return f"Uploads: {sent / 8e6:,.3f} MB in all; the largest {most:,} of {budget:,} bits, {result['kept']:,} kept"


def _headline(config: Config, problem: Problem) -> str:
    method, data = config.method, config.data
    partition = "" if data.name.startswith("synthetic") else f" ({data.partition})"
    return (
        f"{method.name} on {data.name}: {len(problem.agents)} agents{partition}, {method.particles} particles of "
        f"{problem.model.dim:,} parameters, {config.rounds} rounds of {method.local_steps} steps"
    )


def _result(out: Path, trained: Trained, uplink: Uplink | None) -> dict[str, Any]:
    names = ("accuracy", "ece", "ece_bins", "nll", "brier")
    base = {"run": str(out), "rounds": trained.state.round, "seconds": round(trained.seconds, 3)}
    rest = {key: value for key, value in trained.metrics.items() if key != "round"}
    bill = {
        "budget_bits": None if uplink is None else uplink.contract.budget_bits,
        "max_upload_bits": trained.max_upload_bits,
        "total_upload_bits": trained.total_upload_bits,
        "kept": max((upload.kept for upload in trained.state.uploads), default=None),
        "refused": trained.refused,
    }
    return base | dict.fromkeys(names) | rest | bill | {"interrupted": trained.interrupted}
