"""Agents may be asked for by the names that the data has for them, and never by a name that may mean another one."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest
from torch import nn

import fedstein as fs
from fedstein.__main__ import main
from fedstein.data import Held, as_examples
from fedstein.runs.forget.who import agents_meant

PEOPLE = """
import numpy as np

def people(names):
    draw = np.random.default_rng(0)
    some = lambda: (draw.normal(size=(8, 3)).astype(np.float32), np.arange(8) % 2)
    return {"agents": [some() for _ in names], "test": some(), "agent_names": names}
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Makes a run of agents with some names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    (tmp_path / "who.py").write_text(PEOPLE)

    def make(*names):
        settings = ["method.particles=2", "method.local_steps=1", "method.factor=linear", "rounds=3", "threads=1"]
        named = f"data.args={{names = {list(names)}}}"
        config = fs.config(None, "data.source=who:people", named, "model.hidden=[]", *settings)
        return fs.train_config(config, "run", progress=False)

    yield make
    sys.modules.pop("who", None)


def command(capsys, *words):
    sys.argv = ["fedstein", *words]
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code, capsys.readouterr().err


def test_an_agent_is_forgotten_by_its_name(run, capsys):
    run("north", "south", "Müller, Anna")
    ask = ["forget", "run", "--out", "new", "--repair", "1", "--json", "--agents"]
    code, err = command(capsys, *ask, "sout")
    assert code == 2
    assert "Nobody is called 'sout'. Did you mean 'south'? There are north, south, Müller, Anna." in err
    assert command(capsys, *ask, '"Müller, Anna",south')[0] == 0
    assert fs.open("new").lineage.erased == (1, 2)
    assert command(capsys, *ask, '"Müller, Anna",south')[0] == 0  # it is done: the same again
    with pytest.raises(fs.UserError, match="The agent 1 was forgotten already"):
        fs.open("new").forget(["south"], out="more")


def test_a_number_that_is_the_name_of_another_one_is_no_request(run, tmp_path):
    run("1", "2", "101")
    path = tmp_path / "run"
    assert agents_meant(path, [2, 0]) == [0, 2]  # in Python a number is a number
    assert agents_meant(path, ["101", "0"]) == [0, 2]
    assert agents_meant(path, ["number=2"]) == [2]
    with pytest.raises(fs.UserError, match=r"2 is the name of number 1\. Write number=1 for that one, or number=2"):
        agents_meant(path, ["2"])
    with pytest.raises(fs.UserError, match=r"must be in 0\.\.2\. Got 7"):
        fs.open(path).forget(["7"], out="new")


def test_without_names_only_numbers_will_do(tmp_path):
    x, y = np.zeros((4, 2), np.float32), np.arange(4) % 2
    few = {"method": fs.DSVGD(particles=2, local_steps=1), "rounds": 1, "progress": False}
    plain = fs.train(nn.Linear(2, 2), [(x, y)] * 2, out=tmp_path / "plain", **few)
    with pytest.raises(fs.UserError, match=r"must be numbers .* have no names\. Got 'north'"):
        plain.forget(["north"], out=tmp_path / "new")
    data = as_examples((x, y), "x")
    fs.train(nn.Linear(2, 2), Held([data, data], data, 2, agent_names=("north", "west")), out=tmp_path / "held", **few)
    assert agents_meant(tmp_path / "held", ["west"]) == [1]  # by its digest: nothing is given again


def test_a_run_from_before_names_were_written_down(run, tmp_path):
    run("north", "south")
    file = tmp_path / "run" / "config.toml"
    text, count = re.subn(r"agent_ids = \[.*?\]", "agent_ids = []", file.read_text(), flags=re.DOTALL)
    assert count == 1
    file.write_text(text)
    assert agents_meant(tmp_path / "run", ["south"]) == [1]
    with pytest.raises(fs.UserError, match="Nobody is called 'east'"):
        agents_meant(tmp_path / "run", ["east"])
