"""Runs beside each other: accuracy against ECE (the letter's second figure), against bits, and final values.

Runs whose settings differ in nothing but the seed are one *setting*: its values are means, with their spread.
"""

from __future__ import annotations

import json
import statistics
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedstein.config import flat, to_table
from fedstein.errors import UserError
from fedstein.report.charts import Axis, Chart, Series
from fedstein.report.page import Page, table
from fedstein.report.run import NAMES, human_bytes, write_page
from fedstein.runs import load_checkpoint, load_run_config, read_metrics

__all__ = ["Comparison", "write_comparison"]

# What may differ between runs of one setting: none of it changes what is learnt on average.
_NOT_SETTINGS = ("seed", "threads", "recording.", "evaluation.every")


@dataclass(frozen=True)
class _Run:
    path: Path
    settings: dict[str, Any]
    evaluated: dict[int, dict[str, Any]]  # by round
    seconds: float
    rounds: int  # done


def _common(members: Sequence[_Run]) -> list[int]:
    """The rounds that all runs of a setting have evaluated."""
    return sorted(set.intersection(*(set(run.evaluated) for run in members)))


@dataclass(frozen=True)
class Comparison:
    """What `fedstein compare` found: one row for each setting."""

    page: Path
    files: list[Path]
    rows: list[dict[str, Any]]


def write_comparison(runs: Sequence[Path], out: Path) -> Comparison:
    """Write a page that compares runs, and its figures beside it."""
    if len({run.resolve() for run in runs}) < len(runs):
        raise UserError("The runs to compare must be different ones. Got one of them twice.")
    settings = _settings([_read(run) for run in runs])
    for label, members in settings.items():
        if not _common(members):
            raise UserError(f"The runs of '{label}' have no evaluated round in common: there is nothing to compare.")
    if caution := _caution(settings):
        warnings.warn(caution, stacklevel=2)
    names = _short(list(settings))
    found = [_row(label, members) for label, members in settings.items()]
    count = f"{len(settings)} setting{'s' * (len(settings) > 1)}"
    page = Page("Comparison", f"{len(runs)} run{'s' * (len(runs) > 1)} of {count}. {caution}".strip())
    page.section(
        "Final values", "Means and standard deviations, at the last round that all runs of a setting have evaluated."
    )
    page.add(_table(found, names))
    if any("accuracy" in row["values"] for row in found):
        page.section(
            "Right, and rightly sure", "Up and to the left is better. The bars go from the smallest to the largest."
        )
        page.figures([_trade(settings, names)], "two")
    shown = [name for name in NAMES if name != "brier" and any(name in row["values"] for row in found)]
    page.section("Over bits", "Means over the runs of a setting; the band goes from the smallest to the largest.")
    page.figures([_over(name, settings, names, "bits") for name in shown])
    page.section("Over rounds")
    page.figures([_over(name, settings, names, "rounds") for name in shown])
    page.section("Runs")
    rows = [
        (str(run.path), names[label], run.settings.get("seed"), max(run.evaluated), f"{run.seconds:,.1f}")
        for label, members in settings.items()
        for run in members
    ]
    page.add(table(["run", "setting", "seed", "rounds", "seconds"], rows))
    written, files = write_page(page, out)
    return Comparison(written, files, [{key: value for key, value in row.items() if key != "values"} for row in found])


def _read(path: Path) -> _Run:
    config = load_run_config(path)
    evaluated = {line["round"]: line for line in read_metrics(path) if any(name in line for name in NAMES)}
    if not evaluated:
        raise UserError(f"The run '{path}' has no evaluated round yet: there is nothing to compare.")
    checkpoint = load_checkpoint(path)[0]
    return _Run(path, flat(to_table(config)), evaluated, checkpoint.seconds, checkpoint.round)


def _settings(runs: list[_Run]) -> dict[str, list[_Run]]:
    """The runs of each setting, by a label of what tells it from the others."""

    def essence(run: _Run) -> dict[str, Any]:
        return {key: value for key, value in run.settings.items() if not key.startswith(_NOT_SETTINGS)}

    keys = dict.fromkeys(key for run in runs for key in essence(run))
    differing = [key for key in keys if len({json.dumps(essence(run).get(key)) for run in runs}) > 1]
    differing.sort(key=lambda key: (key != "method.name", key == "rounds"))
    # The settings of one method say nothing about another one.
    if "method.name" in differing:
        sets = [{key for key in essence(run) if key.startswith("method.")} for run in runs]
        everywhere = set.intersection(*sets)
        differing = [key for key in differing if not key.startswith("method.") or key in everywhere]
    found: dict[str, list[_Run]] = {}
    names: dict[str, str] = {}
    for run in runs:
        label = ", ".join(
            f"{run.settings[key]}"
            if key == "method.name"
            else f"{key.split('.')[-1]} {run.settings.get(key, 'not set')}"
            for key in differing
        ) or str(run.settings["method.name"])
        same = json.dumps(essence(run), sort_keys=True)
        while names.setdefault(label, same) != same:  # two settings that the label does not tell apart
            label += " *"
        found.setdefault(label, []).append(run)
    return found


def _short(labels: list[str]) -> dict[str, str]:
    """Names for legends: the labels themselves, or letters where these are long."""
    if max(map(len, labels)) <= 36 or len(labels) > 26:
        return {label: label for label in labels}
    return {label: chr(ord("A") + i) for i, label in enumerate(labels)}


def _caution(settings: dict[str, list[_Run]]) -> str:
    everything = [run.settings for members in settings.values() for run in members]
    cautions = []
    unlike = [
        key
        for key in ("data.name", "data.path", "evaluation.split", "evaluation.ece_bins")
        if len({str(one.get(key)) for one in everything}) > 1
    ]
    if unlike:
        cautions.append(f"They differ in {', '.join(unlike)}, so their numbers do not mean the same.")
    for label, members in settings.items():
        seeds = [run.settings.get("seed") for run in members]
        if len(set(seeds)) < len(seeds):
            cautions.append(f"Of '{label}' several runs have the same seed.")
        short = [str(run.path) for run in members if run.rounds < run.settings["rounds"]]
        if short:
            cautions.append(f"Not finished: {', '.join(short)}.")
    return f"Careful: {' '.join(cautions)}" if cautions else ""


def _row(label: str, members: list[_Run]) -> dict[str, Any]:
    last = _common(members)[-1]
    at = [run.evaluated[last] for run in members]
    values = {name: [line[name] for line in at] for name in NAMES if all(line.get(name) is not None for line in at)}
    row: dict[str, Any] = {"setting": label, "runs": len(members), "rounds": last}
    for name, found in values.items():
        row[name] = statistics.mean(found)
        row[f"{name}_std"] = statistics.stdev(found) if len(found) > 1 else None
    sent = statistics.mean(line["total_upload_bits"] for line in at)
    return row | {"upload_bits": sent, "seconds": statistics.mean(run.seconds for run in members), "values": values}


def _table(rows: list[dict[str, Any]], short: dict[str, str]) -> str:
    names = [name for name in NAMES if any(name in row["values"] for row in rows)]

    def label(full: str) -> str:
        return full if short[full] == full else f"{short[full]}: {full}"

    def cell(row: dict[str, Any], name: str) -> str:
        if name not in row:
            return "-"
        spread = row[f"{name}_std"]
        return f"{row[name]:.4f}" + ("" if spread is None else f" ± {spread:.4f}")

    body = [
        [label(row["setting"]), row["runs"], f"{row['rounds']:,}", *(cell(row, name) for name in names),
         human_bytes(row["upload_bits"]), f"{row['seconds']:,.1f}"]
        for row in rows
    ]  # fmt: skip
    return table(["setting", "runs", "rounds", *(NAMES[name] for name in names), "sent up", "seconds"], body)


def _trade(settings: dict[str, list[_Run]], names: dict[str, str]) -> Chart:
    series, words = [], []
    for i, (label, members) in enumerate(settings.items()):
        at = [run.evaluated[_common(members)[-1]] for run in members]
        ece, right = [line["ece"] for line in at], [line["accuracy"] for line in at]
        series.append(
            Series(
                names[label],
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
        words.append(f"{names[label]}: accuracy {statistics.mean(right):.4f}, ECE {statistics.mean(ece):.4f}")
    return Chart(
        "accuracy-against-ece",
        "Accuracy against ECE",
        "; ".join(words) + ".",
        Axis("ECE"),
        Axis("accuracy"),
        series,
        nearest=True,
    )


def _over(name: str, settings: dict[str, list[_Run]], names: dict[str, str], what: str) -> Chart:
    series, words = [], []
    for i, (label, members) in enumerate(settings.items()):
        rounds = [at for at in _common(members) if all(run.evaluated[at].get(name) is not None for run in members)]
        if not rounds:
            continue
        values = [[run.evaluated[at][name] for run in members] for at in rounds]
        bits = [statistics.mean(run.evaluated[at]["total_upload_bits"] for run in members) for at in rounds]
        low, high = ([min(v) for v in values], [max(v) for v in values]) if len(members) > 1 else (None, None)
        means = [statistics.mean(found) for found in values]
        series.append(Series(names[label], rounds if what == "rounds" else bits, means, low, high, colour=i))
        words.append(f"{names[label]} ends at {means[-1]:.4g}")
    ends = [float(line.x[-1] or 0) for line in series]
    wide = what == "bits" and min(ends) > 0 and max(ends) > 8 * min(ends)
    axis = Axis("round", 0) if what == "rounds" else Axis("bits sent up by all agents", None if wide else 0, log=wide)
    title = f"{NAMES[name][0].upper()}{NAMES[name][1:]} over {'rounds' if what == 'rounds' else 'bits sent'}"
    return Chart(f"{name}-over-{what}", title, "; ".join(words) + ".", axis, Axis(NAMES[name]), series)
