"""A sweep from its plan to its table: all runs, side by side, and results.csv."""

from __future__ import annotations

import csv
import io
import os
import signal
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fedstein.engines import cores
from fedstein.errors import UserError
from fedstein.store import take_lock, write
from fedstein.sweeps.jobs import Job, Kind, Outcome, Status
from fedstein.sweeps.plan import Planned, load_sweep, plan_sweep
from fedstein.sweeps.steps import result_of
from fedstein.sweeps.workers import run_jobs

__all__ = ["METRICS", "JobWatcher", "Nobody", "Row", "Stopped", "Sweep", "do_jobs", "run_sweep"]

METRICS = (
    "accuracy",
    "rmse",
    "nll",
    "ece",
    "crps",
    "brier",
    "coverage_90",
    "total_upload_bits",
    "max_upload_bits",
    "seconds",
)
_STATUSES: tuple[Status, ...] = ("finished", "failed", "stopped")


class JobWatcher(Protocol):
    """Looks on while jobs are done; a progress bar."""

    def tick(self) -> None:
        """Called every second or so: a time to look how far all are (`Job.done`)."""
        ...

    def ended(self, outcome: Outcome, count: int) -> None:
        """A job has ended; so many have by now."""
        ...


class Nobody:
    """A watcher that shows nothing."""

    def tick(self) -> None:
        """Nothing is shown."""

    def ended(self, outcome: Outcome, count: int) -> None:
        """Nothing is shown."""


class Stopped(KeyboardInterrupt):
    """Ctrl-C or SIGTERM: every run has ended after its round and keeps what it has.

    Args:
        out: where all of it is.
        outcomes: what became of each job so far, in their order.
    """

    def __init__(self, out: Path, outcomes: Sequence[Outcome]) -> None:
        super().__init__(f"stopped; the same command goes on with what is left in {out}")
        self.out, self.outcomes = out, outcomes


@dataclass(frozen=True)
class Row:
    """What became of one run of a sweep."""

    name: str
    settings: dict[str, Any]  # what is special about it, by dotted keys
    seed: int
    kind: Kind
    status: Status
    reason: str  # why it failed
    run: Path  # its folder
    metrics: dict[str, float | None]  # by the names in METRICS; None where it has none

    @classmethod
    def of(cls, outcome: Outcome) -> Row:
        """With the final metrics of its run, if it has finished."""
        job = outcome.job
        result = (result_of(job.folder) or {}) if outcome.status == "finished" else {}
        metrics = {name: value if type(value := result.get(name)) in (int, float) else None for name in METRICS}
        return cls(job.name, job.settings, job.seed, outcome.kind, outcome.status, outcome.reason, job.folder, metrics)

    def table(self) -> dict[str, Any]:
        """As `fedstein sweep --json` prints it."""
        about = {"name": self.name, "run": str(self.run), "seed": self.seed, "settings": self.settings}
        return about | {"status": self.status, "kind": self.kind, "error": self.reason} | self.metrics


@dataclass(frozen=True)
class Sweep:
    """All runs of a sweep, in the order of its plan."""

    out: Path
    rows: tuple[Row, ...]

    @property
    def complete(self) -> bool:
        """Every run has finished."""
        return all(row.status == "finished" for row in self.rows)

    @property
    def counts(self) -> dict[str, int]:
        """Runs by status."""
        return {status: sum(row.status == status for row in self.rows) for status in _STATUSES}

    @property
    def file(self) -> Path:
        """The same as a table."""
        return self.out / "results.csv"

    def table(self) -> dict[str, Any]:
        """As `fedstein sweep --json` prints it."""
        runs = [row.table() for row in self.rows]
        return {"out": str(self.out), **self.counts, "runs": runs, "files": [str(self.file)]}

    def csv(self) -> str:
        """One line a run: its settings, seed, status and metrics."""
        keys = list(dict.fromkeys(key for row in self.rows for key in row.settings))
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["run", *keys, "seed", "status", *METRICS])
        for row in self.rows:
            settings = [row.settings.get(key, "") for key in keys]
            writer.writerow([row.name, *settings, row.seed, row.status, *(row.metrics[name] for name in METRICS)])
        return text.getvalue()


def run_sweep(
    plan: Path | Mapping[str, Any] | Sequence[Planned],
    out: Path,
    *,
    workers: int | None = None,
    ray: str | None = None,
    watch: JobWatcher = Nobody(),  # noqa: B008  (it has nothing to change)
) -> Sweep:
    """Do many runs, side by side; given again, it goes on with what is left. A failed run stops no other.

    Args:
        plan: SWEEP.toml, the same as a table, or what `plan_sweep` made of it.
        out: where the run folders and results.csv go.
        workers: runs side by side; one a core if None.
        ray: the address of a Ray cluster to run on: `auto`, HOST:PORT, or `local` to start one.
        watch: is told how it goes.

    Raises:
        UserError: a mistake in the plan, or a folder that cannot be used; no run was begun.
        Stopped: after Ctrl-C or SIGTERM; results.csv tells of what is done.
    """
    if isinstance(plan, Path):
        plan = load_sweep(plan)
    elif isinstance(plan, Mapping):
        plan = plan_sweep(plan, choosing=True)
    out = out.resolve()
    jobs = [planned.job(out) for planned in plan]
    _refuse_another_sweep(jobs, out)
    try:
        outcomes = do_jobs(jobs, out, workers=workers, ray=ray, watch=watch)
    except Stopped as stopped:
        _table(out, stopped.outcomes)
        raise
    return _table(out, outcomes)


def _refuse_another_sweep(jobs: Sequence[Job], out: Path) -> None:
    """Refuse a folder with runs of another sweep, before results.csv loses their rows."""
    strangers = []
    for job in jobs:
        with suppress(UserError):  # a damaged folder is the trouble of that run alone, which tells it
            if changed := [line for step in job.steps for line in step.unlike()]:
                strangers.append(f"{job.name} is of other settings ({'; '.join(changed)})")
    planned = {job.folder for job in jobs}
    for folder in sorted(file.parent for file in out.glob("*/seed-*/result.json")):
        if folder not in planned and (result_of(folder) or {}).get("interrupted") is False:
            strangers.append(f"{folder.relative_to(out)} has finished, and the sweep does not have it")
    if strangers:
        more = f", and {len(strangers) - 1} more are not this sweep's" if strangers[1:] else ""
        raise UserError(
            f"The '--out' must be a new folder, or have this sweep's runs only. In {out}, {strangers[0]}{more}. "
            "Choose another '--out', put the sweep back as it was, or delete these runs."
        )


def _table(out: Path, outcomes: Sequence[Outcome]) -> Sweep:
    sweep = Sweep(out, tuple(Row.of(outcome) for outcome in outcomes))
    write(sweep.file, sweep.csv().encode())
    return sweep


def do_jobs(
    jobs: Sequence[Job],
    out: Path,
    *,
    workers: int | None = None,
    ray: str | None = None,
    watch: JobWatcher = Nobody(),  # noqa: B008  (it has nothing to change)
) -> list[Outcome]:
    """All jobs, and what became of them, in their order. The folder `out` is this process's alone meanwhile.

    Args:
        jobs: each with a name of its own.
        out: the folder that all of theirs are in.
        workers: jobs side by side; one a core if None.
        ray: the address of a Ray cluster.
        watch: is told how it goes.

    Raises:
        Stopped: after Ctrl-C or SIGTERM.
    """
    ended: dict[str, Outcome] = {}
    lock = _alone(out)
    try:
        with _sigterm_as_ctrl_c(), closing(_outcomes(jobs, workers, ray, watch)) as outcomes:
            try:
                for outcome in outcomes:
                    ended[outcome.job.name] = outcome
                    watch.ended(outcome, len(ended))
            except KeyboardInterrupt:
                outcomes.close()  # waits: the runs under way keep what they have
                raise Stopped(out, [ended.get(job.name) or job.so_far() for job in jobs]) from None
    finally:
        os.close(lock)
    return [ended[job.name] for job in jobs]


def _alone(out: Path) -> int:
    """The lock of the folder of all runs, which is made if need be."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        return take_lock(out)
    except OSError as error:
        raise UserError(f"The '--out' must be a folder that can be written to. Got {out}: {error.strerror}.") from None


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    """A sweep that is told to end tells its runs. Handlers are the main thread's matter: elsewhere nothing is done."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)


def _outcomes(
    jobs: Sequence[Job], workers: int | None, ray: str | None, watch: JobWatcher
) -> Generator[Outcome, None, None]:
    if ray is None:
        return run_jobs(jobs, workers or cores(), watch.tick)
    from fedstein.sweeps.on_ray import run_jobs_on_ray

    return run_jobs_on_ray(jobs, ray, workers, watch.tick)
