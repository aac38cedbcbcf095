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
SETTINGS = ["uplink.budget=1.0d", "uplink.feedback=true", "uplink.entries=adaptive", "method.step=gradient",
            "method.step_size=2.0", "evaluation.every=10"]  # fmt: skip


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "one-bit-a-parameter"
        settings = [part for setting in SETTINGS for part in ("--set", setting)]
        subprocess.run(
            [sys.executable, "-m", "fedstein", "train", "--report", "--out", str(run), *settings], check=True
        )
        with sync_playwright() as play:
            browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1400, "height": 1680})
            page.goto((run / "report.html").as_uri())
            page.locator("#accuracy-over-bits .plot svg").hover()
            page.screenshot(path=HERE / "report.png")
            browser.close()


if __name__ == "__main__":
    main()
