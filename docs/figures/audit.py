"""Train the letter's setting, forget two agents, audit it, and take the picture that the documents show.

python docs/figures/audit.py [RUN]      needs Chromium and `pip install playwright`; RUN: one that was audited already
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from report import HERE, picture


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        audited = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(folder) / "without"
        if len(sys.argv) == 1:
            for arguments in (
                ["train", "--preset", "unlearning", "--out", f"{folder}/letter"],
                ["forget", f"{folder}/letter", "--agents", "2,3", "--out", str(audited)],
                ["audit", str(audited)],
            ):
                subprocess.run([sys.executable, "-m", "fedstein", *arguments], check=True)
        picture(audited / "audit" / "audit.html", HERE / "audit.png", height=1500)


if __name__ == "__main__":
    main()
