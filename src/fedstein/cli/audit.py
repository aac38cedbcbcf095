"""`fedstein audit`: the evidence for an erasure."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fedstein.cli.output import JsonOption, on_terminal, print_json, ready, say, show

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
    from rich.table import Table
    from rich.text import Text

    from fedstein import api

    ready()
    evidence = api.open(run, careful=False).audit(tier.value, data, onlooker=on_terminal(json, on_stderr=True))
    page, written = run / "audit" / "audit.html", run / "audit" / "audit.json"
    if json:
        print_json(evidence.table | {"report": str(page), "json": str(written)})
        return
    table = Table("", "check", "value", "threshold", box=None, title=Text(f"Audit of {run}"), title_justify="left")
    for check in evidence.checks:
        cells = ("-" if number is None else f"{number:.4g}" for number in (check.value, check.threshold))
        table.add_row(Text(check.status, style=_COLOURS[check.status]), check.name, *cells)
    show(table)
    for check in evidence.checks:
        if check.status != "pass":
            say(f"{check.status}: {check.name}: {check.note}.")
    say(f"Verdict:    {evidence.verdict}, by the worst line\nReport:     {page}\nJSON:       {written}")
