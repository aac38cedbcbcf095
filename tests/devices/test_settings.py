"""Names of devices: what is refused before any work, and in which words."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

import fedstein
from fedstein.deploy.flower.client import _device
from fedstein.deploy.flower.node import Node, serve_node
from fedstein.devices import CPU, device_here, device_or_cpu, devices_here, record_of
from fedstein.errors import UserError
from fedstein.runs.verbs import train
from fedstein.settings import make_config
from fedstein.store.environment import environment, unlike


@pytest.fixture
def nothing_here(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


def agents():
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    return [(x, x.argmax(1))]


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:-1", "cuda:100", "meta", "CUDA", "", "cpu cuda", "../x"])
def test_what_is_no_device_is_refused_by_the_settings(name):
    with pytest.raises(UserError, match=r"'device' must be auto, cpu, cuda, cuda:1 or mps. Got "):
        make_config({"device": name})
    with pytest.raises(UserError, match=r"'device' must be auto, cpu, cuda, cuda:1 or mps. Got "):
        device_here(name)


@pytest.mark.parametrize("name", ["auto", "cpu", "cuda", "cuda:1", "mps"])
def test_settings_may_name_what_is_elsewhere(name):
    assert make_config(overrides=[f"device={name}"]).device == name


def test_the_default_is_the_cpu():
    """The same settings then mean the same bits on every machine of a kind."""
    assert make_config().device == "cpu"


@pytest.mark.parametrize(("name", "why"), [("cuda", "CUDA"), ("cuda:1", "CUDA"), ("mps", "MPS")])
def test_a_device_that_is_not_here_is_refused_before_any_work(nothing_here, name, why, tmp_path):
    words = rf"'device' must be one that is here: cpu.*Got '{name}': this torch .*{why}"
    with pytest.raises(UserError, match=words):
        fedstein.train(nn.Linear(4, 4), agents(), device=name, out=tmp_path / "a", progress=False)
    with pytest.raises(UserError, match=words):
        train(make_config(overrides=["data.name=npz", "data.path=nowhere", f"device={name}"]), tmp_path / "b")
    with pytest.raises(UserError, match=words):
        serve_node(Node("north", tmp_path / "x.npz", tmp_path, "127.0.0.1:1", None, None, device=name), print)
    assert not list(tmp_path.iterdir())


def test_numbers_of_devices(two_gpus, monkeypatch):
    with pytest.raises(UserError, match="Got 'cuda:2': there are 2 of cuda here, numbered from 0"):
        device_here("cuda:2")
    assert devices_here()[:3] == ["cpu", "cuda:0", "cuda:1"]
    assert device_here("auto") == device_here("cuda") == torch.device("cuda:0")
    assert device_here("cuda:1") == torch.device("cuda:1")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    assert device_here("cuda") == torch.device("cuda:1")


def test_auto_without_anything_is_the_cpu(nothing_here):
    assert device_here("auto") == torch.device("cpu")


def test_looking_needs_no_device(nothing_here):
    with pytest.warns(UserWarning, match=r"built without CUDA|sees no GPU"):
        assert device_or_cpu("cuda") == torch.device("cpu")


@pytest.mark.parametrize("device", [None, 3, b"cpu"])
def test_what_is_no_name_is_refused(device):
    with pytest.raises(UserError, match="'device' must be"):
        fedstein.train(nn.Linear(4, 4), agents(), device=device, progress=False)


def test_a_device_of_torch_is_taken():
    run = fedstein.train(nn.Linear(4, 4), agents(), device=torch.device("cpu"), rounds=1, progress=False)
    assert run.config.device == "cpu"
    with pytest.raises(UserError, match="in memory stays as it is"):
        run.resume(rounds=2, device="cpu", progress=False)


def test_environments_differ_by_the_kind_of_a_device_and_not_by_its_number():
    cpu = environment(1)
    first, second, other = (
        cpu | {"device": name, "accelerator": maker}
        for name, maker in (("cuda:0", "A"), ("cuda:1", "A"), ("cuda:0", "B"))
    )
    assert record_of(torch.device("cpu")) == {"device": "cpu"}
    assert unlike(first, second) == []
    assert unlike(first, other) == ["This run began with device cuda (A) and goes on with cuda (B)"]
    assert unlike(cpu, first) == ["This run began with device cpu and goes on with cuda (A)"]
    assert unlike({key: value for key, value in cpu.items() if key != "device"}, cpu) == []


def test_an_agent_of_flower_chooses_for_itself(twin, tmp_path):
    """The order says nothing of a device; the node's config does, and a simulation's app."""
    app = tmp_path / "config.toml"
    app.write_text('device = "twin"\n', encoding="utf-8")

    def chosen(node, more=""):
        return _device(tmp_path, SimpleNamespace(node_config=node, run_config={"set": more}))

    assert chosen({"agent": "north", "data": "x.npz"}) == CPU
    assert chosen({"agent": "north", "data": "x.npz", "device": "twin"}) == twin
    assert chosen({"partition-id": 1, "num-partitions": 3}) == twin
    assert chosen({"partition-id": 1, "num-partitions": 3}, "device=cpu") == CPU
    with pytest.raises(UserError, match="must be one that is here"):
        chosen({"agent": "north", "device": "twin:7"})
