"""`fedstein report` and `fedstein compare`: pages for people."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedstein.cli.output import JsonOption, print_json, ready, say, show

__all__ = ["compare", "report"]


def report(
    run: Annotated[Path, typer.Argument(help="A run folder; it may still be running.")],
    out: Annotated[Path | None, typer.Option(help="The page to write; RUN/report.html if left out.")] = None,
    json: JsonOption = False,
) -> None:
    """Write one HTML file that tells the story of a run, and its figures as PNG, SVG and CSV."""
    from fedstein.report import write_report

    ready()
    written = write_report(run, out)
    if json:
        files = [str(file) for file in written.files]
        print_json({"run": str(run), "report": str(written.page), "files": files})
    else:
        _say(written.page)


def compare(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders. Those that differ only in the seed count as one setting.")
    ],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("comparison.html"),
    json: JsonOption = False,
) -> None:
    """Write one HTML file that overlays runs, and its figures as PNG, SVG and CSV."""
    from rich.table import Table

    from fedstein.report import write_comparison

    ready()
    comparison = write_comparison(runs, out)
    if json:
        files = [str(file) for file in comparison.files]
        print_json({"report": str(comparison.page), "files": files, "settings": comparison.rows})
        return
    table = Table("setting", "runs", "accuracy", "ECE", "NLL", "MB up", box=None)
    for row in comparison.rows:
        cells = [f"{row[name]:.4f}" if name in row else "-" for name in ("accuracy", "ece", "nll")]
        table.add_row(row["setting"], str(row["runs"]), *cells, f"{row['upload_bits'] / 8e6:,.3f}")
    show(table)
    _say(comparison.page)


def _say(page: Path) -> None:
    say(f"Report:  {page}\nFigures: {page.parent / (page.stem + '-figures')} (PNG, SVG, CSV)")
