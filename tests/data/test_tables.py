"""Tables: CSV and Parquet files through settings, and what is refused in them before the first round."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pandas
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fedstein as fs
from fedstein.data import DataConfig, Held, fit_targets, who_has_what
from fedstein.data.tables import read_table
from fedstein.errors import UserError
from fedstein.likelihoods import Categorical, Gaussian
from fedstein.runs.problem import build_problem

FLOWERS = """site,length,width,colour,kind
b,1.5,2,red,iris
a,0.5,1,blue,rose
a,2.5,4,red,rose
c,3.5,3,blue,iris
b,1.0,2,red,rose
c,2.0,5,blue,iris
a,0.1,2,red,iris
b,0.2,1,blue,rose
"""
SETTINGS = {"name": "table", "target": "kind", "agent_column": "site"}


@pytest.fixture
def flowers(tmp_path):
    path = tmp_path / "flowers.csv"
    path.write_text(FLOWERS)
    (tmp_path / "test.csv").write_text("site,length,width,colour,kind\n-,1,3,red,iris\n-,3,1,blue,rose\n")
    return path


def read(table, **more):
    return who_has_what(DataConfig(**SETTINGS | {"path": str(table), "test": str(table.parent / "test.csv")} | more), 0)


def refused(table, words, **more):
    with pytest.raises(UserError, match=words):
        read(table, **more)


def test_everybody_has_their_own_rows(flowers):
    held = read(flowers)
    assert isinstance(held, Held)
    assert held.agent_names == ("a", "b", "c")
    assert [len(agent) for agent in held.agents] == [3, 3, 2]
    # length, width, blue, red
    assert held.agents[2].x.tolist() == [[3.5, 3.0, 1.0, 0.0], [2.0, 5.0, 1.0, 0.0]]
    assert held.agents[0].y.tolist() == [1, 1, 0]
    assert (held.classes, held.class_names) == (2, ("iris", "rose"))
    assert held.test.x.tolist() == [[1.0, 3.0, 0.0, 1.0], [3.0, 1.0, 1.0, 0.0]]
    assert held.settings["levels"] == {"colour": ("blue", "red")}
    assert any("colour" in note and "blue, red" in note for note in held.notes)
    assert any("0 a, 1 b, 2 c" in note for note in held.notes)


def test_without_an_agent_column_rows_are_divided(flowers):
    held = read(flowers, agent_column=None, features=("length", "width"), agents=4)
    assert [len(agent) for agent in held.agents] == [2, 2, 2, 2]
    assert held.test.x.shape == (2, 2)


def test_a_share_of_the_rows_is_drawn_the_same_for_every_seed_and_whoever_else_is_there(flowers):
    one = read(flowers, test=0.4)
    assert [len(agent) for agent in one.agents] == [2, 2, 1]
    assert len(one.test) == 3
    rest = flowers.with_name("rest.csv")
    rest.write_text("".join(line for line in FLOWERS.splitlines(True) if not line.startswith("b,")))
    other = read(rest, test=0.4, agent_ids=one.settings["agent_ids"], class_names=("iris", "rose"))
    assert [len(agent) for agent in other.agents] == [2, 0, 1]  # b is gone, and nobody has another number
    assert torch.equal(other.agents[2].x, one.agents[2].x)
    assert len(read(flowers, test=None).test) == 3  # a fifth, and at least one of everybody's


def test_an_agent_that_comes_later_is_refused(flowers):
    ids = read(flowers).settings["agent_ids"]
    refused(flowers, "rows of c, who took no part", agent_ids=ids[:2])


def test_agents_by_number_are_in_the_order_of_numbers(tmp_path):
    (tmp_path / "t.csv").write_text("who,x,y\n10,1,0\n9,2,1\n9,3,0\n10,4,1\n")
    data = DataConfig(name="table", path=str(tmp_path / "t.csv"), target="y", agent_column="who", test=0.5)
    assert who_has_what(data, 0).agent_names == ("9", "10")


def test_constants_are_public_or_of_the_test_file_never_of_the_agents(flowers):
    assert read(flowers).agents[0].x[0, 0] == 0.5  # nothing unless it is asked for
    mine = read(flowers, center={"length": 0.5}, scale={"length": 2.0})
    assert mine.agents[0].x[:, 0].tolist() == pytest.approx([0.0, 1.0, -0.2])
    public = read(flowers, standardise="test")
    assert public.settings["center"] == {"length": 2.0, "width": 2.0}
    assert public.test.x[:, 0].tolist() == [-1.0, 1.0]
    assert public.agents[0].x[:, 0].tolist() == [-1.5, 0.5, pytest.approx(-1.9)]
    refused(flowers, "needs a test file of its own", standardise="test", test=0.5)
    refused(flowers, "must name columns of numbers.*'colour'", center={"colour": 1.0})


def test_the_same_from_parquet(flowers):
    frame = pandas.read_csv(flowers)
    frame.to_parquet(flowers.with_name("flowers.parquet"))
    one, other = read(flowers), read(flowers.with_name("flowers.parquet"))
    assert one.agent_names == other.agent_names
    for mine, theirs in zip(one.agents, other.agents, strict=True):
        assert torch.equal(mine.x, theirs.x)
        assert torch.equal(mine.y, theirs.y)
    frame.loc[3, "width"] = np.nan
    frame.to_parquet(flowers.with_name("gap.parquet"))
    refused(flowers.with_name("gap.parquet"), "'width' has 1 missing values, first in row 4")
    flowers.with_name("bad.parquet").write_bytes(b"PAR1 nothing PAR1")
    refused(flowers.with_name("bad.parquet"), "Cannot read")


@pytest.mark.parametrize("gap", ["", "NA", "nan", " ", "null"])
def test_missing_numbers_are_refused_with_their_place(flowers, gap):
    flowers.write_text(FLOWERS.replace("a,2.5", f"a,{gap}"))
    refused(flowers, "'length' has 1 missing values, first in row 3")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("1.5,2,red,", "1.5,2,,", "'colour' has 1 missing values, first in row 1"),
        ("red,iris", "red,", "'kind' has 1 missing values"),
        ("c,2.0", ",2.0", "'site' has 1 missing values, first in row 6"),
        ("c,2.0,5", "c,2.0,5,7", "line 7 must have 5 values, like the header. Got 6"),
        ("width,", "length,", "two columns 'length'"),
        ("width,", ",", "column 3 must have a short name"),
        ("a,2.5", "a,inf", "'length' has 1 missing values"),
        ("a,2.5", "a,1e300", "NaN or infinity"),
        ("a,2.5", 'a,"2.5', "Cannot read"),
    ],
)
def test_broken_tables_are_refused(flowers, old, new, words):
    flowers.write_text(FLOWERS.replace(old, new, 1))
    refused(flowers, words)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"target": "kin"}, "no column 'kin'. Did you mean 'kind'.*Its columns are site, length"),
        ({"target": ()}, "'data.target' must name"),
        ({"agent_column": "place"}, "no column 'place'"),
        ({"features": ("length", "kind")}, "must not have the target"),
        ({"path": None}, "'data.path' must name"),
        ({"path": "there-is-none.csv"}, "no such file"),
        ({"class_names": ("iris", "tulip")}, "'rose' in row 2, which is none of 'data.class_names'"),
        ({"levels": {"colour": ("red",)}}, "'blue' in row 2, which is none of 'data.levels'"),
        ({"target": ("length", "kind")}, "only one target may be text"),
        ({"partition": "dirichlet"}, "everybody's data is as it is"),
    ],
)
def test_settings_that_do_not_fit_the_table(flowers, more, words):
    refused(flowers, words, **more)


def test_settings_of_tables_are_for_tables():
    with pytest.raises(UserError, match=r"data.target is for data.name = 'table'"):
        DataConfig(name="digits", target="y")
    with pytest.raises(UserError, match="between 0 and 1"):
        DataConfig(**SETTINGS, test=1.5)
    with pytest.raises(UserError, match="twice"):
        DataConfig(**SETTINGS, features=("a", "a"))
    with pytest.raises(UserError, match="above 0"):
        DataConfig(**SETTINGS, scale={"a": 0.0})


def test_targets_and_likelihood_must_fit(flowers):
    with pytest.raises(UserError, match="targets are classes"):
        fit_targets(read(flowers), Gaussian())
    with pytest.raises(UserError, match="whole-number labels"):
        fit_targets(read(flowers, target="length", features=("width",)), Categorical())
    both = read(flowers, target=("length", "width"), features=("colour",))
    held, outputs = fit_targets(both, Gaussian())
    assert outputs == 2
    assert held.test.y.tolist() == [[1.0, 3.0], [3.0, 1.0]]


def test_too_many_texts_are_no_category(tmp_path):
    lines = [f"{number},{number}" for number in range(400)]
    lines[7] = "7,1O"  # a typing error makes a column of numbers one of texts
    (tmp_path / "t.csv").write_text("y,x\n" + "\n".join(lines))
    data = DataConfig(name="table", path=str(tmp_path / "t.csv"), target="y")
    with pytest.raises(UserError, match=r"'x' is text \('1O' is no number\) with 400"):
        who_has_what(data, 0)


def test_semicolons_and_byte_order_marks(tmp_path):
    (tmp_path / "t.csv").write_text('\ufeffa;"b;c"\n1;"x, y"\n\n2;z\n', encoding="utf-8")
    table = read_table(tmp_path / "t.csv")
    assert table["a"].numbers().tolist() == [1.0, 2.0]
    assert table["b;c"].texts() == ["x, y", "z"]


CELLS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12)


@given(st.one_of(st.binary(max_size=200), st.lists(st.lists(CELLS, max_size=4), max_size=6)))
@settings(deadline=None, max_examples=300)
def test_a_table_is_read_or_refused_in_words(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("table") / "t.csv"
    raw = content if isinstance(content, bytes) else "\n".join(map(",".join, content)).encode()
    path.write_bytes(raw)
    try:
        table = read_table(path)
        for column in table.columns.values():
            if column.numbers() is None:
                assert len(column.texts()) == len(table)
    except UserError:
        return


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(-1e6, 1e6), st.integers(0, 1)), min_size=6, max_size=30))
@settings(deadline=None, max_examples=100)
def test_every_row_is_somebodys_once(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("table") / "t.csv"
    path.write_text("who,x,y\n" + "\n".join(f"{who},{x!r},{y}" for who, x, y in [*rows, *rows]))
    held = who_has_what(DataConfig(name="table", path=str(path), target="y", agent_column="who", test=0.3), 0)
    there = sorted(x for part in [*held.agents, held.test] for x in part.x[:, 0].tolist())
    assert there == sorted(x for _, x, _ in [*rows, *rows])


def houses(path, seed=0, agents=("north", "south", "west"), rows=40):
    random = np.random.default_rng(seed)
    lines = []
    for row in range(rows * len(agents)):
        size, age = random.uniform(20, 200), random.uniform(0, 100)
        price = 1000 * (2 * size - age + random.normal(0, 5))
        lines.append(f"{agents[row % len(agents)]},{size:.2f},{age:.1f},{price:.0f}")
    path.write_text("city,size,age,price\n" + "\n".join(lines) + "\n")


def run(*words):
    done = subprocess.run(
        [sys.executable, "-m", "fedstein", *words], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if "--json" in words else done.stdout + done.stderr


@pytest.mark.skipif("FEDSTEIN_LONG" not in os.environ, reason="make test-long runs it")
def test_a_regression_table_through_the_whole_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    houses(tmp_path / "houses.csv")
    houses(tmp_path / "public.csv", 1, ("east",), 60)
    (tmp_path / "c.toml").write_text(
        """
        rounds = 30
        threads = 1
        [data]
        name = "table"
        path = "houses.csv"
        test = "public.csv"
        target = "price"
        agent_column = "city"
        standardise = "test"
        [likelihood]
        name = "gaussian"
        center = 170000.0
        scale = 100000.0
        std = 10000.0
        [model]
        hidden = [8]
        [method]
        particles = 3
        factor = "linear"
        likelihood = "mean"
        temperature = 0.01
        stiffness = 100.0
        local_steps = 20
        step_size = 0.005
        [recording]
        escrow = true
        """
    )
    first = run("train", "c.toml", "--out", "a", "--json")
    assert {"rmse", "nll", "crps", "coverage_90"} <= set(first)
    written = fs.open("a").config.data
    assert (written.agents, written.features) == (3, ("size", "age"))
    assert "north" not in (tmp_path / "a" / "config.toml").read_text()  # a digest keeps the number, not the name
    run("resume", "a", "--rounds", "60", "--json")
    assert fs.open("a").metrics["rmse"] < 30_000
    run("report", "a")
    assert "north" in (tmp_path / "a" / "report.html").read_text()
    run("forget", "a", "--agents", "1", "--out", "b", "--json")
    run("audit", "b", "--json")
    lines = (tmp_path / "houses.csv").read_text().splitlines(True)
    (tmp_path / "houses.csv").write_text("".join(line for line in lines if not line.startswith("south")))
    assert fs.open("b").evaluate()["rmse"] < 40_000  # the rows may go: nobody gets another number
    opened = fs.open("b")
    holdings = build_problem(opened.config, opened.lineage).holdings
    assert (holdings.present, holdings.sizes, holdings.names) == ([0, 2], [40, 0, 40], ("north", "", "west"))
    with pytest.raises(UserError, match="Agents 1 have none"):
        build_problem(fs.open("a", careful=False).config)
