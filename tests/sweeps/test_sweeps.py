"""`fedstein sweep`: the plan, real processes on the cores and on a real Ray, failures, stops."""

from __future__ import annotations

import datetime
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedstein.config import make_config
from fedstein.errors import UserError
from fedstein.runs import load_particles, read_metrics
from fedstein.sweeps import Job, Step, plan_sweep, result_of, run_jobs
from fedstein.sweeps.on_ray import run_jobs_on_ray

SMALL = {"rounds": 3, "data": {"name": "digits", "agents": 3}, "model": {"hidden": []}, "method": {"local_steps": 2}}


def command(*arguments, **options):
    return [sys.executable, "-m", "fedstein", *map(str, arguments)], {"text": True, **options}


def fedstein(*arguments):
    line, options = command(*arguments, capture_output=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    return subprocess.run(line, check=False, timeout=300, **options)


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


@given(
    seeds=st.lists(st.integers(0, 9), min_size=1, max_size=3, unique=True),
    particles=st.lists(st.integers(1, 9), min_size=1, max_size=3, unique=True),
    budgets=st.lists(st.sampled_from(["1d", "2d", "3d"]), min_size=1, max_size=3, unique=True),
    entries=st.integers(0, 3),
)
@settings(max_examples=25, deadline=None)
def test_a_plan_has_every_combination_once(seeds, particles, budgets, entries):
    table = {"seeds": seeds, "base": SMALL, "grid": {"method.particles": particles, "uplink": {"budget": budgets}}}
    if entries:
        table["list"] = [{"name": f"n{number}", "method.batch": number + 1} for number in range(entries)]
    runs = plan_sweep(table)
    assert len(runs) == len(seeds) * len(particles) * len(budgets) * max(entries, 1)
    assert len({(run.name, run.config.seed) for run in runs}) == len(runs)
    found = {
        (run.config.seed, run.config.method.particles, run.config.uplink.budget, run.config.method.batch)
        for run in runs
    }
    assert len(found) == len(runs)
    assert all(run.config.rounds == 3 and run.config.threads == 1 for run in runs)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"seed": [0]}, "Unknown sweep key 'seed'. Did you mean 'seeds'?"),
        ({"seeds": []}, "'seeds' must be a list"),
        ({"seeds": [0, 0]}, "'seeds' must be a list of different whole numbers"),
        ({"seeds": [True]}, "'seeds' must be"),
        ({"grid": {"method.particles": 5}}, "'grid.method.particles' must be a list"),
        ({"grid": {"method.particles": [5, 5]}}, "list of different values"),
        ({"grid": {"seed": [1, 2]}}, "'seeds' is the place"),
        ({"grid": {"method.particels": [5]}}, "Did you mean 'particles'?"),
        ({"grid": {"method.particles": [0]}}, "The sweep's setting 'particles=0'"),
        ({"list": [{"name": "../x"}]}, "must be letters"),
        ({"list": [{"name": "a"}, {"name": "a"}]}, "the same folder 'a'"),
        ({"list": [{"name": "results.csv"}]}, "the sweep's own file"),
        ({"list": [{"name": "a", "seed": 3}]}, "'seeds' is the place"),
        ({"base": {"seed": 3}}, "'seeds' is the place"),
        ({"list": [{"method.particles": 3}], "grid": {"method.particles": [3]}}, "It is in both"),
        ({"list": [{"method.name": "fedavg"}], "grid": {"method": [{"name": "dsvgd"}]}}, "It is in both"),
        ({"base": {"method": "fedavg"}, "grid": {"method.particles": [1, 2]}}, "must be a value or a table"),
        ({"list": [{"method": "fedavg"}], "grid": {"method.particles": [1, 2]}}, "must be a value or a table"),
        ({"base": {"method.name": "fedavg"}, "grid": {"method": ["dsvgd"]}}, "must be a value or a table"),
        ({"grid": {"data.path": ["a/b", "a_b"]}}, "the same folder"),
        ({"grid": {"method.particles": [datetime.date(2020, 1, 1)]}}, "method.particles"),
        ({"grid": {f"method.k{i}": list(range(10)) for i in range(9)}}, "may have 100,000 runs"),
        ({"list": {"name": "a"}}, "each under [[list]]"),
        ({"preset": "nothing"}, "must be one of"),
        ({"base": 3}, "'base' must be a table"),
        ({"seeds": list(range(1000)), "grid": {"method.particles": list(range(1, 999))}}, "may have 100,000 runs"),
    ],
)
def test_mistakes_in_a_plan_are_told(table, words):
    with pytest.raises(UserError) as error:
        plan_sweep(table)
    assert words in str(error.value)


def test_a_sweep_is_the_runs_it_says_and_given_again_does_nothing(tmp_path):
    sweep = write(
        tmp_path / "sweep.toml",
        'seeds = [0, 1]\n[base]\nrounds = 3\ndata = { name = "digits", agents = 3 }\nmodel.hidden = []\n'
        'method.local_steps = 2\n[grid]\n"method.particles" = [3]\n',
    )
    first = fedstein("sweep", sweep, "--out", tmp_path / "out", "--json")
    assert first.returncode == 0, first.stderr
    found = json.loads(first.stdout)
    assert (found["finished"], found["failed"], len(found["runs"])) == (2, 0, 2)
    # The same as the run alone.
    alone = fedstein("train", tmp_path / "out" / "particles=3" / "config-seed-1.toml", "--out", tmp_path / "alone")
    assert alone.returncode == 0, alone.stderr
    run = tmp_path / "out" / "particles=3" / "seed-1"
    assert load_particles(run).equal(load_particles(tmp_path / "alone"))
    assert len((tmp_path / "out" / "results.csv").read_text().splitlines()) == 3
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.safetensors")}
    again = fedstein("sweep", sweep, "--out", tmp_path / "out", "--json")
    assert json.loads(again.stdout)["runs"] == found["runs"]
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.safetensors")} == before


def test_a_failed_run_is_told_and_stops_no_other(tmp_path):
    sweep = write(
        tmp_path / "sweep.toml",
        '[base]\nrounds = 3\ndata = { name = "digits", agents = 3 }\nmodel.hidden = []\n'
        '[[list]]\nname = "bad"\nmethod = { step = "gradient", step_size = 1e30 }\n'
        '[[list]]\nname = "missing"\ndata = { name = "npz", path = "nowhere.npz" }\n'
        '[[list]]\nname = "good"\n',
    )
    found = fedstein("sweep", sweep, "--out", tmp_path / "out", "--json")
    assert found.returncode == 1
    rows = {row["name"]: row for row in json.loads(found.stdout)["runs"]}
    assert rows["good/seed-0"]["status"] == "finished"
    assert rows["good/seed-0"]["accuracy"] > 0
    assert rows["bad/seed-0"]["status"] == "failed"
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
    found = fedstein("sweep", sweep, "--out", tmp_path / "out", "--json")
    assert found.returncode == 0, found.stderr
    assert all(row["status"] == "finished" for row in json.loads(found.stdout)["runs"])
    alone = fedstein("train", tmp_path / "out" / "particles=2" / "config-seed-0.toml", "--out", tmp_path / "alone")
    assert alone.returncode == 0
    assert list(read_metrics(tmp_path / "alone")) == list(read_metrics(tmp_path / "out" / "particles=2" / "seed-0"))


def test_other_settings_in_the_same_folder_are_refused(tmp_path):
    config = make_config(SMALL)
    (outcome,) = run_jobs([Job("one", (Step(tmp_path / "run", config),))], 1)
    assert outcome.status == "finished"
    other = config.model_copy(update={"rounds": 4})
    (tmp_path / "run" / "result.json").unlink()
    (outcome,) = run_jobs([Job("one", (Step(tmp_path / "run", other),))], 1)
    assert outcome.status == "failed"
    assert "rounds: 3 -> 4" in outcome.error


def test_a_finished_run_of_other_settings_is_refused(tmp_path):
    config = make_config(SMALL)
    list(run_jobs([Job("one", (Step(tmp_path / "run", config),))], 1))
    (outcome,) = run_jobs([Job("one", (Step(tmp_path / "run", config.model_copy(update={"seed": 5})),))], 1)
    assert outcome.status == "failed"
    assert "seed: 0 -> 5" in outcome.error


def test_a_run_that_was_killed_before_it_began_is_begun_again(tmp_path):
    (tmp_path / "run").mkdir()
    for name in ("lock", "environment.json", "config.toml.part"):
        (tmp_path / "run" / name).write_text("half")
    (outcome,) = run_jobs([Job("one", (Step(tmp_path / "run", make_config(SMALL)),))], 1)
    assert outcome.status == "finished", outcome.error


def test_a_killed_process_is_a_failed_run(tmp_path):
    killing = [sys.executable, "-c", f"import os; os.kill(os.getpid(), {int(signal.SIGKILL)})"]

    def start(arguments, **options):
        return subprocess.Popen(killing, **options)

    from fedstein.sweeps.jobs import do_job

    outcome = do_job(Job("one", (Step(tmp_path / "run", make_config(SMALL)),)), start)
    assert outcome.status == "failed"
    assert "killed by signal 9 (SIGKILL)" in outcome.error


def test_any_signal_is_told(tmp_path):
    from fedstein.sweeps.jobs import do_job

    def start(arguments, **options):
        return subprocess.Popen([sys.executable, "-c", "import os; os.kill(os.getpid(), 35)"], **options)

    outcome = do_job(Job("one", (Step(tmp_path / "run", make_config(SMALL)),)), start)
    assert (outcome.status, "killed by signal 35" in outcome.error) == ("failed", True)


def test_only_a_divergence_is_let_pass(tmp_path):
    bad = make_config(SMALL | {"method": {"step": "gradient", "step_size": 1e30}})
    good = Step(tmp_path / "good", make_config(SMALL))
    (outcome,) = run_jobs([Job("one", (Step(tmp_path / "bad", bad, may_diverge=True), good))], 1)
    assert outcome.status == "finished"
    missing = make_config(SMALL | {"data": {"name": "npz", "path": "nowhere.npz"}})
    (outcome,) = run_jobs([Job("two", (Step(tmp_path / "missing", missing, may_diverge=True), good))], 1)
    assert outcome.status == "failed"


def test_a_result_that_is_none_does_not_count(tmp_path):
    step = Step(tmp_path / "run", make_config(SMALL))
    list(run_jobs([Job("one", (step,))], 1))
    assert step.finished()
    whole = (tmp_path / "run" / "result.json").read_bytes()
    for damaged in (b"{", b'{"interrupted": false}', whole.replace(b'"rounds": 3', b'"rounds": 2')):
        (tmp_path / "run" / "result.json").write_bytes(damaged)
        assert not step.finished()
    (outcome,) = run_jobs([Job("one", (step,))], 1)
    assert outcome.status == "finished"
    assert step.finished()


def test_two_sweeps_do_not_share_a_folder(tmp_path):
    from fedstein.runs import take_lock

    sweep = write(tmp_path / "sweep.toml", "[base]\nrounds = 3\n")
    (tmp_path / "out").mkdir()
    lock = take_lock(tmp_path / "out")
    found = fedstein("sweep", sweep, "--out", tmp_path / "out")
    os.close(lock)
    assert found.returncode == 2
    assert "is in use by process" in found.stderr
    found = fedstein("sweep", sweep, "--out", sweep)
    assert found.returncode == 2
    assert "must be a folder" in found.stderr


def test_the_same_sweep_on_a_real_ray(tmp_path):
    sweep = write(
        tmp_path / "sweep.toml",
        '[base]\nrounds = 3\ndata = { name = "digits", agents = 3 }\nmodel.hidden = []\nmethod.local_steps = 2\n'
        '[[list]]\nname = "good"\n[[list]]\nname = "bad"\nmethod = { step = "gradient", step_size = 1e30 }\n',
    )
    os.environ.pop("RAY_ADDRESS", None)
    found = fedstein("sweep", sweep, "--out", tmp_path / "ray", "--ray", "local", "--workers", 2, "--json")
    assert found.returncode == 1, found.stderr
    rows = {row["name"]: row for row in json.loads(found.stdout)["runs"]}
    assert rows["good/seed-0"]["status"] == "finished", rows
    assert "no longer finite" in rows["bad/seed-0"]["error"]
    here = tmp_path / "here"
    assert fedstein("train", tmp_path / "ray" / "good" / "config-seed-0.toml", "--out", here).returncode == 0
    assert load_particles(here).equal(load_particles(tmp_path / "ray" / "good" / "seed-0"))


def test_a_ray_that_is_not_there_is_told(tmp_path):
    sweep = write(tmp_path / "sweep.toml", "[base]\nrounds = 3\n")
    found = fedstein("sweep", sweep, "--out", tmp_path / "out", "--ray", "127.0.0.1:1")
    assert found.returncode == 2
    assert "The '--ray' must be auto, local or HOST:PORT" in found.stderr
    for address in ("nonsense", "127.0.0.1:99999999"):
        with pytest.raises(UserError, match="HOST:PORT"):
            list(run_jobs_on_ray([], address, None, lambda: None))
