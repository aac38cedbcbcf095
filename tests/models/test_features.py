"""What a frozen network makes of inputs is computed once, kept by whose inputs they are, and purged with them."""

from __future__ import annotations

import pickle
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

import fedstein as fs
from fedstein.data import LazyRows, as_examples
from fedstein.models import head, split_head
from fedstein.store import features as store
from fedstein.store.features import keep_features, prepared

NETS = Path(__file__).parents[1] / "nets.py"
SETTINGS = (
    "data.name=digits", "data.agents=4", "data.examples=20", "threads=1", "rounds=4", "model.module=nets:Backbone",
    'model.particles=["head.*"]', "method.particles=2", "method.factor=linear", "method.likelihood=mean",
    "method.temperature=0.01", "method.stiffness=20", "method.local_steps=2", "uplink.budget=2.0d",
)  # fmt: skip


class Net(nn.Module):
    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.body, self.head = nn.Linear(4, 3), nn.Linear(3, 2)
        self.body.requires_grad_(False)

    def forward(self, x):
        return self.head(torch.tanh(self.body(x)))


@pytest.fixture
def before():
    split = split_head(Net(), torch.randn(2, 4))
    assert split is not None
    return split[1]


@pytest.fixture(autouse=True)
def _nothing_at_hand():
    store._at_hand.clear()


@pytest.fixture
def counted(monkeypatch):
    """How many rows the frozen part has gone through."""
    rows = []
    ours = store.Before.__call__
    monkeypatch.setattr(store.Before, "__call__", lambda self, x: rows.append(len(x)) or ours(self, x))
    return rows


def test_features_are_computed_once_in_a_process(before, counted):
    x = torch.randn(600, 4)
    first = prepared(before, x)
    counted.clear()
    assert torch.equal(prepared(before, x.clone()).rows, first.rows)
    assert sum(counted) <= 16  # some are tried again
    assert torch.equal(first.rows, before(x))


def test_the_frozen_network_is_hashed_once_for_all_agents(before, monkeypatch):
    hashed = []
    ours = head._code
    monkeypatch.setattr(head, "_code", lambda module: hashed.append(module) or ours(module))
    keys = {prepared(before, torch.randn(3, 4)).key for _ in range(5)}
    assert (len(hashed), len(keys)) == (1, 5)
    elsewhere = pickle.loads(pickle.dumps(before))  # another process, whose code may be another
    assert elsewhere.identity == before.identity
    assert len(hashed) == 2


def test_kept_features_are_used_again_only_if_they_are_of_this_network_and_these_inputs(before, counted, tmp_path):
    x = torch.randn(600, 4)
    kept = prepared(before, x)
    keep_features(tmp_path, kept)

    def computed(network, inputs):
        store._at_hand.clear()
        counted.clear()
        made = prepared(network, inputs, [tmp_path])
        assert torch.equal(made.rows, network(inputs))
        return sum(counted) - len(inputs) > len(inputs) // 2

    assert not computed(before, x)
    assert computed(before, x + 1)
    assert computed(split_head(Net(seed=1), x[:2])[1], x)  # other frozen values
    whole = bytearray((tmp_path / "features.npy").read_bytes())
    whole[-1] ^= 1
    (tmp_path / "features.npy").write_bytes(whole)
    assert computed(before, x)
    np.save(tmp_path / "features.npy", np.array([{}], dtype=object), allow_pickle=True)
    assert computed(before, x)


def test_another_seed_of_the_head_is_no_other_frozen_network(before):
    other = Net()
    with torch.no_grad():
        other.head.weight.add_(1.0)
    assert split_head(other, torch.randn(2, 4))[1].identity == before.identity


class Noisy(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, place):
        return torch.full((4,), float(place)) + torch.rand(4), place % 2


def test_augmented_inputs_go_through_the_frozen_part_each_time(before):
    features = prepared(before, as_examples(Noisy(), "agents[0]").x)
    assert isinstance(features.rows, LazyRows)
    assert features.key is None  # never kept
    assert features.rows.shape == (12, 3)
    assert not torch.equal(features.rows.read(slice(0, 3), 1), features.rows.read(slice(0, 3), 2))
    raw = as_examples(Noisy(), "agents[0]").x.read(slice(0, 3), 1)
    assert torch.allclose(features.rows.read(slice(0, 3), 1), before(raw), atol=1e-6)


@pytest.fixture
def nets(tmp_path, monkeypatch):
    shutil.copy(NETS, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    yield tmp_path
    sys.modules.pop("nets", None)


def test_a_run_keeps_features_with_their_owners_and_an_erasure_purges_them(nets, counted):
    run = fs.train_config(fs.config(None, *SETTINGS), "a", progress=False)
    owners = {str(file.parent.relative_to(nets / "a")) for file in (nets / "a").rglob("features.npy")}
    assert owners == {".", *(f"agents/agent-{k}" for k in range(4))}
    store._at_hand.clear()
    counted.clear()
    resumed = fs.open("a").resume(rounds=6)
    assert max(counted) <= 16  # some rows are tried again, and none is gone through for itself
    store._at_hand.clear()
    shutil.rmtree(nets / "a" / "agents" / "agent-1", ignore_errors=True)
    after = fs.train_config(fs.config(None, *SETTINGS, "rounds=6"), "b", progress=False)
    assert torch.equal(resumed.particles, after.particles)
    store._at_hand.clear()
    without = fs.open("b").forget([2], repair=3, out="c", progress=False)
    assert not (nets / "b" / "agents").exists() or not list((nets / "b" / "agents").rglob("features.npy"))
    assert not (nets / "b" / "features.npy").exists()
    assert not (nets / "c" / "agents" / "agent-2").exists()
    assert (nets / "c" / "agents" / "agent-1" / "features.npy").exists()
    status = {check.name: check.status for check in without.audit(progress=False).checks}
    assert status["purged"] == "pass"
    assert run.path


def test_a_module_that_was_given_in_python_goes_through_its_frozen_part_once(tmp_path, counted):
    data = [(torch.randn(40, 4, generator=torch.Generator().manual_seed(k)), torch.arange(40) % 2) for k in range(2)]
    method = fs.DSVGD(particles=3, local_steps=5, batch=10, anneal_over=9)
    run = fs.train(
        Net(), data, test=data[0], method=method, rounds=6, progress=False, out=tmp_path / "a",
        posterior=fs.Posterior("last"),
    )  # fmt: skip
    assert run.particles.shape == (3, 8)
    assert sum(counted) < 4 * 40 + 200  # 60 steps of ten examples by three particles would be 1,800 rows
    assert (tmp_path / "a" / "agents" / "agent-1" / "features.npy").is_file()
    # The whole network says the same.
    x = data[1][0]
    whole = Net()
    logits = []
    for particle in run.particles:
        nn.utils.vector_to_parameters(particle, whole.head.parameters())
        logits.append(whole(x).softmax(1))
    assert torch.allclose(run.predict(x).probabilities.float(), torch.stack(logits).mean(0), atol=1e-5)
    exported = run.export(tmp_path / "b")
    assert exported.difference < 1e-5
    resumed = fs.open(tmp_path / "a").resume(rounds=8)
    straight = fs.train(
        Net(),
        data,
        test=data[0],
        method=fs.DSVGD(particles=3, local_steps=5, batch=10, anneal_over=9),
        rounds=8,
        progress=False,
    )
    assert torch.equal(resumed.particles, straight.particles)
