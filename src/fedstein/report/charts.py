"""Charts as data: what a figure shows, apart from how it is drawn.

The page draws a chart with charts.js, `figures.py` draws the same one with matplotlib, and its CSV has every point.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Axis", "Chart", "Part", "Series"]

MOST_POINTS = 600  # of one series on a page; files have them all

Numbers = Sequence[float | None]
Bar = tuple[float, float, float, float]  # left, right, bottom, top


@dataclass(frozen=True)
class Axis:
    """A label, and the ends of the axis where they are fixed."""

    label: str
    low: float | None = None
    high: float | None = None
    log: bool = False


@dataclass(frozen=True)
class Series:
    """A line, points or bars. `low` and `high` (and `left`, `right`) are its spread."""

    name: str
    x: Numbers = ()
    y: Numbers = ()
    low: Numbers | None = None
    high: Numbers | None = None
    left: Numbers | None = None
    right: Numbers | None = None
    bars: Sequence[Bar] | None = None
    line: bool = True
    told: bool = False  # not drawn, only told under the mouse and in the CSV
    colour: int | None = None  # if it is not its place in the chart

    def thinned(self) -> Series:
        """At most about `MOST_POINTS` points: the lowest and the highest of each stretch, so that no peak is lost."""
        if len(self.x) <= MOST_POINTS or self.low is not None:
            return self
        stretch = -(-2 * len(self.x) // MOST_POINTS)
        picked: set[int] = {0, len(self.x) - 1}
        for begin in range(0, len(self.x), stretch):
            there = [i for i in range(begin, min(begin + stretch, len(self.x))) if self.y[i] is not None]
            if there:
                picked |= {min(there, key=lambda i: self.y[i] or 0.0), max(there, key=lambda i: self.y[i] or 0.0)}
        places = sorted(picked)
        return Series(self.name, [self.x[i] for i in places], [self.y[i] for i in places], colour=self.colour)


@dataclass(frozen=True)
class Part:
    """A part of a whole."""

    name: str
    value: float
    empty: bool = False  # what is not used


@dataclass(frozen=True)
class Chart:
    """One figure. `alt` says in a sentence what it shows."""

    name: str
    title: str
    alt: str
    x: Axis = Axis("")
    y: Axis = Axis("")
    series: Sequence[Series] = ()
    parts: Sequence[Part] = ()
    note: str = ""
    guides: Sequence[tuple[str, float]] = ()  # horizontal lines
    diagonal: bool = False
    nearest: bool = False  # the mouse finds the nearest point instead of the nearest x

    def json(self) -> dict[str, Any]:
        """What charts.js draws."""
        return {
            "id": self.name,
            "title": self.title,
            "alt": self.alt,
            "x": {"label": self.x.label, "range": [self.x.low, self.x.high], "log": self.x.log},
            "y": {"label": self.y.label, "range": [self.y.low, self.y.high]},
            "series": [_series(series.thinned()) for series in self.series],
            "parts": [vars(part) for part in self.parts] or None,
            "guides": [{"name": name, "y": y} for name, y in self.guides],
            "diagonal": self.diagonal,
            "hover": "nearest" if self.nearest else "x",
        }

    def csv(self) -> str:
        """Every point, one a line."""
        text = io.StringIO()
        write = csv.writer(text, lineterminator="\n").writerow
        if self.parts:
            write(["part", "bits"])
            for part in self.parts:
                write([part.name, part.value])
        elif any(series.bars for series in self.series):
            write(["series", f"{self.x.label}_from", f"{self.x.label}_to", "value"])
            for series in self.series:
                for left, right, bottom, top in series.bars or ():
                    write([series.name, left, right, top - bottom])
                for x, y in zip(series.x, series.y, strict=True):
                    write([series.name, x, x, y])
        else:
            spread = any(series.low is not None for series in self.series)
            write(["series", self.x.label, self.y.label, *(["low", "high"] if spread else [])])
            for series in self.series:
                for i, (x, y) in enumerate(zip(series.x, series.y, strict=True)):
                    ends = [series.low[i], series.high[i]] if series.low is not None and series.high is not None else []
                    write([series.name, x, y, *ends])
        return text.getvalue()


def _series(series: Series) -> dict[str, Any]:
    parts = {key: value for key, value in vars(series).items() if value is not None}
    if series.bars is not None:
        parts |= {"bars": [[_short(v) for v in bar] for bar in series.bars]}
    for key in ("x", "y", "low", "high", "left", "right"):
        if key in parts:
            parts[key] = [_short(value) for value in parts[key]]
    return parts


def _short(value: float | None) -> float | None:
    """Six digits are more than a screen can show."""
    return float(f"{value:.6g}") if isinstance(value, float) else value
