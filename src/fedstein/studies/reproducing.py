"""A figure of the letter from nothing: its runs, what is found in them, and the files that tell of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fedstein.engines import cores
from fedstein.errors import FedsteinError, UserError, nearest
from fedstein.report.extra import check_extra
from fedstein.studies.claims import interval
from fedstein.studies.fig2 import FIG2
from fedstein.studies.fig3 import FIG3
from fedstein.studies.fig4 import FIG4
from fedstein.studies.study import Findings, Study, Tell, save
from fedstein.sweeps import Job, JobWatcher, do_jobs
from fedstein.sweeps.sweep import Nobody

__all__ = ["STUDIES", "Reproduced", "StudyJobs", "reproduce", "study_jobs"]

STUDIES: dict[str, Study] = {study.name: study for study in (FIG2, FIG3, FIG4)}


class StudyJobs(NamedTuple):
    """What a study has to do, with all that was left open decided."""

    jobs: Sequence[Job]
    out: Path
    runs: int


@dataclass(frozen=True)
class Reproduced:
    """A study that is done."""

    study: Study
    findings: Findings
    files: Sequence[Path]
    out: Path
    seconds: float  # that its runs took this time
    rounds: int  # that were done this time


def study_jobs(study: Study, runs: int | None = None, quick: bool = False, out: Path | None = None) -> StudyJobs:
    """The jobs of a study.

    Args:
        study: which.
        runs: seeds of each setting; the study's own number if None.
        quick: fewer rounds and settings.
        out: where all goes; runs/NAME or runs/NAME-quick if None.
    """
    if runs is None:
        runs = study.quick_runs if quick else study.runs
    if runs < 1:
        raise UserError(f"The 'runs' of a study must be at least 1. Got {runs} instead.")
    out = (Path("runs") / (f"{study.name}-quick" if quick else study.name) if out is None else out).resolve()
    return StudyJobs(study.jobs(out, runs, quick), out, runs)


def reproduce(
    name: str,
    *,
    runs: int | None = None,
    quick: bool = False,
    out: Path | None = None,
    workers: int | None = None,
    ray: str | None = None,
    watch: JobWatcher = Nobody(),  # noqa: B008  (it has nothing to change)
    tell: Tell = lambda done, total: None,
) -> Reproduced:
    """Reproduce a figure of the letter, with ours beside it: runs, figure, table, and a verdict on each claim.

    Given again, it goes on with what is left; with more `runs` it keeps those that are done.

    Args:
        name: fig2, fig3 or fig4.
        runs: seeds of each setting; 100 is the letter's scale.
        quick: a few minutes, with fewer rounds and settings.
        out: where all goes; runs/NAME or runs/NAME-quick if None.
        workers: jobs side by side; one a core if None.
        ray: the address of a Ray cluster.
        watch: is told how the runs go.
        tell: is told how many of how many runs are judged, after that.

    Raises:
        UserError: there is no such figure, or what draws it is not installed; nothing was done.
        FedsteinError: runs did not finish; it says which, and why.
        Stopped: after Ctrl-C or SIGTERM.
    """
    if name not in STUDIES:
        raise UserError(f"The figure must be one of {', '.join(STUDIES)}. Got {name!r}. {nearest(name, STUDIES)}")
    check_extra()  # or the runs would be done, and nothing could be drawn
    interval([0.0, 1.0])
    study = STUDIES[name]
    jobs, out, runs = study_jobs(study, runs, quick, out)
    before = sum(job.done() for job in jobs)
    began = time.perf_counter()
    outcomes = do_jobs(jobs, out, workers=workers, ray=ray, watch=watch)
    if failed := [outcome for outcome in outcomes if outcome.status != "finished"]:
        words = "\n".join(f"  {outcome.job.name}: {outcome.reason or outcome.status}" for outcome in failed)
        raise FedsteinError(f"{len(failed)} of {len(jobs)} jobs did not finish; the same command tries again:\n{words}")
    seconds = time.perf_counter() - began
    findings = study.find(out, runs, quick, workers or cores(), tell)
    files = save(study, findings, out)
    return Reproduced(study, findings, files, out, seconds, sum(job.done() for job in jobs) - before)
