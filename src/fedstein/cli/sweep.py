"""`fedstein sweep`: many runs from one file."""

from __future__ import annotations

import csv
import io
import os
import signal
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from fedstein.cli.output import JsonOption, console, print_json
from fedstein.cli.train import RayOption
from fedstein.errors import UserError
from fedstein.runs import take_lock
from fedstein.runs.files import write
from fedstein.sweeps import Job, Outcome, cores, load_sweep, result_of, run_jobs

__all__ = ["WorkersOption", "do_jobs", "sweep"]

WorkersOption = Annotated[int | None, typer.Option(min=1, max=4096, help="Runs side by side; one a core if left out.")]

_STATUSES = ("finished", "failed", "stopped")
_SHOWN = ("accuracy", "nll", "ece", "brier", "total_upload_bits", "max_upload_bits", "seconds")


def sweep(
    file: Annotated[Path, typer.Argument(metavar="SWEEP.toml", help="Which runs; docs/sweeps.md.")],
    out: Annotated[
        Path | None, typer.Option(help="Where the run folders go; runs/<name of the file> if left out.")
    ] = None,
    workers: WorkersOption = None,
    ray: RayOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say which runs, and do nothing.")] = False,
    json: JsonOption = False,
) -> None:
    """Do many runs, side by side. Given again, it goes on with what is left; a failed run stops no other."""
    planned = load_sweep(file)
    out = (Path("runs") / file.stem if out is None else out).resolve()
    jobs = [run.job(out) for run in planned]
    if dry_run:
        if json:
            print_json({"out": str(out), "runs": [_about(job) for job in jobs]})
        else:
            for job in jobs:
                console.print(f"{job.name}: {job.rounds} rounds")
        return
    try:
        outcomes = do_jobs(jobs, out, workers, ray, quiet=json)
    except KeyboardInterrupt:
        write(out / "results.csv", _csv([_row(job.so_far()) for job in jobs]).encode())
        raise
    counts = {status: sum(outcome.status == status for outcome in outcomes) for status in _STATUSES}
    rows = [_row(outcome) for outcome in outcomes]
    files = [out / "results.csv"]
    write(files[0], _csv(rows).encode())
    failed = [outcome for outcome in outcomes if outcome.status == "failed"]
    if json:
        print_json({"out": str(out), **counts, "runs": rows, "files": [str(path) for path in files]})
    else:
        _tell(rows, failed, out)
    if counts["finished"] < len(outcomes):
        raise typer.Exit(1)


def do_jobs(jobs: Sequence[Job], out: Path, workers: int | None, ray: str | None, *, quiet: bool) -> list[Outcome]:
    """All jobs, with a progress bar; outcomes in the order of the jobs.

    Ctrl-C asks each run to stop after its round, says how to go on, and ends with exit code 130.
    """
    lock = _alone(out)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    found: dict[str, Outcome] = {}
    with _Rounds(jobs, quiet) as bar, closing(_outcomes(jobs, workers, ray, bar)) as outcomes:
        try:
            for outcome in outcomes:
                found[outcome.job.name] = outcome
                bar.ended(outcome, len(found))
        except KeyboardInterrupt:
            outcomes.close()  # the runs under way keep what they have
            print(f"fedstein: stopped; the same command goes on with what is left in {out}", file=sys.stderr)
            raise
        finally:
            os.close(lock)
    return [found[job.name] for job in jobs]


def _alone(out: Path) -> int:
    """The lock of the folder of all runs, which is made if need be."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        return take_lock(out)
    except OSError as error:
        raise UserError(f"The '--out' must be a folder that can be written to. Got {out}: {error.strerror}.") from None


def _outcomes(
    jobs: Sequence[Job], workers: int | None, ray: str | None, bar: _Rounds
) -> Generator[Outcome, None, None]:
    if ray is None:
        return run_jobs(jobs, workers or cores(), bar.tick)
    from fedstein.sweeps.on_ray import run_jobs_on_ray

    return run_jobs_on_ray(jobs, ray, workers, bar.tick)


class _Rounds:
    """A progress bar over the rounds of all runs, on stderr; where that is no terminal, a line for each run."""

    def __init__(self, jobs: Sequence[Job], quiet: bool) -> None:
        self._jobs, self._quiet = jobs, quiet
        self._open = {job.name: job for job in jobs}
        self._closed = 0
        self._at = 0.0
        self._progress = Progress(
            TextColumn("{task.fields[runs]}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("rounds"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(elapsed_when_finished=False),
            console=type(console)(stderr=True),
            disable=not sys.stderr.isatty(),
        )
        self._task = self._progress.add_task("", total=sum(job.rounds for job in jobs), runs=f"0/{len(jobs)} runs")

    def __enter__(self) -> _Rounds:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def tick(self) -> None:
        """Look how far all are."""
        if self._progress.disable or time.monotonic() < self._at:
            return
        began = time.monotonic()
        done = self._closed + sum(job.done() for job in self._open.values())
        self._progress.update(self._task, completed=done)
        self._at = time.monotonic() + 20 * (time.monotonic() - began)  # thousands of folders take time to look at

    def ended(self, outcome: Outcome, count: int) -> None:
        """One job more."""
        self._closed += self._open.pop(outcome.job.name).rounds
        self._progress.update(self._task, runs=f"{count}/{len(self._jobs)} runs")
        if self._progress.disable and not self._quiet and outcome.seconds:
            print(f"{count}/{len(self._jobs)} {outcome.job.name}: {outcome.status}", file=sys.stderr, flush=True)


def _about(job: Job) -> dict[str, Any]:
    return {"name": job.name, "run": str(job.folder), **job.about}


def _row(outcome: Outcome) -> dict[str, Any]:
    result = (result_of(outcome.job.folder) or {}) if outcome.status == "finished" else {}
    return (
        _about(outcome.job)
        | {"status": outcome.status, "error": outcome.error}
        | {name: value if type(value := result.get(name)) in (int, float) else None for name in _SHOWN}
    )


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    keys = list(dict.fromkeys(key for row in rows for key in row["settings"]))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["run", *keys, "seed", "status", *_SHOWN])
    for row in rows:
        settings = [row["settings"].get(key, "") for key in keys]
        writer.writerow([row["name"], *settings, row["seed"], row["status"], *(row[name] for name in _SHOWN)])
    return text.getvalue()


def _tell(rows: Sequence[dict[str, Any]], failed: Sequence[Outcome], out: Path) -> None:
    table = Table("run", "status", "accuracy", "NLL", "ECE", "seconds", box=None)
    for row in rows:
        cells = ["-" if row[name] is None else f"{row[name]:.4f}" for name in ("accuracy", "nll", "ece")]
        table.add_row(row["name"], row["status"], *cells, "-" if row["seconds"] is None else f"{row['seconds']:.0f}")
    console.print(table)
    for outcome in failed:
        console.print(f"failed: {outcome.job.name}: {outcome.error or 'no words'}")
    console.print(f"Results:  {out / 'results.csv'}")
    if all(row["status"] == "finished" for row in rows):
        console.print(f"Next:     fedstein compare {out}/*/seed-*")
