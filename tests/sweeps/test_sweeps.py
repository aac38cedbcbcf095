"""`fedstein sweep`, and the same from Python: real processes on the cores and on a real Ray, failures, stops."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from fedstein.api import train_config
from fedstein.errors import UserError
from fedstein.runs.folder import load_particles, load_run_config
from fedstein.settings import make_config
from fedstein.store import in_use, read_metrics, take_lock
from fedstein.sweeps import Stopped, result_of, run_sweep
from fedstein.sweeps.on_ray import run_jobs_on_ray
from fedstein.sweeps.steps import Step

SMALL = {"rounds": 3, "data": {"name": "digits", "agents": 3}, "model": {"hidden": []}, "method": {"local_steps": 2}}
DIVERGING = {"step": "gradient", "step_size": 1e30}


def command(*arguments, **options):
    return [sys.executable, "-m", "fedstein", *map(str, arguments)], {"text": True, **options}


def fedstein(*arguments):
    line, options = command(*arguments, capture_output=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    return subprocess.run(line, check=False, timeout=300, **options)


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_a_sweep_is_the_runs_it_says_and_given_again_does_nothing(tmp_path):
    sweep = write(
        tmp_path / "sweep.toml",
        'seeds = [0, 1]\n[base]\nrounds = 3\ndata = { name = "digits", agents = 3 }\nmodel.hidden = []\n'
        'method.local_steps = 2\n[grid]\n"method.particles" = [3]\n',
    )
    first = fedstein("sweep", sweep, "--out", tmp_path / "out", "--json")
    assert first.returncode == 0, first.stderr
    told = json.loads(first.stdout)
    assert (told["finished"], told["failed"], len(told["runs"])) == (2, 0, 2)
    # The same as the run alone.
    run = tmp_path / "out" / "particles=3" / "seed-1"
    alone = train_config(run / "config.toml", tmp_path / "alone", progress=False)
    assert load_particles(run).equal(alone.particles)
    assert len((tmp_path / "out" / "results.csv").read_text().splitlines()) == 3
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.safetensors")}
    again = fedstein("sweep", sweep, "--out", tmp_path / "out", "--json")
    assert json.loads(again.stdout)["runs"] == told["runs"]
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.safetensors")} == before


def test_a_failed_run_is_told_and_stops_no_other(tmp_path):
    sweep = write(
        tmp_path / "sweep.toml",
        '[base]\nrounds = 3\ndata = { name = "digits", agents = 3 }\nmodel.hidden = []\n'
        '[[list]]\nname = "bad"\nmethod = { step = "gradient", step_size = 1e30 }\n'
        '[[list]]\nname = "missing"\ndata = { name = "npz", path = "nowhere.npz" }\n'
        '[[list]]\nname = "good"\n',
    )
    ended = fedstein("sweep", sweep, "--out", tmp_path / "out", "--json")
    assert ended.returncode == 1
    rows = {row["name"]: row for row in json.loads(ended.stdout)["runs"]}
    assert rows["good/seed-0"]["status"] == "finished"
    assert rows["good/seed-0"]["accuracy"] > 0
    assert rows["bad/seed-0"]["status"] == "failed"
    assert [rows[f"{name}/seed-0"]["kind"] for name in ("bad", "missing")] == ["diverged", "refused"]
    assert "no longer finite" in rows["bad/seed-0"]["error"]
    assert "nowhere.npz" in rows["missing/seed-0"]["error"]


def test_a_stopped_sweep_goes_on_to_the_same_end(tmp_path):
    text = '[base]\nrounds = 150\ndata = { name = "digits", agents = 3 }\nmethod.local_steps = 5\n'
    text += "[grid]\nmethod.particles = [2, 4]\n"
    sweep = write(tmp_path / "sweep.toml", text)
    line, options = command("sweep", sweep, "--out", tmp_path / "out", "--json", "--workers", 1)
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
    started = tmp_path / "out" / "particles=2" / "seed-0" / "metrics.jsonl"
    for _ in range(600):
        if started.is_file() and started.stat().st_size > 1000:
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    _, words = process.communicate(timeout=120)
    assert process.returncode == 130, words
    assert "the same command goes on" in words
    assert not (tmp_path / "out" / "particles=4" / "seed-0" / "result.json").is_file()
    stopped = result_of(tmp_path / "out" / "particles=2" / "seed-0")
    assert stopped is not None
    assert stopped["interrupted"]
    rows = (tmp_path / "out" / "results.csv").read_text().splitlines()
    assert [row.split(",")[3] for row in rows] == ["status", "stopped", "stopped"]
    ended = fedstein("sweep", sweep, "--out", tmp_path / "out", "--json")
    assert ended.returncode == 0, ended.stderr
    assert all(row["status"] == "finished" for row in json.loads(ended.stdout)["runs"])
    run = tmp_path / "out" / "particles=2" / "seed-0"
    train_config(run / "config.toml", tmp_path / "alone", progress=False)
    assert list(read_metrics(tmp_path / "alone")) == list(read_metrics(run))


STOPPED_BY_A_LOOK = {
    "base": SMALL | {"rounds": 4000, "evaluation": {"every": 4000}},
    "grid": {"method.particles": [2, 4]},
}


class Impatient:
    """Presses Ctrl-C once the first run has rounds."""

    def __init__(self, out):
        self.metrics = out / "particles=2" / "seed-0" / "metrics.jsonl"
        self.ended_jobs = []

    def tick(self):
        if self.metrics.is_file() and self.metrics.stat().st_size > 1000:
            signal.raise_signal(signal.SIGTERM)

    def ended(self, outcome, count):
        self.ended_jobs.append((outcome.job.name, count))


def test_a_sweep_from_python_that_is_stopped_tells_what_is_done(tmp_path):
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Stopped, match="goes on with what is left in") as stopped:
        run_sweep(STOPPED_BY_A_LOOK, tmp_path / "out", workers=1, watch=Impatient(tmp_path / "out"))
    assert isinstance(stopped.value, KeyboardInterrupt)
    assert [outcome.kind for outcome in stopped.value.outcomes] == ["interrupted", "interrupted"]
    assert stopped.value.out == tmp_path / "out"
    result = result_of(tmp_path / "out" / "particles=2" / "seed-0")
    assert result is not None
    assert result["interrupted"]
    rows = (tmp_path / "out" / "results.csv").read_text().splitlines()
    assert [row.split(",")[3] for row in rows] == ["status", "stopped", "stopped"]
    assert signal.getsignal(signal.SIGTERM) is handler
    assert not in_use(tmp_path / "out")


class Counting:
    def __init__(self):
        self.ticks, self.counts, self.seen = 0, [], []

    def tick(self):
        self.ticks += 1

    def ended(self, outcome, count):
        self.counts.append(count)
        self.seen.append(outcome)


def test_a_sweep_from_python_has_typed_rows(tmp_path):
    table = {"seeds": [3], "base": SMALL, "list": [{"name": "good"}, {"name": "bad", "method": DIVERGING}]}
    watch = Counting()
    sweep = run_sweep(table, tmp_path / "out", watch=watch)
    assert watch.ticks > 0
    assert watch.counts == [1, 2]
    assert {outcome.job.name: outcome.kind for outcome in watch.seen} == {
        "good/seed-3": "finished",
        "bad/seed-3": "diverged",
    }
    good, bad = sweep.rows
    assert (good.name, good.seed, good.settings, good.status, good.reason) == ("good/seed-3", 3, {}, "finished", "")
    assert good.run == tmp_path / "out" / "good" / "seed-3"
    assert good.metrics["accuracy"] > 0
    assert good.metrics["total_upload_bits"] == result_of(good.run)["total_upload_bits"]
    assert (bad.status, bad.kind, bad.settings["method.step_size"]) == ("failed", "diverged", 1e30)
    assert "no longer finite" in bad.reason
    assert set(bad.metrics.values()) == {None}
    assert not sweep.complete
    assert sweep.counts == {"finished": 1, "failed": 1, "stopped": 0}
    lines = list(csv.DictReader(io.StringIO(sweep.file.read_text())))
    assert [line["run"] for line in lines] == ["good/seed-3", "bad/seed-3"]
    assert [line["status"] for line in lines] == ["finished", "failed"]
    assert float(lines[0]["accuracy"]) == good.metrics["accuracy"]
    assert lines[1]["method.step_size"] == "1e+30"
    assert sweep.table()["runs"][1]["error"] == bad.reason


def test_what_a_run_has_written_down_since_is_no_other_setting(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    lines = ["from torch import nn", "def make():", "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))"]
    write(tmp_path / "nets_of_a_sweep.py", "\n".join(lines))
    planned = make_config({**SMALL, "rounds": 1, "model": {"module": "nets_of_a_sweep:make"}})
    train_config(planned, tmp_path / "run", progress=False)
    written = load_run_config(tmp_path / "run")
    assert written.model.fingerprint is not None  # the run knows it now, and the plan does not
    assert Step(tmp_path / "run", planned).unlike() == []
    other = planned.model_copy(update={"model": planned.model.model_copy(update={"fingerprint": "0" * 32})})
    assert "model.fingerprint" in Step(tmp_path / "run", other).unlike()[0]
    assert Step(tmp_path / "run", planned.model_copy(update={"rounds": 2})).unlike() == ["rounds: 1 -> 2"]


def everything_in(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"base": SMALL | {"rounds": 2}}, r"particles=1/seed-0 is of other settings \(rounds: 3 -> 2\), and 1 more"),
        ({"grid": {"method.particles": [1, 3]}}, "particles=2/seed-0 has finished, and the sweep does not have it"),
        ({"seeds": [1]}, "particles=1/seed-0 has finished, and the sweep does not have it, and 1 more"),
    ],
)
def test_a_sweep_that_was_changed_is_refused_before_anything_is_written(tmp_path, change, said, finished):
    shutil.copytree(finished, tmp_path / "out")
    before = everything_in(tmp_path / "out")
    with pytest.raises(UserError, match=said):
        run_sweep(GRID | change, tmp_path / "out")
    assert everything_in(tmp_path / "out") == before


def test_a_sweep_may_have_more_runs_than_before_and_one_that_is_damaged(tmp_path, finished):
    shutil.copytree(finished, tmp_path / "out")
    (tmp_path / "out" / "particles=1" / "seed-0" / "config.toml").write_text("no TOML")
    (tmp_path / "out" / "particles=9" / "seed-0").mkdir(parents=True)  # nothing of it is finished
    more = run_sweep(GRID | {"grid": {"method.particles": [1, 2, 3]}}, tmp_path / "out")
    assert [row.kind for row in more.rows] == ["refused", "finished", "finished"]


GRID = {"base": SMALL, "grid": {"method.particles": [1, 2]}}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a sweep that is done."""
    out = tmp_path_factory.mktemp("sweep") / "out"
    assert run_sweep(GRID, out).complete
    return out


def test_two_sweeps_do_not_share_a_folder(tmp_path):
    sweep = write(tmp_path / "sweep.toml", "[base]\nrounds = 3\n")
    (tmp_path / "out").mkdir()
    lock = take_lock(tmp_path / "out")
    ended = fedstein("sweep", sweep, "--out", tmp_path / "out")
    os.close(lock)
    assert ended.returncode == 2
    assert "is in use by process" in ended.stderr
    ended = fedstein("sweep", sweep, "--out", sweep)
    assert ended.returncode == 2
    assert "must be a folder" in ended.stderr


def test_the_same_sweep_on_a_real_ray(tmp_path):
    sweep = write(
        tmp_path / "sweep.toml",
        '[base]\nrounds = 3\ndata = { name = "digits", agents = 3 }\nmodel.hidden = []\nmethod.local_steps = 2\n'
        '[[list]]\nname = "good"\n[[list]]\nname = "bad"\nmethod = { step = "gradient", step_size = 1e30 }\n',
    )
    os.environ.pop("RAY_ADDRESS", None)
    ended = fedstein("sweep", sweep, "--out", tmp_path / "ray", "--ray", "local", "--workers", 2, "--json")
    assert ended.returncode == 1, ended.stderr
    rows = {row["name"]: row for row in json.loads(ended.stdout)["runs"]}
    assert rows["good/seed-0"]["status"] == "finished", rows
    assert "no longer finite" in rows["bad/seed-0"]["error"]
    there = tmp_path / "ray" / "good" / "seed-0"
    here = train_config(there / "config.toml", tmp_path / "here", progress=False)
    assert here.particles.equal(load_particles(there))


def test_a_ray_that_is_not_there_is_told(tmp_path):
    sweep = write(tmp_path / "sweep.toml", "[base]\nrounds = 3\n")
    ended = fedstein("sweep", sweep, "--out", tmp_path / "out", "--ray", "127.0.0.1:1")
    assert ended.returncode == 2
    assert "The '--ray' must be auto, local or HOST:PORT" in ended.stderr
    for address in ("nonsense", "127.0.0.1:99999999"):
        with pytest.raises(UserError, match="HOST:PORT"):
            list(run_jobs_on_ray([], address, None, lambda: None))
