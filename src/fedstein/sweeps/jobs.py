"""A job: steps to do one after the other, each by a process of its own.

A process for each run costs two seconds and buys much: a run that crashes, is killed or leaks takes nothing else with
it, and each has the number of threads that its config says.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from fedstein.errors import UserError
from fedstein.sweeps.steps import Step

__all__ = ["Ending", "Job", "Kind", "Outcome", "Start", "Status", "do_job"]

Start = Callable[..., "subprocess.Popen[str]"]
Kind = Literal["finished", "interrupted", "diverged", "failed", "refused"]
Status = Literal["finished", "failed", "stopped"]

_KINDS = get_args(Kind)
_INTERRUPTED = 130
_LAST_WORDS = 2000  # characters


@dataclass(frozen=True)
class Ending:
    """What became of a step: what programs act on, and what people read."""

    status: Kind
    reason: str = ""

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    @classmethod
    def in_line(cls, text: str) -> Ending | None:
        """What the last line of a process says; None where that is no ending."""
        try:
            told = json.loads(text.strip().splitlines()[-1])
            status, reason = told["status"], told["reason"]
        except (ValueError, KeyError, TypeError, IndexError, RecursionError):
            return None
        return cls(status, reason) if status in _KINDS and isinstance(reason, str) else None


@dataclass(frozen=True)
class Job:
    """Steps that must be done in order, by one worker.

    Args:
        name: no other job has the same.
        steps: each in a folder of its own.
        seed: of its runs.
        settings: what is special about it, by dotted keys.
    """

    name: str
    steps: tuple[Step, ...]
    seed: int = 0
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Of its last step."""
        return self.steps[-1].folder

    @property
    def rounds(self) -> int:
        """Of all its steps."""
        return sum(step.rounds for step in self.steps)

    @property
    def threads(self) -> int:
        """That it needs at most at a time."""
        return max(step.threads for step in self.steps)

    def done(self) -> int:
        """Rounds that are done."""
        return sum(step.done() for step in self.steps)

    def so_far(self) -> Outcome:
        """What its folders say of it."""
        try:
            whole = all(step.finished() for step in self.steps)
        except UserError:  # a file of its folder is damaged: that is told when it is gone on with
            whole = False
        return Outcome(self, "finished" if whole else "interrupted")

    def described(self) -> dict[str, Any]:
        """As `fedstein sweep --json` prints it."""
        return {"name": self.name, "run": str(self.folder), "seed": self.seed, "settings": self.settings}


@dataclass(frozen=True)
class Outcome:
    """What became of a job: what its last step came to, and why."""

    job: Job
    kind: Kind
    reason: str = ""
    seconds: float = 0.0  # of this time; 0 if it was done before

    @property
    def status(self) -> Status:
        """In a word, for a table."""
        if self.kind == "finished":
            return "finished"
        return "stopped" if self.kind == "interrupted" else "failed"


def do_job(job: Job, start: Start = subprocess.Popen) -> Outcome:
    """Do what is left of a job. `start` makes the processes; it raises InterruptedError to make no more."""
    began, worked = time.perf_counter(), False
    for step in job.steps:
        try:
            step.check()
            if step.finished():
                continue
            worked = True
            ending = _run(step, start)
        except InterruptedError:
            ending = Ending("interrupted")
        except UserError as error:
            ending = Ending("refused", str(error))
        except Exception as error:  # whatever is wrong with one job stops no other
            ending = Ending("failed", str(error) or type(error).__name__)
        if ending.status != "finished" and not (step.may_diverge and ending.status == "diverged"):
            return Outcome(job, ending.status, ending.reason, time.perf_counter() - began)
    return Outcome(job, "finished", seconds=time.perf_counter() - began if worked else 0.0)


def _run(step: Step, start: Start) -> Ending:
    """One process, and what it came to."""
    threads = str(step.threads)
    quiet = {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    process = start(
        [sys.executable, "-m", "fedstein.sweeps.work"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env=os.environ | quiet,
        errors="replace",
    )
    try:
        line, words = process.communicate(step.to_json())
    except BaseException:  # this worker is told to stop; its process ends after the round that is under way
        process.terminate()
        process.communicate()  # reads on: a process that cannot write does not end
        raise
    return Ending.in_line(line) or _without_a_line(process.returncode, words)


def _without_a_line(code: int, words: str) -> Ending:
    """Of a process that ended before it could say what became of it."""
    if code == _INTERRUPTED or code in (-signal.SIGINT, -signal.SIGTERM):
        return Ending("interrupted")
    if code < 0:
        names = {number.value: f" ({number.name})" for number in signal.Signals}
        words += f"\nkilled by signal {-code}{names.get(-code, '')}"
    return Ending("failed", words.strip()[-_LAST_WORDS:] or f"the process ended with exit code {code} and no words")
