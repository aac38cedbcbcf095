"""Runs beside each other: accuracy against ECE (the letter's second figure), against bits, and final values.

Runs whose settings differ in nothing but the seed are one *setting*: its values are means, with their spread.
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedstein.errors import UserError
from fedstein.report.charts import Axis, Chart, Series
from fedstein.report.extra import check_extra
from fedstein.report.groups import Setting, caution, group, read_run
from fedstein.report.page import Page, table
from fedstein.report.words import NAMES, capital, human_bytes
from fedstein.report.writing import write_page

__all__ = ["Comparison", "write_comparison"]


@dataclass(frozen=True)
class Comparison:
    """What `fedstein compare` has written: the page, its figures, and one row for each setting."""

    page: Path
    files: list[Path]
    rows: list[dict[str, Any]]


def write_comparison(runs: Sequence[Path], out: Path) -> Comparison:
    """Write a page that compares runs, and its figures beside it."""
    check_extra()
    if not runs:
        raise UserError("The runs to compare must be one at least. Got none.")
    if len({run.resolve() for run in runs}) < len(runs):
        raise UserError("The runs to compare must be different ones. Got one of them twice.")
    settings = group([read_run(run) for run in runs])
    for setting in settings:
        if not setting.common:
            raise UserError(
                f"The runs of '{setting.label}' have no evaluated round in common: there is nothing to compare."
            )
    if careful := caution(settings):
        warnings.warn(careful, stacklevel=2)
    rows = [_row(setting) for setting in settings]
    written = write_page(_page(settings, rows, careful), out)
    return Comparison(written.page, written.files, rows)


def _page(settings: list[Setting], rows: list[dict[str, Any]], careful: str) -> Page:
    runs = sum(len(setting.runs) for setting in settings)
    count = f"{len(settings)} setting{'s' * (len(settings) > 1)}"
    page = Page("Comparison", f"{runs} run{'s' * (runs > 1)} of {count}. {careful}".strip())
    page.section(
        "Final values", "Means and standard deviations, at the last round that all runs of a setting have evaluated."
    )
    page.add(_table(settings, rows))
    if any("accuracy" in row for row in rows):
        page.section(
            "Right, and rightly sure", "Up and to the left is better. The bars go from the smallest to the largest."
        )
        page.figures([_trade(settings)], "two")
    shown = [name for name in NAMES if name != "brier" and any(name in row for row in rows)]
    page.section("Over bits", "Means over the runs of a setting; the band goes from the smallest to the largest.")
    page.figures([_over(name, settings, "bits") for name in shown])
    page.section("Over rounds")
    page.figures([_over(name, settings, "rounds") for name in shown])
    page.section("Runs")
    each = [
        (str(run.path), setting.name, run.settings.get("seed"), max(run.evaluated), f"{run.seconds:,.1f}")
        for setting in settings
        for run in setting.runs
    ]
    page.add(table(["run", "setting", "seed", "rounds", "seconds"], each))
    return page


def _row(setting: Setting) -> dict[str, Any]:
    """Means and standard deviations at the last round that all runs have."""
    last = setting.common[-1]
    at = setting.at(last)
    row: dict[str, Any] = {"setting": setting.label, "runs": len(setting.runs), "rounds": last}
    for name in NAMES:
        if all(name in one.metrics for one in at):
            values = [one.metrics[name] for one in at]
            row[name] = statistics.mean(values)
            row[f"{name}_std"] = statistics.stdev(values) if len(values) > 1 else None
    sent = statistics.mean(one.upload_bits for one in at)
    return row | {"upload_bits": sent, "seconds": statistics.mean(run.seconds for run in setting.runs)}


def _table(settings: list[Setting], rows: list[dict[str, Any]]) -> str:
    names = [name for name in NAMES if any(name in row for row in rows)]

    def cell(row: dict[str, Any], name: str) -> str:
        if name not in row:
            return "-"
        spread = row[f"{name}_std"]
        return f"{row[name]:.4f}" + ("" if spread is None else f" ± {spread:.4f}")

    body = [
        [one.label if one.name == one.label else f"{one.name}: {one.label}", row["runs"], f"{row['rounds']:,}",
         *(cell(row, name) for name in names), human_bytes(row["upload_bits"]), f"{row['seconds']:,.1f}"]
        for one, row in zip(settings, rows, strict=True)
    ]  # fmt: skip
    return table(["setting", "runs", "rounds", *(NAMES[name] for name in names), "sent up", "seconds"], body)


def _trade(settings: list[Setting]) -> Chart:
    series, words = [], []
    for i, setting in enumerate(settings):
        metrics = [one.metrics for one in setting.at(setting.common[-1])]
        if not all("ece" in one and "accuracy" in one for one in metrics):
            continue  # a problem with a known posterior among classifiers
        ece, right = [one["ece"] for one in metrics], [one["accuracy"] for one in metrics]
        series.append(
            Series(
                setting.name,
                [statistics.mean(ece)],
                [statistics.mean(right)],
                [min(right)],
                [max(right)],
                [min(ece)],
                [max(ece)],
                line=False,
                colour=i,
            )
        )
        words.append(f"{setting.name}: accuracy {statistics.mean(right):.4f}, ECE {statistics.mean(ece):.4f}")
    return Chart(
        "accuracy-against-ece",
        "Accuracy against ECE",
        "; ".join(words) + ".",
        Axis("ECE"),
        Axis("accuracy"),
        series,
        nearest=True,
    )


def _over(name: str, settings: list[Setting], what: str) -> Chart:
    series, words = [], []
    for i, setting in enumerate(settings):
        rounds = [at for at in setting.common if all(name in one.metrics for one in setting.at(at))]
        if not rounds:
            continue
        values = [[one.metrics[name] for one in setting.at(at)] for at in rounds]
        bits = [statistics.mean(one.upload_bits for one in setting.at(at)) for at in rounds]
        low, high = ([min(v) for v in values], [max(v) for v in values]) if len(setting.runs) > 1 else (None, None)
        means = [statistics.mean(those) for those in values]
        series.append(Series(setting.name, rounds if what == "rounds" else bits, means, low, high, colour=i))
        words.append(f"{setting.name} ends at {means[-1]:.4g}")
    ends = [float(line.x[-1] or 0) for line in series]
    wide = what == "bits" and min(ends) > 0 and max(ends) > 8 * min(ends)
    axis = Axis("round", 0) if what == "rounds" else Axis("bits sent up by all agents", None if wide else 0, log=wide)
    title = f"{capital(NAMES[name])} over {'rounds' if what == 'rounds' else 'bits sent'}"
    return Chart(f"{name}-over-{what}", title, "; ".join(words) + ".", axis, Axis(NAMES[name]), series)
