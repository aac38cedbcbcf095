"""Charts as files: PNG and SVG by matplotlib, and the CSV behind them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedstein.report.charts import Chart
from fedstein.report.extra import report_extra
from fedstein.store import write

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["save_figures"]

# Okabe and Ito's colours, as on the page.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B58900", "#56B4E9", "#444444")
MARKERS = ("o", "s", "^", "D", "v")
DASHES = ("-", "--", ":", "-.")
BESIDE, ACROSS = 36, 70  # characters of a label that has room beside another one in a legend, or alone
STYLE: Any = {
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.size": 9,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "fedstein",
}


def save_figures(charts: Sequence[Chart], folder: Path) -> list[Path]:
    """Write NAME.png, NAME.svg and NAME.csv for each chart."""
    with report_extra():
        import matplotlib as mpl
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for chart in charts:
        with mpl.rc_context(STYLE):
            figure = Figure(figsize=(5.2, 1.8 if chart.parts else 3.6), layout="constrained")
            FigureCanvasAgg(figure)
            axes = figure.add_subplot()
            (_draw_parts if chart.parts else _draw)(chart, axes)
            axes.set_title(chart.title, fontsize=10, loc="left")
            handles, labels = axes.get_legend_handles_labels()
            if len(labels) > 1:
                columns = 2 if max(map(len, labels)) <= BESIDE else 1
                lines = [textwrap.fill(label, ACROSS) for label in labels]
                figure.legend(handles, lines, fontsize=8, ncols=columns, loc="outside lower center")
            for kind in ("png", "svg"):
                path = folder / f"{chart.name}.{kind}"
                figure.savefig(path, dpi=160, metadata={"Date": None} if kind == "svg" else None)
                files.append(path)
        path = folder / f"{chart.name}.csv"
        write(path, chart.csv().encode())
        files.append(path)
    return files


def _draw(chart: Chart, axes: Axes) -> None:
    with report_extra():
        from matplotlib.ticker import EngFormatter

    for i, series in enumerate(chart.series):
        colour = COLOURS[(i if series.colour is None else series.colour) % len(COLOURS)]
        if series.told:
            continue
        label = series.name
        if series.bars is not None:
            lefts, rights, bottoms, tops = zip(*series.bars, strict=True) if series.bars else ((), (), (), ())
            axes.bar(
                lefts,
                [top - bottom for top, bottom in zip(tops, bottoms, strict=True)],
                [0.94 * (right - left) for right, left in zip(rights, lefts, strict=True)],
                bottoms,
                align="edge",
                color=colour,
                label=label,
            )
            continue
        x, y = _floats(series.x), _floats(series.y)
        if not series.line:
            vertical = _spread(y, series.low, series.high)
            across = _spread(x, series.left, series.right)
            axes.errorbar(
                x, y, vertical, across,
                fmt=MARKERS[i % len(MARKERS)], color=colour, label=label,
                markersize=6,
            )  # fmt: skip
            continue
        few = len(x) <= 40
        axes.plot(
            x, y, DASHES[i % len(DASHES)], color=colour, label=label,
            marker=MARKERS[i % len(MARKERS)] if few else None, markersize=3.5,
        )  # fmt: skip
        if series.low is not None and series.high is not None:
            axes.fill_between(x, _floats(series.low), _floats(series.high), color=colour, alpha=0.2, linewidth=0)
    for name, y_value in chart.guides:
        axes.axhline(y_value, color="#666666", linestyle="--", linewidth=1, label=name)
    axes.set(xlabel=chart.x.label, ylabel=chart.y.label)
    if chart.x.low is not None or chart.x.high is not None:
        axes.set_xlim(chart.x.low, chart.x.high)
    if chart.y.low is not None or chart.y.high is not None:
        axes.set_ylim(chart.y.low, chart.y.high)
    if chart.diagonal:
        axes.axline((0, 0), slope=1, color="#666666", linestyle="--", linewidth=1)
    if chart.x.log:
        axes.set_xscale("log")
    elif chart.x.label.startswith("bits"):
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def _draw_parts(chart: Chart, axes: Axes) -> None:
    left = 0.0
    for i, part in enumerate(chart.parts):
        colour = "#E4E4E0" if part.empty else COLOURS[i % len(COLOURS)]
        axes.barh([0], [part.value], left=left, color=colour, label=f"{part.name} ({part.value:,.0f})")
        left += part.value
    axes.set(xlabel="bits", yticks=[])
    axes.grid(visible=False)


def _floats(values: Sequence[float | None]) -> list[float]:
    return [float("nan") if value is None else value for value in values]


def _spread(
    middle: list[float], low: Sequence[float | None] | None, high: Sequence[float | None] | None
) -> list[list[float]] | None:
    if low is None or high is None:
        return None
    below = [max(0.0, m - value) for m, value in zip(middle, _floats(low), strict=True)]
    return [below, [max(0.0, value - m) for m, value in zip(middle, _floats(high), strict=True)]]
