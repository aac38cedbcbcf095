"""`fedstein report` and `fedstein compare`: pages for people."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from fedstein.cli.output import JsonOption, console, print_json
from fedstein.report import write_comparison, write_report

__all__ = ["compare", "report"]


def report(
    run: Annotated[Path, typer.Argument(help="A run folder; it may still be running.")],
    out: Annotated[Path | None, typer.Option(help="The page to write; RUN/report.html if left out.")] = None,
    json: JsonOption = False,
) -> None:
    """Write one HTML file that tells the story of a run, and its figures as PNG, SVG and CSV."""
    page, files = write_report(run, out)
    if json:
        print_json({"run": str(run), "report": str(page), "files": [str(file) for file in files]})
    else:
        _say(page)


def compare(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders. Those that differ only in the seed count as one setting.")
    ],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("comparison.html"),
    json: JsonOption = False,
) -> None:
    """Write one HTML file that overlays runs, and its figures as PNG, SVG and CSV."""
    found = write_comparison(runs, out)
    if json:
        files = [str(file) for file in found.files]
        print_json({"report": str(found.page), "files": files, "settings": found.rows})
        return
    table = Table("setting", "runs", "accuracy", "ECE", "NLL", "MB up", box=None)
    for row in found.rows:
        cells = [f"{row[name]:.4f}" if name in row else "-" for name in ("accuracy", "ece", "nll")]
        table.add_row(row["setting"], str(row["runs"]), *cells, f"{row['upload_bits'] / 8e6:,.3f}")
    console.print(table)
    _say(found.page)


def _say(page: Path) -> None:
    console.print(f"Report:  {page}\nFigures: {page.parent / (page.stem + '-figures')} (PNG, SVG, CSV)")
