"""Data that is not what it was when a run began is refused by name, and what is known of it goes with its owner."""

from __future__ import annotations

import numpy as np
import pytest

import fedstein as fs
from fedstein.data.sources.contents import digests_of
from fedstein.runs import data_record

FEW = ("method.particles=2", "method.local_steps=1", "method.factor=linear", "rounds=2", "threads=1", "model.hidden=[]")
PEOPLE = ("ann", "bob", "cem")


def npz(folder, count=12):
    x, y = np.random.default_rng(0).random((count, 3)), np.arange(count) % 2
    np.savez(folder / "all.npz", x_train=x, y_train=y, x_test=x[:6], y_test=y[:6])
    return ("data.name=npz", "data.path=all.npz", "data.agents=3")


def files(folder):
    for seed, name in enumerate(("test", "agent-0", "agent-1", "agent-2")):
        np.savez(folder / f"{name}.npz", x=np.random.default_rng(seed).random((6, 3)), y=np.arange(6) % 2)
    return ("data.name=folder", f"data.path={folder}", "data.agents=3")


def table(folder, people=PEOPLE, shift=0.0, who="cem"):
    draw = np.random.default_rng(0)
    rows = [(name, draw.random(), row % 2) for row in range(8) for name in PEOPLE]
    lines = [f"{name},{x + shift * (name == who)},{y}" for name, x, y in rows if name in people]
    (folder / "own.csv").write_text("name,x,y\n" + "\n".join(lines))
    return ("data.name=table", "data.path=own.csv", "data.target=y", "data.agent_column=name")


def images(folder):
    image = pytest.importorskip("PIL.Image")
    for person in PEOPLE:
        for number in range(8):
            path = folder / "agents" / person / ("cat", "dog")[number % 2] / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            image.fromarray(np.full((4, 4), 30 * number, np.uint8)).save(path)
    return ("data.name=images", f"data.path={folder}")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train(settings):
    return fs.train_config(fs.config(None, *settings, *FEW), "a", progress=False)


def edited(folder, source):
    """Edit the last agent's data; the name by which that is told."""
    if source is npz:
        npz(folder, 14)
        return "all.npz has changed"
    if source is files:
        np.savez(folder / "agent-2.npz", x=np.zeros((6, 3)), y=np.arange(6) % 2)
        return "agent-2.npz has changed"
    if source is table:
        table(folder, shift=1e-9)
        return "agent 2's rows of own.csv has changed"
    (folder / "agents/cem/cat/0.png").rename(folder / "agents/cem/dog/0.png")
    return "agents/cem/cat/0.png is gone, agents/cem/dog/0.png is new"


@pytest.mark.parametrize("source", [npz, files, table, images])
def test_data_that_was_edited_is_refused_by_name(here, source):
    train(source(here))
    assert fs.open("a").resume(rounds=3, progress=False).rounds == 3  # as it was
    before = {path: path.read_bytes() for path in (here / "a").rglob("*") if path.is_file() and path.name != "lock"}
    said = edited(here, source)
    for verb in (
        lambda run: run.resume(rounds=9, progress=False),
        lambda run: run.forget([0], out="b", progress=False),
    ):
        with pytest.raises(fs.UserError, match=rf"when run 'a' began: {said}\. Put it back, or train a new run"):
            verb(fs.open("a"))
    after = {path: path.read_bytes() for path in (here / "a").rglob("*") if path.is_file() and path.name != "lock"}
    assert after == before  # nothing was written, and nothing is lost
    assert not (here / "b").exists()
    owner = here / "a" if source is npz else here / "a" / "agents" / "agent-2"
    (owner / "data.json").unlink()  # the way out that the message names
    assert fs.open("a").resume(rounds=4, progress=False).rounds == 4


def test_what_is_known_of_an_agents_data_is_purged_with_it(here):
    train(table(here))
    after = fs.open("a").forget(["cem"], out="b", repair=2, progress=False)
    for run, known in (("a", []), ("b", ["agent-0", "agent-1"])):
        assert sorted(path.parent.name for path in (here / run).rglob("data.json")) == known
    table(here, people=("ann", "bob"))  # whoever is gone takes its rows along
    assert after.resume(rounds=after.rounds + 1, progress=False).lineage.erased == (2,)
    table(here, people=("ann", "bob"), shift=1.0, who="ann")
    with pytest.raises(fs.UserError, match=r"run 'b' began: agent 0's rows of own\.csv has changed"):
        fs.open("b").audit(progress=False)


def test_test_rows_and_indices_are_everybodys(here):
    settings = table(here)[:3]
    (here / "who.json").write_text("[[0, 1, 2, 3], [4, 5, 6, 7]]")
    (here / "test.csv").write_text("name,x,y\nann,0.5,0\nbob,0.25,1")
    more = ("data.test=test.csv", "data.agents=2", "data.partition=indices", "data.indices=who.json")
    run = train((*settings, *more))
    (here / "who.json").write_text("[[0, 1, 2, 4], [3, 5, 6, 7]]")
    (here / "test.csv").write_text("name,x,y\nann,0.5,1\nbob,0.25,1")
    with pytest.raises(fs.UserError, match=r"began: test\.csv has changed, data\.indices has changed\. Put it back"):
        run.resume(rounds=3, progress=False)


def test_a_long_look_is_told_and_a_damaged_record_is_no_pass(here, monkeypatch):
    said = []
    monkeypatch.setattr(fs.runs.onlooker.Onlooker, "say", lambda self, text: said.append(text))
    monkeypatch.setattr(data_record, "_LONG", 0.0)
    run = train(files(here))
    assert any(text.startswith("SHA-256 of 4 files of data: ") for text in said)
    for content in (b"{", b"[]", b'{"a": 1}', b"[" * 100_000):
        (here / "a" / "data.json").write_bytes(content)
        with pytest.raises(fs.UserError, match=r"data\.json is damaged.* Delete it to go on unchecked"):
            run.resume(rounds=3, progress=False)
    with pytest.raises(fs.UserError, match="Cannot read the data file"):
        digests_of({"": {"gone": here / "gone"}})
