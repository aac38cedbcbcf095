"""How a run shows itself: a line for a prompt, a table for a notebook. Never anybody's examples."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from fedstein.metrics.names import in_words, shown

if TYPE_CHECKING:
    from fedstein.api.run import Run

__all__ = ["in_a_line", "in_a_table"]


def in_a_line(run: Run) -> str:
    """Method, place, rounds and the metrics that matter."""
    where = "in memory" if run.path is None else str(run.path)
    numbers = in_words(run.metrics)
    words = [f"{run.rounds:,} of {run.config.rounds:,} rounds", *([numbers] if numbers else [])]
    return f"Run({run.config.method.name}, {where}: {', '.join(words)})"


def in_a_table(run: Run) -> str:
    """The same and what was sent, as HTML."""
    totals = run.totals
    rows = {
        "method": f"{run.config.method.name}, {run.config.method.particles} particles",
        "rounds": f"{run.rounds:,} of {run.config.rounds:,}",
        **{name: f"{value:.4f}" for name, value in shown(run.metrics).items()},
        "sent up": f"{totals.upload_bits / 8e6:,.3f} MB in {totals.uploads:,} uploads",
        "folder": "none: all is in memory" if run.path is None else str(run.path),
    }
    if run.lineage:
        rows["erased"] = "agents " + ", ".join(map(str, run.lineage.erased))
    cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows.items())
    return f"<table>{cells}</table>"
