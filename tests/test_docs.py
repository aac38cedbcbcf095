"""What the documents show is what the code does."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import fedstein
import fedstein.testing

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(language, after):
    code = re.search(rf"```{language}\n(.*?)```", README[README.index(after) :], re.DOTALL)
    assert code
    return code[1]


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


def test_the_story_in_python_is_told_as_it_is(tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "story.py", tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    words = [line.split(":")[0] for line in done.stdout.splitlines()]
    assert words == ["trained", "uplink", "resumed", "predicts", "forgot", "audit", "pages"]
    largest, budget = re.search(r"has ([\d,]+) of ([\d,]+) bits", done.stdout).groups()
    assert int(largest.replace(",", "")) <= int(budget.replace(",", ""))
    doubts = re.search(r"epistemic ([\d.]+) on digits, ([\d.]+) on noise", done.stdout).groups()
    on_digits, on_noise = map(float, doubts)
    assert on_noise > 3 * on_digits
    assert (tmp_path / "after" / "audit" / "audit.html").is_file()


def test_the_tree_in_the_readme_is_the_tree_that_is_there():
    rooms = {path.name for path in (ROOT / "src" / "fedstein").iterdir() if (path / "__init__.py").is_file()}
    section = README[README.index("## How it is built") : README.index("## Documents")]
    named = {cell for row in re.findall(r"^\| (.*?) \|", section, re.MULTILINE) for cell in re.findall(r"`(\w+)/", row)}
    assert named == rooms


def test_every_seam_is_on_the_page_about_adding_a_part():
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    for registry in fedstein.seams().values():
        assert f"| {registry.seam} |" in page
        assert f"`{registry.group}`" in page
    for suite in re.findall(r"`(check_[a-z_]+)`", page):
        assert hasattr(fedstein.testing, suite)
