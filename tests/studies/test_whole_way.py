"""`experiments/whole_way.py`, the driver of the studies of real federations: on digits, and tiny ones of both."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from fedstein.data.sources.fetch import cache_folder

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
CONFIG = """
rounds = 4
threads = 1
data = { name = "digits", agents = 3 }
model = { module = "own_nets_of_a_study:make", args = { width = 4 } }
method = { factor = "linear", particles = 2, local_steps = 2, likelihood = "mean" }
uplink.budget = "8.0d"
"""
NETS = """
from torch import nn
def make(width):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.Tanh(), nn.Linear(width, 10))
"""


@pytest.fixture
def whole_way(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    spec = spec_from_file_location("whole_way", EXPERIMENTS / "whole_way.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def study(tmp_path):
    folder = tmp_path / "study"
    folder.mkdir()
    (folder / "config.toml").write_text(CONFIG)
    (folder / "own_nets_of_a_study.py").write_text(NETS)
    (folder / "README.md").write_text("above\n<!-- numbers -->\nold\n<!-- end of numbers -->\nbelow\n")
    return folder


def test_the_whole_way_writes_numbers_and_tables_and_does_nothing_twice(whole_way, study, tmp_path, capsys):
    asked = [str(study / "config.toml"), "--forget", "1", "--out", str(tmp_path / "runs"), "--write"]
    whole_way.main(asked)
    numbers = json.loads((study / "numbers.json").read_text())
    assert [len(seed["retrained"]) for seed in numbers["seeds"]] == [3]
    first = numbers["seeds"][0]
    assert first["forgot"]["agents"] == [1]
    assert first["trained"]["parameters"] == 65 * 4 + 5 * 10
    assert first["trained"]["largest_upload_bits"] <= first["trained"]["budget_bits"] == 8 * 310
    page = (study / "README.md").read_text()
    assert page.startswith("above\n<!-- numbers -->")
    assert page.endswith("<!-- end of numbers -->\nbelow\n")
    assert "\nold\n" not in page
    accuracy = first["trained"]["metrics"]["accuracy"]
    assert f"| accuracy | {accuracy:.4f} |" in page
    assert "1 seed; 2 particles of 310 parameters; 4 rounds, at most 2,480 bits" in page
    other = json.loads(json.dumps(first))
    other["trained"]["metrics"]["accuracy"] = accuracy + 0.1
    assert f"| accuracy | {accuracy + 0.05:.4f} ± 0.0707 |" in whole_way.tables([first, other])
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("seed-*/**/*.json")}
    whole_way.main(asked)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("seed-*/**/*.json")} == made
    assert (study / "README.md").read_text() == page
    with pytest.raises(SystemExit, match="other settings"):
        whole_way.main([*asked, "--set", "rounds=5"])


@pytest.mark.skipif("FEDSTEIN_LONG" not in os.environ, reason="make test-long runs it")
def test_a_study_that_was_stopped_goes_on(whole_way, study, tmp_path, monkeypatch):
    asked = [str(study / "config.toml"), "--forget", "1", "--out", str(tmp_path / "runs")]
    monkeypatch.setattr(whole_way.fs.Run, "audit", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        whole_way.main(asked)
    monkeypatch.undo()
    trained = (tmp_path / "runs" / "seed-0" / "trained.json").stat().st_mtime_ns
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    assert len(whole_way.main(asked)["seeds"]) == 1
    assert (tmp_path / "runs" / "seed-0" / "trained.json").stat().st_mtime_ns == trained


TINY = ["rounds=11", "method.particles=2", "method.local_steps=2", "evaluation.every=11", "data.examples=50"]


@pytest.mark.skipif("FEDSTEIN_LONG" not in os.environ, reason="make test-long runs it")
@pytest.mark.parametrize(
    ("study", "file", "forget", "headline"),
    [("watch", "watch_dataset.npy", "3", "accuracy"), ("flights", "flights.csv", "8", "RMSE")],
)
def test_a_tiny_version_of_each_study(tmp_path, study, file, forget, headline):
    if not (cache_folder() / study / file).is_file():
        pytest.skip(f"run: fedstein data get {study}")
    command = [sys.executable, EXPERIMENTS / "whole_way.py", EXPERIMENTS / study / "config.toml", "--forget", forget]
    tiny = [argument for setting in TINY for argument in ("--set", setting)]
    done = subprocess.run(
        [*command, "--out", tmp_path / "runs", *tiny],
        env=os.environ | {"XDG_STATE_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"| {headline} | " in done.stdout
    assert "The audit says " in done.stdout
    record = json.loads((tmp_path / "runs" / "numbers.json").read_text())["seeds"][0]
    assert record["forgot"]["agents"] == [int(forget)]
    assert record["trained"]["largest_upload_bits"] <= record["trained"]["budget_bits"]
    before = record["audit"]["metrics"]["before"]
    assert before["forgotten"].keys() == before["test"].keys()
