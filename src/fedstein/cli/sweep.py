"""`fedstein sweep`: many runs from one file."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedstein.cli.output import JsonOption, RayOption, print_json, ready, say, show, warn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedstein.sweeps import Job, Outcome, Sweep

__all__ = ["JobBar", "WorkersOption", "saying_how_to_go_on", "sweep"]

WorkersOption = Annotated[int | None, typer.Option(min=1, max=4096, help="Runs side by side; one a core if left out.")]


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
    from fedstein.sweeps import load_sweep, run_sweep

    ready()
    planned = load_sweep(file)
    out = (Path("runs") / file.stem if out is None else out).resolve()
    jobs = [run.job(out) for run in planned]
    if dry_run:
        if json:
            print_json({"out": str(out), "runs": [job.described() for job in jobs]})
        else:
            for job in jobs:
                say(f"{job.name}: {job.rounds} rounds")
        return
    with JobBar(jobs, json) as bar, saying_how_to_go_on(out):
        done = run_sweep(planned, out, workers=workers, ray=ray, watch=bar)
    if json:
        print_json(done.table())
    else:
        _tell(done)
    if not done.complete:
        raise typer.Exit(1)


@contextmanager
def saying_how_to_go_on(out: Path) -> Iterator[None]:
    """Ctrl-C (or SIGTERM) asks each run to stop after its round; the same command then goes on."""
    try:
        yield
    except KeyboardInterrupt:
        warn(f"stopped; the same command goes on with what is left in {out}")
        raise typer.Exit(130) from None


class JobBar:
    """A progress bar over the rounds of all runs, on stderr; where that is no terminal, a line for each run."""

    def __init__(self, jobs: Sequence[Job], quiet: bool) -> None:
        from fedstein.progress import progress_bar

        self._jobs, self._quiet = jobs, quiet
        self._open = {job.name: job for job in jobs}
        self._closed = 0
        self._at = 0.0
        self._progress = progress_bar("{task.fields[runs]}", "rounds")
        self._task = self._progress.add_task("", total=sum(job.rounds for job in jobs), runs=f"0/{len(jobs)} runs")

    def __enter__(self) -> JobBar:
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


def _tell(done: Sweep) -> None:
    from rich.table import Table

    table = Table("run", "status", "accuracy", "NLL", "ECE", "seconds", box=None)
    for row in done.rows:
        numbers: dict[str, Any] = row.metrics
        cells = ["-" if numbers[name] is None else f"{numbers[name]:.4f}" for name in ("accuracy", "nll", "ece")]
        seconds = "-" if numbers["seconds"] is None else f"{numbers['seconds']:.0f}"
        table.add_row(row.name, row.status, *cells, seconds)
    show(table)
    for row in done.rows:
        if row.status == "failed":
            say(f"failed: {row.name}: {row.reason or 'no words'}")
    say(f"Results:  {done.out / 'results.csv'}")
    if done.complete:
        say(f"Next:     fedstein compare {done.out}/*/seed-*")
