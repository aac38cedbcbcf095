"""`fedstein reproduce`: a figure of the letter, with its verdict."""

from __future__ import annotations

import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fedstein.cli.output import JsonOption, console, print_json
from fedstein.cli.sweep import WorkersOption, do_jobs
from fedstein.cli.train import RayOption
from fedstein.errors import FedsteinError
from fedstein.studies import STUDIES, save
from fedstein.sweeps import cores

__all__ = ["reproduce"]


class Figure(StrEnum):
    """The letter's figures."""

    fig2 = "fig2"
    fig3 = "fig3"
    fig4 = "fig4"


def reproduce(
    figure: Annotated[Figure, typer.Argument(help="Which figure of the letter.")],
    runs: Annotated[
        int | None, typer.Option(min=1, max=10_000, help="Seeds of each setting; 100 is the letter's scale.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A few minutes: fewer rounds and settings.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Where all goes; runs/FIGURE or runs/FIGURE-quick if left out.")
    ] = None,
    workers: WorkersOption = None,
    ray: RayOption = None,
    json: JsonOption = False,
) -> None:
    """Reproduce a figure of the letter, with ours beside it: runs, figure, table, and a verdict on each claim.

    Given again, it goes on with what is left; with more '--runs' it keeps those that are done.
    """
    study = STUDIES[figure.value]
    out = (Path("runs") / (f"{study.name}-quick" if quick else study.name) if out is None else out).resolve()
    runs = (study.quick_runs if quick else study.runs) if runs is None else runs
    jobs = study.jobs(out, runs, quick)
    before = sum(job.done() for job in jobs)
    began = time.perf_counter()
    if not json:
        rounds = sum(job.rounds for job in jobs)
        console.print(f"{study.title}: {len(jobs)} jobs of {runs} seeds, {rounds:,} rounds in all, in {out}")
    outcomes = do_jobs(jobs, out, workers, ray, quiet=json)
    if failed := [outcome for outcome in outcomes if outcome.status != "finished"]:
        words = "\n".join(f"  {outcome.job.name}: {outcome.error or outcome.status}" for outcome in failed)
        raise FedsteinError(f"{len(failed)} of {len(jobs)} jobs did not finish; the same command tries again:\n{words}")
    seconds = time.perf_counter() - began
    with Progress(TextColumn("judging"), BarColumn(bar_width=30), MofNCompleteColumn(), TimeElapsedColumn(),
                  console=type(console)(stderr=True), disable=not sys.stderr.isatty()) as bar:  # fmt: skip
        task = bar.add_task("", total=None, visible=False)

        def tell(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, visible=True)

        findings = study.find(out, runs, quick, workers or cores(), tell)
    files = save(study, findings, out)
    worked = sum(job.done() for job in jobs) - before
    if json:
        rate = {"seconds": round(seconds, 1), "rounds": worked}
        claims = [claim.row() for claim in findings.claims]
        print_json({"figure": study.name, "claims": claims, "files": [str(file) for file in files], **rate})
        return
    for claim in findings.claims:
        console.print(f"\n{claim.claim} {claim.verdict}")
        for part in claim.parts:
            console.print(f"    {part}")
    if worked:
        console.print(f"\n{worked:,} rounds in {seconds / 60:.1f} minutes: {worked / seconds:.1f} rounds a second.")
    console.print(f"Verdict:  {out / 'verdict.md'}\nFigure:   {out / f'{study.name}.png'} (SVG and CSV beside it)")
