"""examples/plugin, installed as a user would, on every engine of one owner, and in a Flower simulation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedstein.deploy.flower.trial import federation
from fedstein.registry import whose_fault

PLUGIN = Path(__file__).parent.parent / "examples" / "plugin"
SETTINGS = (
    "data.name=digits", "data.agents=3", "model.hidden=[]", "threads=1", "rounds=4", "method.name=fedprox",
    "method.step=gradient", "method.step_size=0.1", "uplink.budget=1.0d", "uplink.sparsifier=random-k",
    "uplink.feedback=true", "schedule.order=shuffled", "schedule.agents_per_round=2",
)  # fmt: skip
SETS = [word for setting in SETTINGS for word in ("--set", setting)]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The environment of a process that has the package."""
    folder = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "install"]
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--target", folder, PLUGIN], check=True)
    return os.environ | {"PYTHONPATH": str(folder)}


def fedstein(*words, env, cwd):
    return subprocess.run(
        [sys.executable, "-m", "fedstein", *map(str, words)],
        env=env,
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def alone(installed, tmp_path_factory):
    """A run in one process, and what its command has said."""
    folder = tmp_path_factory.mktemp("alone")
    done = fedstein("train", *SETS, "--out", "run", "--json", env=installed, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "run", json.loads(done.stdout)


def test_its_parts_are_found_and_pass_the_suite(installed, tmp_path):
    components = json.loads(fedstein("components", "--json", env=installed, cwd=tmp_path).stdout)
    assert "random-k" in components["sparsifier"]
    assert "shuffled" in components["scheduler"]
    assert "fedprox" in components["method"]
    assert "method.proximal" in fedstein("methods", env=installed, cwd=tmp_path).stdout
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, str(PLUGIN / "tests")]
    done = subprocess.run(tests, env=installed, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "3 passed" in done.stdout, done.stdout


def test_it_works_on_every_engine_of_one_owner(installed, alone, tmp_path):
    run, result = alone
    more = ("--ray", "local", "--workers", "2")
    done = fedstein("train", *SETS, *more, "--out", "two", "--json", env=installed, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for told in (result, json.loads(done.stdout)):
        assert told["max_upload_bits"] <= told["budget_bits"]
    assert load_bytes(run) == load_bytes(tmp_path / "two")
    bills = [json.loads(line)["uploads"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert all(upload["position_bits"] == 0 for round in bills for upload in round)  # both ends know them
    assert all(upload["kept"] > 80 for round in bills for upload in round)


def test_it_works_in_a_flower_simulation(installed, alone, tmp_path):
    with federation(tmp_path / "site", simulated=True) as here:
        plain = here.environment
        here.environment = lambda: plain() | {"PYTHONPATH": installed["PYTHONPATH"]}
        here.start_link()
        here.flwr("federation", "simulation-config", "@none/default", "trial", "--num-supernodes", "3")
        here.fedstein("flower", "init", "app", *SETS, "--run", "two")
        said = here.flwr("run", "app", "trial", "--stream")
        assert (here.folder / "two" / "result.json").is_file(), said
        assert load_bytes(alone[0]) == load_bytes(here.folder / "two")


def test_without_the_package_its_run_says_what_is_missing(alone, tmp_path):
    told = fedstein("evaluate", alone[0], env=os.environ, cwd=tmp_path)
    assert told.returncode == 2
    assert "Got 'random-k' instead" in told.stderr
    assert "'fedstein components' lists what is installed" in told.stderr


BROKEN = """
def divides(round, agents, count, seed):
    return inner(round)

def inner(round):
    return [1 // round]

def forgets(round, agents, count, seed):
    pass
"""


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """The environment of a process that has a package with schedulers that do not work."""
    folder = tmp_path_factory.mktemp("broken")
    (folder / "broken_parts.py").write_text(BROKEN)
    about = folder / "broken_parts_of_mine-1.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-parts-of-mine\nVersion: 1.2\n")
    points = "".join(f"{name} = broken_parts:{name}\n" for name in ("divides", "forgets"))
    (about / "entry_points.txt").write_text(f"[fedstein.schedulers]\n{points}")
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}


SMALL = ("data.name=digits", "data.agents=3", "model.hidden=[]", "rounds=1")


def test_an_error_in_its_part_is_not_a_bug_in_fedstein(broken, tmp_path):
    words = [word for one in (*SMALL, "schedule.order=divides") for word in ("--set", one)]
    told = fedstein("train", *words, "--out", "run", env=broken, cwd=tmp_path)
    assert told.returncode == 1
    assert "unexpected ZeroDivisionError" in told.stderr
    assert "This arose in broken_parts of broken-parts-of-mine 1.2: please report it to its authors." in told.stderr
    assert "bug in fedstein" not in told.stderr
    assert "FEDSTEIN_TRACEBACK=1 shows where" in told.stderr


def test_what_its_part_has_answered_may_be_the_reason(broken, tmp_path):
    words = [word for one in (*SMALL, "schedule.order=forgets") for word in ("--set", one)]
    told = fedstein("train", *words, "--out", "run", env=broken, cwd=tmp_path)
    assert told.returncode == 1
    assert (
        "This is a bug in fedstein, or in a part from elsewhere that is in use: broken_parts:forgets of" in told.stderr
    )


def test_an_error_in_its_part_is_told_by_a_sweep(broken, tmp_path):
    base = 'rounds = 1\nmodel.hidden = []\ndata = { name = "digits", agents = 3 }\nschedule.order = "divides"\n'
    (tmp_path / "sweep.toml").write_text(f"[base]\n{base}")
    told = fedstein("sweep", "sweep.toml", "--out", "out", "--json", env=broken, cwd=tmp_path)
    assert told.returncode == 1
    (row,) = json.loads(told.stdout)["runs"]
    assert "This arose in broken_parts of broken-parts-of-mine 1.2" in row["error"]


def test_a_bug_of_ours_is_told_as_one():
    with pytest.raises(KeyError) as error:
        raise KeyError("a")
    assert whose_fault(error.value).startswith("This is a bug in fedstein: ")


def load_bytes(run: Path) -> bytes:
    return sorted((run / "checkpoints").glob("*.safetensors"))[-1].read_bytes()
