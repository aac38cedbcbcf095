"""The page: one HTML file with everything inside, from text, tables and charts.

All that comes from a run (names, values, words of a config) goes through `escape`; the page can run no script but
its own, and can load nothing (Content-Security-Policy).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any

from fedstein.report.charts import Chart
from fedstein.store import to_json
from fedstein.version import __version__

__all__ = ["Page", "Raw", "code", "figure", "html", "table", "tiles"]


class Raw(str):
    """Text that is HTML already."""

    __slots__ = ()


def html(value: Any) -> str:
    """A value in HTML."""
    return value if isinstance(value, Raw) else escape(str(value))


class Page:
    """Collects sections, then is written as one file."""

    def __init__(self, title: str, lead: str) -> None:
        self.title, self.lead = title, lead
        self.charts: list[Chart] = []
        self._body: list[str] = []

    def add(self, *parts: str) -> None:
        """Append HTML."""
        self._body += parts

    def section(self, title: str, text: str = "") -> None:
        """Begin a section."""
        self.add(f"<h2>{escape(title)}</h2>", f'<p class="faint">{html(text)}</p>' if text else "")

    def figures(self, charts: Sequence[Chart], kind: str = "") -> None:
        """A row of charts."""
        self.charts += charts
        self.add(f'<div class="charts {kind}">', *(figure(chart) for chart in charts), "</div>")

    def render(self) -> str:
        """The file."""
        script, style = _asset("charts.js"), _asset("page.css")
        data = to_json([chart.json() for chart in self.charts]).replace("<", "\\u003c")
        policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{_digest(script)}'"
        return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{escape(self.title)}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<main>
<header><h1>{escape(self.title)}</h1><button id="theme" type="button">Light / dark</button></header>
<p>{html(self.lead)}</p>
<noscript><p>The charts need JavaScript. The tables below, and the CSV files beside this page, do not.</p></noscript>
{chr(10).join(part for part in self._body if part)}
<footer>Made by fedstein {escape(__version__)}. This file is complete in itself: it loads nothing.</footer>
</main>
<script type="application/json" id="charts">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def _asset(name: str) -> str:
    return files("fedstein.report").joinpath(name).read_text(encoding="utf-8")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def figure(chart: Chart) -> str:
    """The place of a chart."""
    note = f'<p class="note">{html(chart.note)}</p>' if chart.note else ""
    wide = ' class="wide"' if chart.parts else ""
    return f'<figure id="{escape(chart.name)}"{wide}><h3>{escape(chart.title)}</h3>{note}</figure>'


def tiles(rows: Sequence[tuple[str, str]]) -> str:
    """Large numbers with small words under them."""
    return '<ul class="tiles">' + "".join(f"<li><b>{html(v)}</b><span>{html(n)}</span></li>" for v, n in rows) + "</ul>"


def table(head: Sequence[str], rows: Sequence[Sequence[Any]], caption: str = "") -> str:
    """A table in a box that scrolls sideways where it is too wide."""
    top = "".join(f'<th scope="col">{html(cell)}</th>' for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{html(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    words = f"<caption>{html(caption)}</caption>" if caption else ""
    return f'<div class="card scroll"><table>{words}<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def code(text: str) -> str:
    """Commands or settings."""
    return f"<pre><code>{escape(text)}</code></pre>"
