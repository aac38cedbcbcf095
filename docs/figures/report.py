"""Train a run under a budget, write its report, and take the pictures of it that the documents show.

python docs/figures/report.py          needs Chromium and `pip install playwright`
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
SETTINGS = ["uplink.budget=0.2d", "rounds=500", "evaluation.every=20"]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "thin-link"
        settings = [part for setting in SETTINGS for part in ("--set", setting)]
        subprocess.run(
            [sys.executable, "-m", "fedstein", "train", "--report", "--out", str(run), *settings], check=True
        )
        picture(run / "report.html", HERE / "report.png", height=1680, hover="#accuracy-over-bits .plot svg")


def picture(html: Path, png: Path, height: int, hover: str | None = None) -> None:
    """The upper part of a page, as a browser shows it."""
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": height})
        page.goto(html.resolve().as_uri())
        if hover is not None:
            page.locator(hover).hover()
        page.screenshot(path=png)
        browser.close()


if __name__ == "__main__":
    main()
