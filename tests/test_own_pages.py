"""The pages about one's own model and data: their blocks run as they stand."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent
LONG = bool(os.environ.get("FEDSTEIN_LONG"))


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.DOTALL)


def commands(page):
    """What a shell would be given, one command each."""
    text = "".join(blocks(page, "bash")).replace("\\\n", " ")
    return [shlex.split(line, comments=True) for line in text.splitlines() if line.strip()]


def obey(words, folder):
    assert words[0] == "fedstein"
    done = subprocess.run(
        [sys.executable, "-m", "fedstein", *words[1:]], cwd=folder, capture_output=True, text=True, timeout=600,
        check=False, env=os.environ | {"XDG_STATE_HOME": str(folder / "home")},
    )  # fmt: skip
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


def test_the_files_of_the_page_are_those_of_the_example():
    nets = (ROOT / "examples" / "own" / "nets.py").read_text(encoding="utf-8")
    shown = blocks("your-model.md", "python")[0]
    assert shown.partition("\n\n\n")[2].strip() in nets
    assert blocks("your-model.md", "toml")[0] == (ROOT / "examples" / "own" / "cnn.toml").read_text(encoding="utf-8")


@pytest.mark.skipif(not LONG, reason="make test-long: the whole way of a network takes a minute or two")
def test_a_network_of_ones_own_goes_the_whole_way(tmp_path):
    shutil.copytree(ROOT / "examples" / "own", tmp_path, dirs_exist_ok=True)
    said = [obey(words, tmp_path) for words in commands("your-model.md")]
    assert len(said) == 9
    assert (tmp_path / "runs" / "without" / "audit" / "audit.html").is_file()
    assert (tmp_path / "exported" / "mixture.onnx").is_file()
    assert (tmp_path / "runs" / "head" / "agents" / "agent-0" / "features.npy").is_file()


@pytest.mark.parametrize("number", range(2))
def test_the_examples_of_the_page_about_data_print_what_they_say(number, tmp_path, capsys):
    file = tmp_path / "example.py"
    file.write_text(blocks("your-data.md", "python")[number], encoding="utf-8")
    threads = torch.get_num_threads()
    runpy.run_path(str(file))
    torch.set_num_threads(threads)
    assert capsys.readouterr().out == blocks("your-data.md", "text")[number]


def test_a_function_of_ones_own_as_the_page_has_it(tmp_path):
    (tmp_path / "ours.py").write_text(blocks("your-data.md", "python")[2], encoding="utf-8")
    (words,) = commands("your-data.md")
    assert "clinics" in obey(words, tmp_path)
    assert (tmp_path / "runs" / "clinics" / "config.toml").is_file()
