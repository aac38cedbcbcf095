"""The charts of an erasure: accuracy while the model forgets, and what a membership attack sees afterwards."""

from __future__ import annotations

import torch

from fedstein.report.charts import Axis, Chart, Series
from fedstein.report.page import Page
from fedstein.report.words import NAMES, capital
from fedstein.runs.audit.record import Audit
from fedstein.store import read_metrics

__all__ = ["add_charts"]

_CURVES = {
    "forgotten_label_{}": "forgotten labels, test",
    "retained_label_{}": "retained labels, test",
    "forgotten_{}": "forgotten agents' data",
    "retained_{}": "retained agents' data",
}


def add_charts(page: Page, audit: Audit) -> None:
    """The section; none where there is nothing to draw."""
    charts = []
    if series := _curves(audit):
        start = audit.lineage.newest.start
        alt = "; ".join(f"{one.name} ends at {one.y[-1]:.3f}" for one in series) + "."
        note = f"The erasure began after round {start:,}. Nothing is published before its last round."
        word = NAMES[audit.problem.task.model.likelihood.headline[0]]
        axis = Axis(word, 0, 1) if word == "accuracy" else Axis(word)
        charts.append(
            Chart("forgetting", f"{capital(word)} while forgetting", alt, Axis("round"), axis, series, note=note)
        )
    if audit.losses:
        charts.append(_histogram(audit))
    if charts:
        page.section("What happened", "")
        page.figures(charts, "two")


def _curves(audit: Audit) -> list[Series]:
    """Accuracy, or what is looked at first, in every evaluated round of the erasure, and before it."""
    metric = (audit.problem.task.model.likelihood.headline or ("",))[0]
    start = audit.lineage.newest.start
    lines = [line for line in read_metrics(audit.run) if line["round"] >= start]
    before = audit.table.get("metrics", {}).get("before", {})
    series = []
    for pattern, word in _CURVES.items():
        name = pattern.format(metric)
        points = [(line["round"], line[name]) for line in lines if line.get(name) is not None]
        was = before.get(name.removesuffix(f"_{metric}"), {}).get(metric)
        if was is not None and start:
            points.insert(0, (start, was))
        if points:
            series.append(Series(word, [round for round, _ in points], [value for _, value in points]))
    return series


def _histogram(audit: Audit, bins: int = 24) -> Chart:
    """What a population loss attack sees: if the two shapes are alike, it has nothing to go by."""
    classes = audit.problem.task.model.likelihood.name == "categorical"  # then it is probabilities
    losses = {name: -values.clamp_min(1e-38).log() if classes else -values for name, values in audit.losses.items()}
    every = torch.cat(list(losses.values()))
    low = 0.0 if classes else float(torch.quantile(every, 0.01))
    high = float(torch.quantile(every, 0.99))
    width = (high - low) / bins or 1.0 / bins
    middles = [low + (i + 0.5) * width for i in range(bins)]
    series = []
    for name, values in losses.items():
        places = ((values - low) / width).long().clamp(0, bins - 1)
        shares = (torch.bincount(places, minlength=bins).double() / len(values)).tolist()
        series.append(Series(name, middles, shares))
    attack = audit.table["membership"]
    return Chart(
        "membership",
        "What a membership attack sees",
        f"AUC {attack['auc']:.3f}: 0.5 means that forgotten and unseen examples cannot be told apart.",
        Axis("loss of this model, nats", 0 if classes else None),
        Axis("share of examples", 0),
        series,
        note=f"{attack['forgotten']:,} forgotten examples and {attack['unseen']:,} unseen test examples"
        f"{' of the same labels' if classes else ''}. Alike is good.",
    )
