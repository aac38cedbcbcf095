"""What a study is: runs to do, and what is found in them."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedstein.report.extra import report_extra
from fedstein.report.figures import STYLE
from fedstein.store import read_metrics, to_json, write
from fedstein.studies.claims import Claim, interval
from fedstein.sweeps import Job

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Findings", "Study", "Tell", "draw", "evaluations", "markdown", "mean_text", "save"]

DPI = 150  # of the PNG

Draw = Callable[["Figure"], None]
Tell = Callable[[int, int], None]  # how many of how many are done


@dataclass(frozen=True)
class Findings:
    """What came out of a study."""

    claims: Sequence[Claim]
    table: Sequence[dict[str, Any]]  # one row a setting: means and 95 % intervals over seeds
    points: Sequence[dict[str, Any]]  # what is behind the figure
    draw: Draw
    size: tuple[float, float]
    more: Mapping[str, Sequence[dict[str, Any]]] = field(default_factory=dict)  # further tables by name


@dataclass(frozen=True)
class Study:
    """A figure of the letter, with ours beside it."""

    name: str
    title: str
    runs: int  # how many seeds it has unless told
    quick_runs: int
    jobs: Callable[[Path, int, bool], list[Job]]  # the folder, seeds, quick
    find: Callable[[Path, int, bool, int, Tell], Findings]  # with so many workers; tells how far it is


def evaluations(run: Path) -> dict[int, dict[str, Any]]:
    """The evaluated rounds of a run."""
    return {line["round"]: line for line in read_metrics(run) if line.get("accuracy") is not None}


def mean_text(values: Sequence[float], digits: int = 4) -> str:
    """Mean and half of the 95 % interval.

    >>> mean_text([1.0, 2.0, 3.0], 2)
    '2.00 ± 2.48'
    """
    mean, low, _ = interval(values)
    return f"{mean:.{digits}f}" + ("" if low is None else f" ± {mean - low:.{digits}f}")


def draw(findings: Findings) -> Figure:
    """The figure, as it will be saved."""
    with report_extra():
        import matplotlib as mpl
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=findings.size, layout="constrained")
        FigureCanvasAgg(figure)
        findings.draw(figure)
    return figure


def save(study: Study, findings: Findings, out: Path) -> list[Path]:
    """Figures, tables and the verdict, as files."""
    with report_extra():
        import matplotlib as mpl

    files = []
    figure = draw(findings)
    with mpl.rc_context(STYLE):
        for kind in ("png", "svg"):
            files.append(out / f"{study.name}.{kind}")
            figure.savefig(files[-1], dpi=DPI, metadata={"Date": None} if kind == "svg" else None)
    tables = {study.name: findings.points, "table": findings.table, **findings.more}
    for name, rows in tables.items():
        files.append(out / f"{name}.csv")
        write(files[-1], _csv(rows).encode())
    files.append(out / "claims.json")
    write(files[-1], to_json({"claims": [claim.row() for claim in findings.claims]}, indent=2).encode())
    files.append(out / "verdict.md")
    write(files[-1], _page(study, findings).encode())
    return files


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _page(study: Study, findings: Findings) -> str:
    """The verdict for people: claims first, then tables."""
    lines = [f"# {study.title}", "", f"![{study.title}]({study.name}.png)", ""]
    lines += [
        "Effects are differences of runs with the same seed, positive where it is as claimed, with 95 % intervals by",
        "Student's t over seeds. A part holds if its whole interval is on the claimed side; the opposite holds if it",
        "is on the other; what includes 0 is undecided. Test set and shifts are the same for all runs: the intervals",
        "say what other seeds would give, not other test images. Nothing is corrected for the number of parts.",
        "",
    ]
    for claim in findings.claims:
        lines += [f"- **{claim.claim}** {claim.verdict} ({claim.measure}; {claim.runs} runs a setting)"]
        lines += [f"  - {part}" for part in claim.parts]
    for name, rows in {"Table": findings.table, **findings.more}.items():
        lines += ["", f"## {name.capitalize()}", "", markdown(rows)]
    return "\n".join(lines) + "\n"


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Rows as a table."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    lines = [keys, ["---"] * len(keys), *([str(row.get(key, "")) for key in keys] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
