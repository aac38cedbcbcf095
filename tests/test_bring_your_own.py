"""A stranger's networks and numbers, by name, through the verbs: train, resume, evaluate, report, forget, audit."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import fedstein as fs
from fedstein.data import load_digits
from fedstein.models.named import PARTICLES
from fedstein.sweeps.steps import Step

NETS = Path(__file__).with_name("nets.py")
LINEAR = (
    "method.particles=3", "method.factor=linear", "method.likelihood=mean", "method.temperature=0.01",
    "method.stiffness=20", "method.local_steps=4", "method.step_size=0.1", "recording.escrow=true",
)  # fmt: skip
DIGITS = ("data.name=digits", "data.agents=4", "threads=1", "evaluation.every=4", "uplink.budget=4.0d", *LINEAR)


@pytest.fixture
def nets(tmp_path, monkeypatch):
    """A folder to work in, with a file of one's own."""
    shutil.copy(NETS, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    yield tmp_path
    sys.modules.pop("nets", None)


def train(*settings, rounds=8, out="a"):
    return fs.train_config(fs.config(None, f"rounds={rounds}", *settings), out, progress=False)


def story(run, tmp_path):
    """What comes after training: an erasure and its evidence."""
    after = run.forget([2], repair=6, out=tmp_path / "after", progress=False)
    assert after.lineage.erased == (2,)
    audit = after.audit(progress=False)
    status = {check.name: check.status for check in audit.checks}
    assert status["provenance"] == status["purged"] == status["never scheduled again"] == "pass"
    assert after.report().is_file()
    return after


def test_a_cnn_goes_through_every_verb(nets):
    settings = (*DIGITS, "model.module=nets:make_cnn", "model.args={width = 6}")
    first = train(*settings)
    record = json.loads((nets / "a" / "model.json").read_text())
    assert (record["module"], record["args"]) == ("nets:make_cnn", {"width": 6})
    assert record["parameters"]["0.weight"] == "6x1x3x3 float32 learnt"
    assert first.config.model.way in ("vmap", "loop")  # measured once, and written down
    run = fs.open("a").resume(rounds=12, progress=False)
    at_once = train(*settings, f"model.way={first.config.model.way}", rounds=12, out="b")
    assert torch.equal(run.particles, at_once.particles)
    assert run.evaluate()["accuracy"] == run.metrics["accuracy"] > 0.5
    digits = load_digits()
    assert run.predict(digits.test.x).probabilities.shape == (360, 10)
    after = story(run, nets)
    assert len(fs.compare(["b", after], nets / "compared.html").rows) == 2


def test_a_step_of_a_sweep_is_known_by_its_folder(nets):
    settings = (*DIGITS, "model.module=nets:make_cnn")
    train(*settings, rounds=2)
    assert Step(nets / "a", fs.config(None, "rounds=2", *settings), rounds=2).unlike() == []
    (changed,) = Step(nets / "a", fs.config(None, "rounds=2", *settings, "model.args={width=6}"), rounds=2).unlike()
    assert changed.startswith("model.args")


def test_what_vmap_cannot_go_through_is_looped_over(nets):
    run = train(*DIGITS, "model.module=nets:Rows", rounds=4)
    assert run.config.model.way == "loop"
    assert fs.open("a").resume(rounds=5, progress=False).rounds == 5
    story(fs.open("a"), nets)


def test_a_frozen_backbone_costs_nothing_on_the_way(nets):
    digits = load_digits()
    backbone = importlib.import_module("nets").Backbone()
    with torch.no_grad():
        backbone(digits.train.x)  # so that batch norm has statistics of its own
    save_file(backbone.state_dict(), nets / "w.safetensors")
    run = train(
        *DIGITS, "model.module=nets:Backbone", "model.particles=['head.*']", "model.weights=w.safetensors",
        "prior.init=module", rounds=4,
    )  # fmt: skip
    assert run.particles.shape == (3, 12 * 10 + 10)
    assert all(bill.bits <= 4 * 130 for bill in run.bills)
    (nets / "w.safetensors").unlink()  # the run has kept it
    after = story(fs.open("a").resume(rounds=6, progress=False), nets)
    kept = fs.open("after").predict(digits.test.x).probabilities
    assert torch.equal(kept, after.predict(digits.test.x).probabilities)


def touched(run, tmp_path, name):
    """The line of the audit about parameters, and the whole run's record of its values."""
    after = run.forget([2], repair=3, out=tmp_path / name, progress=False)
    (check,) = (check for check in after.audit(progress=False).checks if check.name == "parameters touched")
    return check, json.loads((tmp_path / name / "model.json").read_text()) if run.config.model.module else {}


def test_what_is_frozen_is_the_agents_or_comes_from_outside(nets, monkeypatch):
    """Public values never saw the agents' data: nothing is left of them there. Values that a federation learnt may."""
    monkeypatch.setattr("fedstein.runs.audit.audit.TIERS", {"quick": (2, 0)})
    frozen = (*DIGITS, "model.module=nets:Backbone", "model.particles=['head.*']")
    check, record = touched(train(*frozen, rounds=4, out="own"), nets, "own-after")
    assert (check.status, record["weights_of"]) == ("pass", None)
    assert "'nets:Backbone' brought, from outside" in check.note
    save_file(importlib.import_module("nets").Backbone().state_dict(), nets / "w.safetensors")
    public = train(*frozen, "model.weights=w.safetensors", rounds=4, out="public")
    check, record = touched(public, nets, "public-after")
    assert (check.status, record["weights_of"]) == ("pass", None)
    assert "'model.weights' brought, from outside" in check.note
    # With the header that an export of a run has: somebody's federation has learnt it.
    save_file(importlib.import_module("nets").Backbone().state_dict(), nets / "w.safetensors", {PARTICLES: "ab" * 32})
    again = train(*frozen, "model.weights=w.safetensors", rounds=4, out="again")
    (nets / "w.safetensors").unlink()  # the run has kept where it came from
    check, record = touched(again, nets, "again-after")
    assert check.status == "warn"
    assert "exported from a run" in check.note
    assert record["weights_of"] == "ab" * 32


def test_features_of_a_run_are_the_agents(nets, monkeypatch):
    monkeypatch.setattr("fedstein.runs.audit.audit.TIERS", {"quick": (2, 0)})
    train(*DIGITS, "model.hidden=[8]", rounds=4, out="features")
    run = train(*DIGITS, "model.hidden=[8]", "model.features=features", rounds=4, out="last")
    check, _ = touched(run, nets, "after")
    assert check.status == "warn"
    assert "come from another run, which may have seen" in check.note


def test_numbers_have_their_own_likelihood_and_metrics(nets, generator):
    (nets / "data").mkdir()
    weights = torch.tensor([3.0, -2.0, 1.0])
    for name, count in (("test", 200), *((f"agent-{agent}", 60) for agent in range(4))):
        x = torch.randn(count, 3, generator=generator)
        y = 50 + 10 * (x @ weights) + 5 * torch.randn(count, generator=generator)
        np.savez(nets / "data" / f"{name}.npz", x=x.numpy(), y=y.numpy())
    run = train(
        "data.name=folder", "data.path=data", "data.agents=4", "threads=1", "evaluation.every=20",
        "uplink.budget=16.0d", "model.module=nets:make_regressor", "likelihood.name=gaussian",
        "likelihood.center=50", "likelihood.scale=40", "likelihood.std=5", *LINEAR,
        "method.step_size=0.005", "method.stiffness=100", "method.local_steps=20", rounds=40,
    )  # fmt: skip
    assert {"rmse", "nll", "crps", "coverage_90"} <= run.metrics.keys()
    assert "accuracy" not in run.metrics
    assert run.metrics["rmse"] < 20  # the targets have a standard deviation of 38
    prediction = run.predict(torch.zeros(2, 3))
    assert prediction.mean.shape == (2, 1)
    assert (prediction.epistemic >= 0).all()
    assert "accuracy" not in run.report().read_text()
    story(run, nets)


def test_code_that_changed_is_refused_with_the_difference(nets):
    train(*DIGITS, "model.module=nets:make_cnn", rounds=4)
    (nets / "nets.py").write_text(NETS.read_text().replace("width=4", "width=8"))
    sys.modules.pop("nets")
    importlib.invalidate_caches()
    changed = pytest.warns(UserWarning, match="The file of 'nets:make_cnn' is not what it was when run 'a' began")
    with changed, pytest.raises(fs.UserError, match=r"not the network of this run any more: .*'0\.weight' was 4x1x3x3"):
        fs.open("a").evaluate()


def test_a_folder_of_somebody_else_runs_no_code(nets, monkeypatch):
    train(*DIGITS, "model.module=nets:make_cnn", rounds=4)
    monkeypatch.setenv("XDG_STATE_HOME", str(nets / "another home"))
    with pytest.raises(fs.UserError, match="Nobody has trained with it here, so it is not run"):
        fs.open("a").evaluate()
    monkeypatch.setenv("FEDSTEIN_MODULES", "nets:*")
    assert fs.open("a").evaluate()["accuracy"] > 0


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("nets:Odd one", r"must return \(B, 10\) .* Got \(B\)\."),
        ("nets:Odd few", r"must return \(B, 10\) .* Got \(B, 3\)\."),
        ("nets:Odd two", "Got a tuple with 2 tensors"),
        ("nets:Odd other", "Got a dict with the fields 'a', 'b'"),
        ("nets:Odd nan", "returns NaN for particles as they start"),
        ("nets:Two", "does not run on inputs of shape .* It is given one tensor"),
        ("nets.Two", "must be a name like 'package.nets:make_cnn'"),
    ],
)
def test_a_module_that_cannot_be_trained_is_refused_before_there_is_a_run(nets, module, said):
    name, _, returns = module.partition(" ")
    args = (f"model.args={{returns = '{returns}'}}",) if returns else ()
    with pytest.raises(fs.UserError, match=said):
        train(*DIGITS, f"model.module={name}", *args)
    assert not (nets / "a").exists()


@pytest.fixture
def numbers(nets, generator):
    """Settings of a regression with two targets, on files of one's own."""
    (nets / "data").mkdir()
    for name in ("test", "agent-0", "agent-1"):
        np.savez(nets / "data" / name, x=torch.randn(30, 3, generator=generator), y=torch.randn(30, 2))
    return ("data.name=folder", "data.path=data", "data.agents=2", "threads=1", "likelihood.name=gaussian")


@pytest.mark.parametrize("name", ["make_regressor", "make_deep_regressor"])  # a dense stack, and another
def test_as_many_outputs_as_the_likelihood_needs(numbers, name):
    with pytest.raises(fs.UserError, match=r"must return \(B, 2\) .* 'gaussian'. Got \(B, 1\)"):
        train(*numbers, f"model.module=nets:{name}")
    with pytest.raises(fs.UserError, match=r"must return \(B, 4\) .* 'gaussian'. Got \(B, 2\)"):
        train(
            *numbers, "model.module=nets:make_deep_regressor", "model.args={outputs = 2}", "likelihood.variance=learnt"
        )
    run = train(*numbers, "model.module=nets:make_deep_regressor", "model.args={outputs = 2}", rounds=2)
    assert run.metrics["rmse"] > 0


def test_a_test_set_that_cannot_be_evaluated_is_found_before_round_1(nets, numbers):
    with np.load(nets / "data" / "test.npz") as file:
        x, y = file["x"].copy(), file["y"]
    x[20] = 3e38
    np.savez(nets / "data" / "test", x=x, y=y)
    with pytest.raises(fs.UserError, match=r"The test examples cannot be evaluated .* no longer finite"):
        train(*numbers, "model.module=nets:make_deep_regressor", "model.args={outputs = 2}")
    assert not (nets / "a").exists()


def test_token_ids_reach_a_module_by_name_as_whole_numbers(nets):
    random = np.random.default_rng(0)
    (nets / "data").mkdir()
    for name in ("test", "agent-0", "agent-1"):
        ids = random.integers(0, 30, (60, 7))
        np.savez(nets / "data" / name, x=ids, y=np.digitize(ids[:, 0], [10, 20]))
    settings = ("data.name=folder", "data.path=data", "data.agents=2", "threads=1", "method.particles=2")
    run = train(*settings, "model.module=nets:Words", rounds=3)
    again = fs.open("a").resume(rounds=5, progress=False)
    assert again.predict(ids).probabilities.shape == (60, 3)
    assert torch.export.load(again.export("out").program).module()(torch.tensor(ids))["probabilities"].shape == (60, 3)
    frozen = ("model.particles=['head.*']", "method.factor=linear", "recording.escrow=true")
    assert train(*settings, "model.module=nets:Words", *frozen, out="b", rounds=3).particles.shape == (2, 18)
    given = [(ids, np.digitize(ids[:, 0], [10, 20]))] * 2
    words = importlib.import_module("nets").Words()
    assert fs.train(words, given, rounds=1, threads=1, progress=False).predict(ids).probabilities.shape == (60, 3)
    ids[11, 3] = 30
    np.savez(nets / "data" / "test", x=ids, y=np.digitize(ids[:, 0], [10, 20]))
    with pytest.raises(fs.UserError, match=r"The test examples cannot be evaluated .* index out of range"):
        train(*settings, "model.module=nets:Words", out="c")
    assert run.metrics["accuracy"] >= 0


def test_a_loss_of_ones_own_trains_and_what_needs_a_likelihood_refuses(tmp_path, generator):
    x, y = torch.randn(60, 3, generator=generator), torch.randn(60, 2, generator=generator)
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU(), torch.nn.Linear(4, 2))
    run = fs.train(
        module, [(x, y)] * 3, loss=absolute, test=(x, y), rounds=3, method=fs.DSVGD(particles=2, factor="linear"),
        threads=1, escrow=True, progress=False, out=tmp_path / "a",
    )  # fmt: skip
    assert run.evaluate() == {"loss": run.metrics["loss"]}
    assert run.report().is_file()
    after = run.resume(rounds=5, progress=False).forget([1], repair=2, out=tmp_path / "after", progress=False)
    assert after.report().is_file()
    with pytest.raises(fs.UserError, match="Cannot predict: this run has a loss of its own"):
        after.predict(x)
    with pytest.raises(fs.UserError, match="it needs a likelihood"):
        after.audit(progress=False)
    assert not (tmp_path / "after" / "audit").exists()  # nothing was retrained for nothing


def absolute(outputs, targets):
    return (outputs - targets).abs().sum(1)
