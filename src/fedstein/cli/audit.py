"""`fedstein audit`: the evidence for an erasure."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from fedstein.cli.output import JsonOption, console, print_json
from fedstein.cli.train import Bar
from fedstein.erasure.audit import audit as make_audit
from fedstein.report import write_audit

__all__ = ["audit"]

_COLOURS = {"pass": "green", "warn": "yellow", "fail": "red"}


class Tier(StrEnum):
    """How thorough."""

    quick = "quick"
    full = "full"


def audit(
    run: Annotated[Path, typer.Argument(help="A run folder that 'fedstein forget' has made.")],
    tier: Annotated[
        Tier, typer.Option(help="quick: three retrained models; full: five, and 16 shadow models.")
    ] = Tier.quick,
    data: Annotated[
        Path | None, typer.Option(help="The folder with the agents' files, where the server does not have them.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Compare a run that forgot with models that never knew, and write RUN/audit/audit.json and audit.html."""

    @contextmanager
    def watch(title: str, rounds: int) -> Iterator[Bar]:
        if not json:
            print(title, file=sys.stderr)
        with Bar(rounds) as bar:
            yield bar

    found = make_audit(run, tier.value, watch, data)
    page, written = write_audit(found)
    if json:
        print_json(found.table | {"report": str(page), "json": str(written)})
        return
    table = Table("", "check", "value", "threshold", box=None, title=Text(f"Audit of {run}"), title_justify="left")
    for check in found.checks:
        cells = ("-" if number is None else f"{number:.4g}" for number in (check.value, check.threshold))
        table.add_row(Text(check.status, style=_COLOURS[check.status]), check.name, *cells)
    console.print(table)
    for check in found.checks:
        if check.status != "pass":
            console.print(f"{check.status}: {check.name}: {check.note}.")
    console.print(f"Verdict:    {found.verdict}, by the worst line\nReport:     {page}\nJSON:       {written}")
