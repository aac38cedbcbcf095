"""What every engine must pass: whatever carries the messages, a run and its erasures are the same, bit for bit.

Each engine works through its own commands, and its run folders are compared with those of `fedstein train` and
`fedstein forget` in one process. Some cases are part of `make test`; `make test-long` runs them all.
"""

from __future__ import annotations

import json
import os
import shutil
from itertools import product
from pathlib import Path

import pytest

from fedstein.deploy.flower.trial import Federation
from fedstein.runs.folder import load_particles
from fedstein.store import read_metrics

NETS = Path(__file__).parents[1] / "nets.py"
BASE = (
    "data.name=folder",
    "data.agents=3",
    "model.hidden=[]",
    "threads=1",
    "method.particles=3",
    "method.local_steps=2",
    "rounds=5",
    "evaluation.every=2",
)
LINEAR = ("method.factor=linear", "uplink.budget=20.0d", "schedule.agents_per_round=2")
SETTINGS = {
    "plain": (),
    "linear": (*LINEAR, "uplink.feedback=true"),
    "kde": ("method.factor=kde", "method.distil_steps=3", "uplink.budget=2.0d", "schedule.agents_per_round=2"),
    "informed": (
        "uplink.budget=1.0d",
        "uplink.feedback=true",
        "uplink.positions=informed",
        "uplink.entries=adaptive",
        "uplink.common=true",
    ),
    "fedavg": ("method.name=fedavg", "method.particles=1", "uplink.budget=1.0d", "schedule.order=random"),
    "module": ("model.module=nets:make_cnn", *LINEAR),
    "frozen": ("model.module=nets:Backbone", "model.particles=['head.*']", "prior.init=module", "uplink.budget=2.0d"),
    "gru": ("model.module=nets:Rows", *LINEAR),
    "numbers": ("likelihood.name=gaussian", "likelihood.scale=4.0", "likelihood.center=4.5", *LINEAR),
    "dsgld": ("method.name=dsgld", "method.step_size=1e-6", "uplink.budget=2.0d", "schedule.agents_per_round=2"),
}
ERASURES = {
    "agent": ("--method", "take-back", "--by", "agent", "--rounds", "2", "--repair", "3"),
    "server": ("--method", "take-back", "--by", "server", "--repair", "3"),
    "subtract": ("--method", "take-back", "--by", "agent", "--rounds", "2", "--repair", "3", "--subtract"),
    "forget-svgd": ("--method", "forget-svgd", "--rounds", "2", "--repair", "2"),
    "retrain": ("--method", "retrain"),
}
QUICK = {("ray", "module"), ("simulation", "agent")}  # tests/flower/test_deployment.py has some for the deployment


class Ray:
    """`fedstein train --ray`."""

    def __init__(self, request):
        self.here = Federation(
            request.getfixturevalue("tmp_path") / "ray", simulated=True
        )  # a folder; nothing is started
        shutil.copy(NETS, self.here.folder)

    def train(self, name, settings):
        self.here.fedstein("train", *settings, "--ray", "local", "--out", name)
        return self.here.folder / name

    def forget(self, run, words):
        self.here.fedstein("forget", run, *words, "--ray", "local")


class Simulation:
    """`flwr run` on a SuperLink that simulates its nodes."""

    def __init__(self, request):
        self.here = request.getfixturevalue("simulation")
        self.here.flwr("federation", "simulation-config", "@none/default", "trial", "--num-supernodes", "3")

    def train(self, name, settings):
        self.here.fedstein("flower", "init", f"app-{name}", *settings, "--run", name)
        said = self.here.flwr("run", f"app-{name}", "trial", "--stream")
        assert (self.here.folder / name / "result.json").is_file(), said
        return self.here.folder / name

    def forget(self, run, words):
        place = ("--flower", f"app-{run.name}", "--superlink", "trial", "--json")
        erased = json.loads(self.here.fedstein("forget", run, *words, *place))
        assert 1 in erased["confirmed"]
        assert erased["unconfirmed"] == []
        assert not list((run / "agents").rglob("*.safetensors"))  # not even an escrow
        left = {file.name for file in self.memory_of(run).rglob("*") if file.is_file()}
        assert left == {"home.json", "lock"}  # the note that it was forgotten

    def memory_of(self, run):
        """What the agent that is forgotten has kept."""
        return self.here.folder / f"{run.name}-agents" / "agent-1"


class Deployment(Simulation):
    """`flwr run` on a SuperLink with nodes of their own; the server has the test examples only."""

    def __init__(self, request):
        self.here = request.getfixturevalue("deployment")

    def train(self, name, settings):
        data = f"data.path={self.here.folder / 'server'}"
        return super().train(name, [*settings, "--set", data, "--agents", "north,south,west"])

    def memory_of(self, run):
        return self.here.folder / "state" / "south" / json.loads((run / "flower.json").read_text())["model_id"]


ENGINES = {"ray": Ray, "simulation": Simulation, "deployment": Deployment}


def cases(names):
    slow = pytest.mark.skipif("FEDSTEIN_LONG" not in os.environ, reason="make test-long runs it")
    return [pytest.param(*case, marks=[] if case in QUICK else [slow]) for case in product(ENGINES, names)]


def same(there, here):
    """Particles, bills and metrics of every round. A server that has no agent's data cannot measure all of them."""
    assert load_particles(there).equal(load_particles(here))
    for measured, wanted in zip(read_metrics(there), read_metrics(here), strict=True):
        assert measured.keys() >= {"round", "uploads"}
        assert measured == {key: value for key, value in wanted.items() if key in measured}


def train(engine, name, *more):
    """The same settings on an engine and in one process."""
    here = engine.here
    if not (here.folder / "data").exists():
        here.fedstein("data", "split", "data", "--set", "data.name=digits", "--set", "data.agents=3")
    given = (*BASE, f"data.path={here.folder / 'data'}", *more)
    settings = [word for setting in given for word in ("--set", setting)]
    here.fedstein("train", *settings, "--out", f"{name}-one")
    return engine.train(name, settings), here.folder / f"{name}-one"


@pytest.mark.parametrize(("engine", "name"), cases(SETTINGS))
def test_a_run_is_the_same_on_every_engine(engine, name, request):
    same(*train(ENGINES[engine](request), name, *SETTINGS[name]))


@pytest.mark.parametrize(("engine", "name"), cases(ERASURES))
def test_an_erasure_is_the_same_on_every_engine(engine, name, request):
    engine = ENGINES[engine](request)
    run, one = train(engine, f"erase-{name}", *LINEAR, f"recording.escrow={str(name == 'server').lower()}")
    words = ["--agents", "1", *ERASURES[name], "--out"]
    engine.here.fedstein("forget", one, *words, f"{one.name}-after")
    engine.forget(run, [*words, f"{run.name}-after"])
    same(engine.here.folder / f"{run.name}-after", engine.here.folder / f"{one.name}-after")
