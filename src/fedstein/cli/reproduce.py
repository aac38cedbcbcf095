"""`fedstein reproduce`: a figure of the letter, with its verdict."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fedstein.cli.output import JsonOption, RayOption, print_json, ready, say
from fedstein.cli.sweep import WorkersOption

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
    from fedstein.cli.sweep import JobBar, saying_how_to_go_on
    from fedstein.progress import progress_bar
    from fedstein.studies import STUDIES, reproduce, study_jobs

    ready()
    study = STUDIES[figure.value]
    jobs, out, runs = study_jobs(study, runs, quick, out)
    if not json:
        rounds = sum(job.rounds for job in jobs)
        say(f"{study.title}: {len(jobs)} jobs of {runs} seeds, {rounds:,} rounds in all, in {out}")
    with saying_how_to_go_on(out), JobBar(jobs, json) as bar, progress_bar("judging", "") as judging:
        task = judging.add_task("", total=None, visible=False)

        def tell(done: int, total: int) -> None:
            judging.update(task, completed=done, total=total, visible=True)

        made = reproduce(study.name, runs=runs, quick=quick, out=out, workers=workers, ray=ray, watch=bar, tell=tell)
    if json:
        claims = [claim.row() for claim in made.findings.claims]
        files = [str(file) for file in made.files]
        rate = {"seconds": round(made.seconds, 1), "rounds": made.rounds}
        print_json({"figure": study.name, "claims": claims, "files": files, **rate})
        return
    for claim in made.findings.claims:
        say(f"\n{claim.claim} {claim.verdict}")
        for part in claim.parts:
            say(f"    {part}")
    if made.rounds:
        pace = f"{made.rounds / made.seconds:.1f} rounds a second"
        say(f"\n{made.rounds:,} rounds in {made.seconds / 60:.1f} minutes: {pace}.")
    say(f"Verdict:  {out / 'verdict.md'}\nFigure:   {out / f'{study.name}.png'} (SVG and CSV beside it)")
