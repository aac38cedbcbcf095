"""Learning curves: a metric over rounds, or over all bits that were sent."""

from __future__ import annotations

from collections.abc import Sequence

from fedstein.report.charts import Axis, Chart, Series
from fedstein.report.page import Page
from fedstein.report.story import Evaluated
from fedstein.report.words import NAMES, capital

__all__ = ["add_curves"]


def add_curves(page: Page, names: Sequence[str], evaluated: Sequence[Evaluated]) -> None:
    """A row over rounds and one over bits, of those metrics that were ever measured."""
    measured = [name for name in names if any(name in one.metrics for one in evaluated)]
    page.figures([_over_rounds(name, evaluated) for name in measured])
    page.figures([_over_bits(name, evaluated) for name in measured])


def _over_rounds(name: str, evaluated: Sequence[Evaluated]) -> Chart:
    points = [(one.round, one.metrics[name]) for one in evaluated if name in one.metrics]
    title = f"{capital(NAMES[name])} over rounds"
    return _curve(f"{name}-over-rounds", title, name, Axis("round", 0), "round", points)


def _over_bits(name: str, evaluated: Sequence[Evaluated]) -> Chart:
    points = [(one.upload_bits, one.metrics[name]) for one in evaluated if name in one.metrics]
    title = f"{capital(NAMES[name])} over bits sent"
    return _curve(f"{name}-over-bits", title, name, Axis("bits sent up by all agents", 0), "bits sent", points)


def _curve(chart: str, title: str, name: str, axis: Axis, unit: str, points: Sequence[tuple[int, float]]) -> Chart:
    x, y = [at for at, _ in points], [value for _, value in points]
    better = max if name in ("accuracy", "macro_f1") else min
    best = better(range(len(y)), key=lambda i: y[i])
    alt = f"From {y[0]:.4g} at {unit} {x[0]:,} to {y[-1]:.4g} at {x[-1]:,}; the best is {y[best]:.4g} at {x[best]:,}."
    return Chart(chart, title, alt, axis, Axis(NAMES[name]), [Series(NAMES[name], x, y)])
