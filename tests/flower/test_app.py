"""The app, the keys and the data of a federation, as files; nothing is started."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import tomllib
from contextlib import closing

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from fedstein.cli.main import app as cli
from fedstein.deploy.flower.erasure import _check_app
from fedstein.deploy.flower.identity import new_identity
from fedstein.deploy.flower.keys import make_agent_key
from fedstein.deploy.flower.node import Node, serve_node
from fedstein.errors import UserError
from fedstein.runs.problem import build_problem
from fedstein.runs.verbs import fit_config
from fedstein.settings import load_config, make_config
from fedstein.store import take_lock

DIGITS = ("data.name=digits", "data.agents=3", "model.hidden=[]", "rounds=4", "threads=1", "method.local_steps=2")


def fedstein(*words):
    return CliRunner().invoke(cli, [str(word) for word in words], catch_exceptions=False)


def split(folder, *more):
    words = [word for setting in (*DIGITS, *more) for word in ("--set", setting)]
    return json.loads(fedstein("data", "split", folder, *words, "--json").stdout)


def test_one_file_an_agent_trains_as_the_partition_it_came_from(tmp_path):
    found = split(tmp_path / "data")
    assert found["agents"] == [479, 479, 479]
    config = make_config(overrides=DIGITS)
    other = make_config(overrides=[*DIGITS, "data.name=folder", f"data.path={tmp_path / 'data'}"])
    assert torch.equal(fit_config(config).particles, fit_config(other).particles)


def test_the_server_needs_no_agents_file(tmp_path):
    split(tmp_path / "data")
    for file in (tmp_path / "data").glob("agent-*"):
        file.unlink()
    config = make_config(overrides=[*DIGITS, "data.name=folder", f"data.path={tmp_path / 'data'}"])
    problem = build_problem(config, remote=True)
    assert [len(data) for data in problem.holdings.agents] == [0, 0, 0]
    assert problem.dim == 650
    with pytest.raises(UserError, match=r"Cannot read .*agent-0.npz"):
        build_problem(config)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["data.path=nowhere"], "Cannot read nowhere/test.npz"),
        ([], "must name your folder"),
        (["data.path=x", "data.validation=5"], "must be a share of everybody's own"),
    ],
)
def test_a_folder_that_is_none(more, said):
    with pytest.raises(UserError, match=said):
        build_problem(make_config(overrides=["data.name=folder", *more]))


def test_the_app_is_thin_and_has_the_settings(tmp_path):
    found = fedstein(
        *(
            "flower",
            "init",
            tmp_path / "app",
            "--agents",
            "north, south",
            "--set",
            "rounds=7",
            "--set",
            "data.name=digits",
        )
    )
    assert found.exit_code == 0, found.output
    table = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())
    assert table["project"]["dependencies"] == []
    settings = table["tool"]["flwr"]["app"]["config"]
    assert settings["agents"] == "north,south"
    assert settings["run"] == str(tmp_path / "app-run")
    config = load_config(tmp_path / "app" / "config.toml")
    assert (config.rounds, config.data.agents) == (7, 2)
    compile((tmp_path / "app" / "fedstein_app.py").read_text(), "app", "exec")
    with pytest.raises(UserError, match="must be a new or empty folder"):
        fedstein("flower", "init", tmp_path / "app")


@pytest.mark.parametrize("name", ["../../escaped", "-x", 'no"quote', "no space", "no\\slash", ",,"])
def test_names_that_would_break_the_app_are_refused(tmp_path, name):
    with pytest.raises(UserError, match="The name of an agent must be"):
        fedstein("flower", "init", tmp_path / "app", "--agents", name)


def test_keys_are_nobody_elses_and_never_overwritten(tmp_path):
    found = json.loads(fedstein("flower", "keys", tmp_path / "keys", "--agents", "north,south", "--json").stdout)
    names = sorted(path.rpartition("/")[2] for path in found["files"])
    assert names == ["ca.crt", "north", "north.pub", "server.crt", "server.key", "south", "south.pub"]
    for name in ("north", "south", "server.key"):
        assert stat.S_IMODE((tmp_path / "keys" / name).stat().st_mode) == 0o600
    assert (tmp_path / "keys" / "north.pub").read_text().startswith("ecdsa-sha2-nistp384 ")
    with pytest.raises(UserError, match="no key is ever overwritten"):
        make_agent_key(tmp_path / "keys", "north")


@pytest.mark.parametrize("wal", [False, True])
def test_what_was_deleted_in_a_database_is_gone_from_its_file(tmp_path, wal, monkeypatch):
    monkeypatch.setattr("fedstein.deploy.flower.database.PATIENCE", 0.3)  # seconds: the others' will not go
    path, secret = tmp_path / "link.db", b"a frame of the agent " * 500
    with closing(sqlite3.connect(path, isolation_level=None)) as link:  # as the SuperLink has it open
        link.execute("PRAGMA secure_delete=OFF")
        link.execute(f"PRAGMA journal_mode={'WAL' if wal else 'DELETE'}")
        link.execute("CREATE TABLE objects (id INTEGER PRIMARY KEY, content BLOB)")
        for name in ("node", "run", "message_ins"):
            link.execute(f"CREATE TABLE {name} (id INTEGER)")
        link.executemany("INSERT INTO objects (content) VALUES (?)", [(secret,), (b"of the others",), (secret,)])
        link.execute("DELETE FROM objects WHERE id != 2")

        def found():
            return any(secret[:200] in file.read_bytes() for file in tmp_path.glob("link.db*"))

        assert found()
        with pytest.warns(UserWarning, match="still holds 1 messages"):
            purged = fedstein("flower", "purge", path, "--json")
        assert json.loads(purged.stdout)["freed_bytes"] > 0
        assert not found()
        assert link.execute("SELECT content FROM objects").fetchall() == [(b"of the others",)]
        link.execute("DELETE FROM objects")
    assert fedstein("flower", "purge", path).exit_code == 0  # again is no harm


def test_only_a_database_is_purged(tmp_path):
    with pytest.raises(UserError, match="must be the file that the SuperLink was started with"):
        fedstein("flower", "purge", tmp_path / "none.db")
    assert not (tmp_path / "none.db").exists()
    (tmp_path / "text").write_text("not a database, but long enough to look like one" * 100)
    (tmp_path / "empty.db").touch()
    with closing(sqlite3.connect(tmp_path / "other.db")) as other:
        other.execute("CREATE TABLE mine (id INTEGER)")
    for name in ("text", "empty.db", "other.db"):
        before = (tmp_path / name).read_bytes()
        with pytest.raises(UserError, match="must be a SuperLink's"):
            fedstein("flower", "purge", tmp_path / name)
        assert (tmp_path / name).read_bytes() == before


def test_an_erasure_wants_the_app_of_its_federation(tmp_path):
    fedstein("flower", "init", tmp_path / "ours", "--agents", "north,south", "--set", "data.name=digits")
    fedstein("flower", "init", tmp_path / "simulated", "--set", "data.name=digits")
    ours, simulated = new_identity(("north", "south")), new_identity(("agent-0", "agent-1"))
    _check_app(tmp_path / "ours", ours)
    _check_app(tmp_path / "simulated", simulated)
    with pytest.raises(UserError, match=r"of agents north, west\. The app .* is of north, south"):
        _check_app(tmp_path / "ours", new_identity(("north", "west")))
    with pytest.raises(UserError, match="is for a simulation"):
        _check_app(tmp_path / "simulated", ours)
    (tmp_path / "ours" / "pyproject.toml").write_text("[tool]\n")
    with pytest.raises(UserError, match="must be the folder that 'fedstein flower init' wrote"):
        _check_app(tmp_path / "ours", ours)


def test_nothing_is_written_for_names_that_do_not_do(tmp_path):
    for names in ("a,a", "a,ca.crt", "a,a.pub"):
        with pytest.raises(UserError, match=r"different names|must not be that of"):
            fedstein("flower", "keys", tmp_path / "keys", "--agents", names)
    assert not (tmp_path / "keys").exists()


def test_a_node_looks_at_its_data_and_keeps_its_folder_to_itself(tmp_path):
    data = tmp_path / "own.npz"
    node = Node("north", data, tmp_path / "state", "127.0.0.1:1", None, None)
    # What no likelihood takes; whether targets fit the run's is looked at when its first order comes.
    np.savez(data, x=np.zeros((3, 4)), y=np.array([0.5, 1, np.nan]))
    with pytest.raises(UserError, match=r"own\.npz"):
        serve_node(node, print)
    np.savez(data, x=np.full((3, 4), np.inf), y=np.array([0, 1, 1]))
    with pytest.raises(UserError, match=r"own\.npz"):
        serve_node(node, print)
    np.savez(data, x=np.zeros((3, 4)), y=np.array([9, 9, 9]))  # few, and of one class: that is an agent as well
    (tmp_path / "state").mkdir()
    lock = take_lock(tmp_path / "state")
    said = []
    with pytest.raises(UserError, match="is in use by process"):
        serve_node(node, said.append)
    os.close(lock)
    assert said == [f"agent north: 3 examples of shape (4,) in {data}"]


def test_a_node_says_what_is_missing(tmp_path):
    data = tmp_path / "own.npz"
    node = Node("north", data, tmp_path / "state", "127.0.0.1:1", None, None)
    with pytest.raises(UserError, match="'--data' must be a file"):
        serve_node(node, print)
    with pytest.raises(UserError, match="or say '--insecure'"):
        fedstein(
            *("flower", "node", "--agent", "north", "--data", data, "--state", tmp_path, "--superlink", "127.0.0.1:1")
        )
