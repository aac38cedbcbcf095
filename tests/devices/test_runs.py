"""Whole runs on another device: recorded, gone on with, forgotten from and looked at, there and elsewhere."""

from __future__ import annotations

import copy
import json
import shutil
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

import fedstein
from fedstein.devices import CPU
from fedstein.errors import UserError
from fedstein.models import DenseStack
from fedstein.runs.problem import build_problem, crew_of
from fedstein.runs.verbs import fit_config
from fedstein.settings import make_config
from fedstein.store import read_journal
from fedstein.store.lineage import Lineage
from fedstein.streams import stream

DIGITS = (
    "data.name=digits", "data.agents=3", "data.examples=40", "method.particles=2", "method.local_steps=2", "threads=1",
    "rounds=4", "evaluation.every=4", "schedule.agents_per_round=2",
)  # fmt: skip
WORK = ("mm.default", "bmm.default", "addmm.default", "baddbmm.default", "addmm_.default", "sub.Tensor")
METHOD = {"particles": 2, "local_steps": 2, "batch": 10}


def network(width=6):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, width), nn.LayerNorm(width), nn.GELU(), nn.Linear(width, 3))


def some(count=30, seed=0):
    generator = stream(seed, "examples")
    x = torch.randn(count, 5, generator=generator)
    return x, x[:, :3].argmax(1)


def train(device, out=None, rounds=6, module=None, data=None, factor="linear", **more):
    agents = [some(seed=k) for k in range(3)] if data is None else data
    return fedstein.train(
        network() if module is None else module, agents, method=fedstein.DSVGD(factor=factor, **METHOD), rounds=rounds,
        test=some(50, 9), uplink=fedstein.Uplink("8.0d", feedback=True), threads=1, device=device, out=out,
        progress=False, **({"way": "vmap"} | more),
    )  # fmt: skip


def near(device, one, other):
    """Bit for bit on the stand-in, which computes as the CPU does."""
    if torch.device(device).type == "twin":
        assert torch.equal(one, other)
    else:
        torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-3)


@pytest.fixture(autouse=True)
def work_is_done_there(request, work):
    """Whatever a test looks at: where it has the stand-in, something was computed on it."""
    given = getattr(request.node, "callspec", None)
    yield
    if "twin" in request.fixturenames or (given is not None and given.params.get("device") == "twin"):
        assert any(work()[f"aten.{name}"] for name in WORK), work()


def both(device, settings):
    """The same run on the CPU and there; data, what was made of it by a frozen part included, is on the CPU."""
    runs = []
    for place in (CPU, device):
        config = make_config(overrides=[*settings, f"device={place}"])
        problem = build_problem(config)
        prepare = None if problem.network is None else problem.network.prepare
        assert problem.device == place == getattr(prepare, "device", place)
        assert all(data.x.device == CPU for data in (*problem.holdings.agents, problem.judge.test))
        runs.append(fit_config(config, problem=problem))
    return runs


def events(path, name):
    return [event for event in read_journal(path) if event["event"] == name]


def test_a_run_is_that_of_the_cpu_and_says_where_it_was(device, tmp_path):
    here, there = train("cpu", tmp_path / "here"), train(device, tmp_path / "there")
    near(device, here.particles, there.particles)
    assert there.particles.device == CPU
    assert there.config.device == str(device)
    record = json.loads((tmp_path / "there" / "environment.json").read_text())
    assert record["device"] == str(device)
    assert device.type == "mps" or record["accelerator"]
    assert json.loads((tmp_path / "here" / "environment.json").read_text())["device"] == "cpu"
    assert events(tmp_path / "there", "started")[0]["environment"]["device"] == str(device)
    x = some(5)[0]
    near(device, here.predict(x).probabilities, there.predict(x).probabilities)
    assert there.evaluate()["nll"] == pytest.approx(here.evaluate()["nll"], rel=1e-2)
    assert there.report().is_file()


def test_resume_on_the_same_device_says_nothing(device, tmp_path):
    train(device, tmp_path / "run", rounds=3)
    run = fedstein.open(tmp_path / "run").resume(rounds=6, progress=False)
    near(device, train(device).particles, run.particles)


def test_resume_elsewhere_says_so_and_means_the_same(device, tmp_path):
    whole = train("cpu")
    train(device, tmp_path / "run", rounds=3)
    kind = device.type
    with pytest.warns(UserWarning, match=f"began with device {kind}.* and goes on with cpu"):
        run = fedstein.open(tmp_path / "run").resume(rounds=6, device="cpu", progress=False)
    near(device, whole.particles, run.particles)
    assert run._problem.device == CPU
    assert events(tmp_path / "run", "resumed")[0]["environment"]["device"] == "cpu"
    assert fedstein.open(tmp_path / "run").config.device == str(device)  # the settings stay what they were


def test_what_was_trained_where_the_device_is_no_more(twin, stand_in, tmp_path, monkeypatch):
    """Looking at it is done on the CPU, with a warning; going on with it is asked for by name."""
    first = train("twin", tmp_path / "run", rounds=3)
    monkeypatch.setattr(stand_in, "is_available", lambda self: False)
    monkeypatch.setattr("fedstein.api.run.remember_given", lambda path, given: None)
    agents, again = [some(seed=k) for k in range(3)], {"module": network(), "test": some(50, 9)}
    with pytest.warns(UserWarning, match=r"Got 'twin': this torch sees no twin device. Computed on the CPU instead"):
        run = fedstein.open(tmp_path / "run", agents=agents, **again)
    with pytest.warns(UserWarning, match="Computed on the CPU instead"):
        assert run.evaluate()["nll"] == first.metrics["nll"]
    before = (tmp_path / "run" / "journal.jsonl").read_bytes()
    with pytest.raises(UserError, match=r"must be one that is here: cpu"):
        run.resume(progress=False)
    with pytest.raises(UserError, match=r"must be one that is here: cpu"):
        run.forget([2], out=tmp_path / "after", progress=False)
    assert (tmp_path / "run" / "journal.jsonl").read_bytes() == before
    assert not (tmp_path / "after").exists()
    with pytest.warns(UserWarning, match=r"Computed on the CPU instead|goes on with cpu"):
        run.resume(rounds=4, device="cpu", progress=False)


def test_a_run_that_is_older_than_devices_goes_on(tmp_path):
    train("cpu", tmp_path / "run", rounds=3)
    for name in ("config.toml", "journal.jsonl"):
        file = tmp_path / "run" / name
        text = file.read_text().replace('device = "cpu"\n', "").replace('"device":"cpu",', "")
        text = text.replace(',"device":"cpu"', "").replace('"device": "cpu", ', "").replace(', "device": "cpu"', "")
        assert "device" not in text
        file.write_text(text)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = fedstein.open(tmp_path / "run").resume(rounds=6, progress=False)
    assert torch.equal(run.particles, train("cpu").particles)


def test_forgetting_and_its_audit(device, tmp_path):
    said = {}
    for name in ("cpu", str(device)):
        folder = tmp_path / name.replace(":", "-")
        run = train(name, folder / "run")
        after = run.forget([2], repair=2, out=folder / "after", progress=False)
        audit = after.audit(progress=False)
        said[name] = (after.particles, {check.name: check.status for check in audit.checks})
        record = json.loads((folder / "after" / "environment.json").read_text())
        assert record["device"] == name
    near(device, said["cpu"][0], said[str(device)][0])
    if device.type == "twin":
        assert said["cpu"][1] == said[str(device)][1]


def test_an_erasure_may_have_another_device(twin, tmp_path):
    run = train("twin", tmp_path / "run")
    after = run.forget([2], repair=2, out=tmp_path / "after", overrides=["device=cpu"], progress=False)
    assert after.config.device == "cpu"
    other = train("cpu", tmp_path / "other").forget([2], repair=2, out=tmp_path / "after-other", progress=False)
    assert torch.equal(after.particles, other.particles)


def test_a_module_that_is_elsewhere_is_moved_and_said_to_be(device):
    expected = train("cpu").particles
    module = network().to(device)
    with pytest.warns(UserWarning, match=f"The 'module' is on {device}, and the run computes on cpu: a copy is moved"):
        run = train("cpu", module=module)
    assert torch.equal(run.particles, expected)
    assert next(module.parameters()).device == device  # the user's own stays where it is
    near(device, train(device, module=module).particles, expected)  # there already: nothing is said


def test_a_dense_stack_takes_its_own_path_there(device):
    module = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))
    run = train(device, module=module)
    assert type(run._problem.task.model) is DenseStack
    assert run._problem.device == device
    near(device, run.particles, train("cpu", module=module).particles)


def test_data_that_is_on_a_device_comes_to_the_cpu(device):
    data = [tuple(part.to(device) for part in some(seed=k)) for k in range(3)]
    run = train(device, data=data)
    near(device, run.particles, train("cpu").particles)
    near(device, run.predict(data[0][0]).probabilities, train("cpu").predict(some(seed=0)[0]).probabilities)


@pytest.mark.parametrize(
    "more", [(), ("pretrain.rounds=1",), ("model.hidden=[]", "method.factor=kde", "method.distil_steps=2")]
)
def test_settings_alone(device, more):
    """A dense stack, one whose hidden layers are frozen, and factors of a few steps."""
    runs = both(device, [*DIGITS, *more])
    near(device, runs[0].particles, runs[1].particles)
    assert runs[1].metrics["nll"] == pytest.approx(runs[0].metrics["nll"], rel=1e-2)


@pytest.mark.parametrize("name", ["synthetic-gaussian", "synthetic-mixture"])
def test_known_posteriors(device, name):
    more = [f"data.name={name}", "method.factor=kde", "method.distil_steps=2", "method.particles=4", "rounds=2"]
    more += ["data.agents=2", "threads=1"]
    runs = [fit_config(make_config(overrides=[*more, f"device={name}"])) for name in ("cpu", device)]
    near(device, runs[0].particles, runs[1].particles)


def test_networks_by_name_and_their_frozen_part(device, tmp_path, monkeypatch):
    shutil.copy(Path(__file__).parent.parent / "nets.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = [*DIGITS, "model.module=nets:Backbone", "model.particles=['head.*']", "prior.init=module"]
    try:
        runs = both(device, settings)
        (tmp_path / "there.py").write_text(
            f"import nets\n\n\ndef make():\n    return nets.Backbone().to('{device}')\n", encoding="utf-8"
        )
        config = make_config(overrides=[*DIGITS, "model.module=there:make", "model.particles=['head.*']"])
        with pytest.warns(UserWarning, match=f"'there:make' is on {device}, and the run computes on cpu"):
            problem = build_problem(config)
        assert problem.device == CPU
        assert next(problem.network.prepare.whole.parameters()).device == CPU
    finally:
        for name in ("nets", "there"):
            sys.modules.pop(name, None)
    near(device, runs[0].particles, runs[1].particles)


def test_what_travels_to_other_processes_is_on_the_cpu(twin):
    """As actors of Ray make it: from a module given in Python, which is moved where they are."""
    run = train("twin", rounds=1, way="loop")  # whose copy of the module has the values of a particle by now
    problem = run._problem
    crew = crew_of(run.config, Lineage(), problem, run._given)
    travels = copy.copy(crew.build.args[2])  # as it is pickled
    assert travels.model.device == CPU
    task, holdings = crew.build()
    assert task.model.device == twin
    assert len(holdings.agents) == 3
    first = [model.draw(2, stream(0, "first")) for model in (task.model, travels.model, travels.on(twin).model)]
    assert torch.equal(first[0], first[1])
    assert torch.equal(first[0], first[2])


def test_exports_are_of_the_cpu(twin, tmp_path):
    run = train("twin", tmp_path / "run")
    exported = run.export(tmp_path / "export")
    assert exported.program is not None
    assert exported.difference < 1e-4
