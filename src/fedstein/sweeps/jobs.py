"""A job: run folders to fill, one after the other, each by a process of its own.

A process for each run costs two seconds and buys much: a run that crashes, is killed or leaks takes nothing else with
it, and each has the number of threads that its config says.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fedstein.config import Config, differences, to_table, to_toml
from fedstein.errors import UserError
from fedstein.runs import in_use, is_half_made, load_run_config
from fedstein.runs.files import write

__all__ = ["Job", "Outcome", "Start", "Step", "do_job", "result_of"]

Start = Callable[..., "subprocess.Popen[str]"]
_INTERRUPTED = 130
_DIVERGED = "no longer finite"  # in the words of a DivergedError


@dataclass(frozen=True)
class Step:
    """One run folder and what fills it: a config to train, or another verb of the command line."""

    folder: Path
    config: Config | None = None
    verb: tuple[str, ...] = ()  # without the folder; such a verb must go on by itself when it is given again
    rounds: int = 0  # that it does
    inherited: int = 0  # that are in the folder from the run it began from
    may_diverge: bool = False  # the job goes on if particles do not stay finite

    @property
    def threads(self) -> int:
        """That its process may use."""
        return 1 if self.config is None or self.config.threads is None else self.config.threads

    def check(self) -> None:
        """Refuse a folder that is of other settings."""
        if self.config is None or not (self.folder / "config.toml").is_file():
            return
        if changed := differences(to_table(load_run_config(self.folder, careful=False)), to_table(self.config)):
            raise UserError(
                f"The run folder {self.folder} is of other settings ({'; '.join(changed)}). "
                "Delete it, or choose another '--out'."
            )

    def finished(self) -> bool:
        """Nothing is left to do."""
        found = result_of(self.folder)
        if found is None or found["interrupted"] or not (self.folder / "config.toml").is_file():
            return False
        return self.config is None or found.get("rounds") == self.config.rounds

    def done(self) -> int:
        """Rounds that are done, for a progress bar."""
        try:
            with (self.folder / "metrics.jsonl").open("rb") as file:
                lines = sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))
            return max(0, lines - self.inherited)
        except OSError:
            return 0

    def command(self) -> list[str]:
        """The arguments of `fedstein` that begin it or go on with it."""
        if self.config is None:
            return [*self.verb, "--out", str(self.folder), "--json"]
        if (self.folder / "config.toml").is_file():
            return ["resume", str(self.folder), "--json"]
        if in_use(self.folder):
            raise UserError(f"The folder {self.folder} is in use by another process.")
        if is_half_made(self.folder):
            shutil.rmtree(self.folder)
        settings = self.folder.with_name(f"config-{self.folder.name}.toml")
        settings.parent.mkdir(parents=True, exist_ok=True)
        write(settings, to_toml(self.config).encode())
        return ["train", str(settings), "--out", str(self.folder), "--json"]


@dataclass(frozen=True)
class Job:
    """Steps that must be done in order, by one worker."""

    name: str
    steps: tuple[Step, ...]
    about: dict[str, Any] = field(default_factory=dict)  # what a plan knows of it: seed, settings

    @property
    def folder(self) -> Path:
        """Of its last step."""
        return self.steps[-1].folder

    @property
    def rounds(self) -> int:
        """Of all its steps."""
        return sum(step.rounds for step in self.steps)

    def done(self) -> int:
        """Rounds that are done."""
        return sum(step.done() for step in self.steps)

    def so_far(self) -> Outcome:
        """What its folders say of it."""
        return Outcome(self, "finished" if all(step.finished() for step in self.steps) else "stopped")


@dataclass(frozen=True)
class Outcome:
    """What became of a job."""

    job: Job
    status: Literal["finished", "failed", "stopped"]
    error: str = ""
    seconds: float = 0.0  # of this time; 0 if it was done before


def result_of(folder: Path) -> dict[str, Any] | None:
    """The result.json of a run folder, if it is there and whole."""
    try:
        found = json.loads((folder / "result.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and type(found.get("interrupted")) is bool else None


def do_job(job: Job, start: Start = subprocess.Popen) -> Outcome:
    """Do what is left of a job. `start` makes the processes; it raises InterruptedError to make no more."""
    began, worked = time.perf_counter(), False
    for step in job.steps:
        try:
            step.check()
            if step.finished():
                continue
            worked = True
            code, complaint = _run(step, start)
        except InterruptedError:
            return Outcome(job, "stopped", seconds=time.perf_counter() - began)
        except Exception as error:  # whatever is wrong with one job stops no other
            code, complaint = 1, str(error) or type(error).__name__
        if code == _INTERRUPTED or code in (-signal.SIGINT, -signal.SIGTERM):
            return Outcome(job, "stopped", seconds=time.perf_counter() - began)
        if code != 0 and not (step.may_diverge and _DIVERGED in complaint):
            return Outcome(job, "failed", complaint, time.perf_counter() - began)
    return Outcome(job, "finished", seconds=time.perf_counter() - began if worked else 0.0)


def _run(step: Step, start: Start) -> tuple[int, str]:
    """Exit code and last words of one process."""
    threads = str(step.threads)
    quiet = {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    arguments = [sys.executable, "-m", "fedstein", *step.command()]
    process = start(
        arguments,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | quiet,
        errors="replace",
    )
    try:
        _, words = process.communicate()
    except BaseException:  # this worker is told to stop; its process ends after the round that is under way
        process.terminate()
        process.wait()
        raise
    if process.returncode < 0:
        names = {number.value: f" ({number.name})" for number in signal.Signals}
        words += f"\nkilled by signal {-process.returncode}{names.get(-process.returncode, '')}"
    return process.returncode, words.strip()[-2000:]
