"""What the documents show is what the code does."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(language, after):
    found = re.search(rf"```{language}\n(.*?)```", README[README.index(after) :], re.DOTALL)
    assert found
    return found[1]


def numbers(text):
    return [float(number) for number in re.findall(r"\d+\.\d+", text)]


def test_the_readme_example_prints_what_it_says():
    example = (ROOT / "examples" / "quickstart.py").read_text(encoding="utf-8")
    shown = block("python", "## In Python")
    assert example.endswith(shown)
    done = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, timeout=300, check=True)
    said = block("text", "## In Python")
    assert re.sub(r"\d+\.\d+", "#", done.stdout) == re.sub(r"\d+\.\d+", "#", said)
    # Another CPU may round differently; the story must be the same.
    assert numbers(done.stdout) == pytest.approx(numbers(said), abs=0.03)


def test_the_config_page_is_written_from_the_code():
    written = runpy.run_path(str(ROOT / "docs" / "write_config.py"))["text"]()
    assert (ROOT / "docs" / "config.md").read_text(encoding="utf-8") == written, "run 'make docs'"


def test_links_lead_somewhere():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "experiments").glob("*/README.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"
