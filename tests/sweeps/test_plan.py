"""SWEEP.toml: which runs it means, and what is said of mistakes in it."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedstein.errors import UserError
from fedstein.settings import choose_config, make_config, read_toml
from fedstein.sweeps import plan_sweep

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
SMALL = {"rounds": 3, "data": {"name": "digits", "agents": 3}, "model": {"hidden": []}, "method": {"local_steps": 2}}


@given(
    seeds=st.lists(st.integers(0, 9), min_size=1, max_size=3, unique=True),
    particles=st.lists(st.integers(1, 9), min_size=1, max_size=3, unique=True),
    budgets=st.lists(st.sampled_from(["1d", "2d", "3d"]), min_size=1, max_size=3, unique=True),
    entries=st.integers(0, 3),
)
@settings(max_examples=25, deadline=None)
def test_a_plan_has_every_combination_once(seeds, particles, budgets, entries):
    table = {"seeds": seeds, "base": SMALL, "grid": {"method.particles": particles, "uplink": {"budget": budgets}}}
    if entries:
        table["list"] = [{"name": f"n{number}", "method.batch": number + 1} for number in range(entries)]
    runs = plan_sweep(table)
    assert len(runs) == len(seeds) * len(particles) * len(budgets) * max(entries, 1)
    assert len({(run.name, run.config.seed) for run in runs}) == len(runs)
    settings_of_runs = {
        (run.config.seed, run.config.method.particles, run.config.uplink.budget, run.config.method.batch)
        for run in runs
    }
    assert len(settings_of_runs) == len(runs)
    assert all(run.config.rounds == 3 and run.config.threads == 1 for run in runs)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"seed": [0]}, "Unknown sweep key 'seed'. Did you mean 'seeds'?"),
        ({"seeds": []}, "'seeds' must be a list"),
        ({"seeds": [0, 0]}, "'seeds' must be a list of different whole numbers"),
        ({"seeds": [True]}, "'seeds' must be"),
        ({"grid": {"method.particles": 5}}, "'grid.method.particles' must be a list"),
        ({"grid": {"method.particles": [5, 5]}}, "list of different values"),
        ({"grid": {"seed": [1, 2]}}, "'seeds' is the place"),
        ({"grid": {"method.particels": [5]}}, "Did you mean 'particles'?"),
        ({"grid": {"method.particles": [0]}}, "The sweep's setting 'particles=0'"),
        ({"list": [{"name": "../x"}]}, "must be letters"),
        ({"list": [{"name": "a"}, {"name": "a"}]}, "the same folder 'a'"),
        ({"list": [{"name": "results.csv"}]}, "the sweep's own file"),
        ({"list": [{"name": "a", "seed": 3}]}, "'seeds' is the place"),
        ({"base": {"seed": 3}}, "'seeds' is the place"),
        ({"list": [{"method.particles": 3}], "grid": {"method.particles": [3]}}, "It is in both"),
        ({"list": [{"method.name": "fedavg"}], "grid": {"method": [{"name": "dsvgd"}]}}, "It is in both"),
        ({"base": {"method": "fedavg"}, "grid": {"method.particles": [1, 2]}}, "must be a value or a table"),
        ({"list": [{"method": "fedavg"}], "grid": {"method.particles": [1, 2]}}, "must be a value or a table"),
        ({"base": {"method.name": "fedavg"}, "grid": {"method": ["dsvgd"]}}, "must be a value or a table"),
        ({"grid": {"data.path": ["a/b", "a_b"]}}, "the same folder"),
        ({"grid": {"method.particles": [datetime.date(2020, 1, 1)]}}, "method.particles"),
        ({"grid": {f"method.k{i}": list(range(10)) for i in range(9)}}, "may have 100,000 runs"),
        ({"list": {"name": "a"}}, "each under [[list]]"),
        ({"preset": "nothing"}, "must be one of"),
        ({"choose": "no"}, "'choose' must be true or false"),
        ({"base": 3}, "'base' must be a table"),
        ({"seeds": list(range(1000)), "grid": {"method.particles": list(range(1, 999))}}, "may have 100,000 runs"),
    ],
)
def test_mistakes_in_a_plan_are_told(table, words):
    with pytest.raises(UserError) as error:
        plan_sweep(table)
    assert words in str(error.value)


def test_paths_lead_to_the_same_place_from_everywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (run,) = plan_sweep({"base": {"data": {"name": "npz", "path": "mine.npz"}}, "list": [{"name": "a"}]})
    assert run.config.data.path == str(tmp_path.resolve() / "mine.npz")
    # What is in the run folder is what the plan says, wherever it is planned again: nothing is refused as changed.
    monkeypatch.chdir(Path("/"))
    (again,) = plan_sweep({"base": {"data": {"name": "npz", "path": str(tmp_path / "mine.npz")}}})
    assert again.config == run.config


def test_what_is_left_out_is_chosen_unless_the_table_says_not_to():
    table = {"base": {"uplink.budget": "1.0d"}}
    entries = [
        plan_sweep(table | more, choosing=choosing)[0].config.uplink.entries
        for more, choosing in (({}, True), ({"choose": False}, True), ({"preset": "letter"}, True), ({}, False))
    ]
    assert entries == ["adaptive", "fixed", "fixed", "fixed"]


def test_the_settings_of_published_numbers_are_those_that_are_written(monkeypatch):
    """A later choice of fedstein's changes no table of experiments/."""
    sweeps = sorted(EXPERIMENTS.glob("*/search*.toml"))
    configs = sorted(EXPERIMENTS.glob("*/config.toml"))
    assert len(sweeps) > 9
    assert len(configs) > 2
    for file in sweeps:
        monkeypatch.chdir(file.parent)
        table = read_toml(file, "sweep")
        assert [one.config for one in plan_sweep(table, choosing=True)] == [one.config for one in plan_sweep(table)]
    for file in configs:
        monkeypatch.chdir(file.parent)
        table = read_toml(file, "config")
        assert choose_config(table)[0] == make_config(table)
