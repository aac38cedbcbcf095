"""Settings that nobody gave: what is chosen, and that nothing that was given is touched."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedstein as fs
from fedstein.settings import choose_config, load_preset, make_config, presets, to_table
from fedstein.settings.choosing import choose

UNLIKE = ["data.partition=dirichlet", "data.concentration=0.1"]


def chosen(*overrides):
    return {choice.key: choice.value for choice in choose_config({}, overrides)[1]}


def test_what_is_chosen_suits_the_budget_and_the_agents():
    chain = {"method.particles": 1, "method.kernel": "none", "method.step": "gradient"}
    coding = {"uplink.entries": "adaptive", "uplink.feedback": True}
    alike, unlike = {"method.step_size": 0.2}, {"method.step_size": 0.1, "method.anneal_over": 300}
    assert chosen("rounds=300") == chain | alike
    assert chosen("rounds=300", "uplink.budget=0.2d") == chain | alike | coding
    assert chosen("rounds=300", "uplink.budget=0.2d", *UNLIKE) == chain | unlike | coding
    # Nobody knows whether data that comes by agent is alike.
    assert chosen("data.name=folder", "data.path=x", "rounds=300") == chain | unlike
    # Several particles share a frame, and a kernel takes a mean over them.
    several = chosen("method.particles=5", "method.kernel=rbf", "uplink.budget=0.2d")
    assert several == {"method.step": "gradient", "method.step_size": 1.0, "uplink.common": True, **coding}
    fedavg = chosen("method.name=fedavg", "uplink.budget=0.2d")
    assert fedavg == {"method.step": "gradient", **alike, **coding}


def test_where_settings_are_of_another_kind_nothing_is_chosen_of_them():
    assert chosen("method.name=dsgld", "uplink.budget=0.2d") == {}
    assert chosen("data.name=synthetic-gaussian", "method.factor=kde") == {}
    # Linear factors have steps of their own, and what they remember is their feedback.
    linear = chosen("method.factor=linear", "uplink.budget=0.2d")
    assert linear == {"method.particles": 1, "uplink.entries": "adaptive"}
    # Numbers have no known scale.
    assert "method.step" not in chosen("likelihood.name=gaussian")
    # An adaptive rule has a size of its own.
    assert not {"method.step_size", "method.anneal_over"} & chosen("method.step=ema-adagrad", *UNLIKE).keys()


@given(
    st.sets(
        st.sampled_from(
            [
                "method.particles=3",
                "method.kernel=rbf",
                "method.step=adagrad",
                "method.step_size=0.7",
                "method.anneal_over=9",
                "uplink.entries=fixed",
                "uplink.feedback=false",
                "uplink.common=false",
                "method.local_steps=3",
                *UNLIKE,
            ]
        )
    )
)
def test_what_was_given_stays_as_it_was_given(overrides):
    config, choices = choose_config({}, [*overrides, "uplink.budget=1.0d"])
    table = to_table(config)
    for override in overrides:
        key, _, text = override.partition("=")
        section, _, name = key.partition(".")
        value = table[section][name]
        assert (value if isinstance(value, str) else json.loads(text)) == (text if isinstance(value, str) else value)
    assert not {override.partition("=")[0] for override in overrides} & {choice.key for choice in choices}
    # What was chosen is the difference, all of it, and choosing again changes nothing.
    given = make_config(overrides=[*overrides, "uplink.budget=1.0d"])
    where = dict(to_table(given))
    for choice in choices:
        section, _, name = choice.key.partition(".")
        where[section] = where[section] | {name: choice.value}
    assert make_config(where) == config
    assert choose(table) == (table, [])


def test_a_preset_is_whole():
    for name in presets():
        done = command("train", "--preset", name, "--explain", "--json")
        assert json.loads(done.stdout)["chosen"] == []
        assert json.loads(done.stdout)["config"] == json.loads(json.dumps(to_table(load_preset(name))))


def command(*words):
    return subprocess.run([sys.executable, "-m", "fedstein", *words], capture_output=True, text=True, check=True)


def test_explain_tells_the_config_that_a_run_has(tmp_path):
    words = [
        "--set",
        "data.name=digits",
        "--set",
        "rounds=2",
        "--set",
        "uplink.budget=1.0d",
        "--set",
        "model.hidden=[]",
    ]
    told = json.loads(command("train", "--explain", "--json", *words).stdout)["config"]
    command("train", "--json", "--out", str(tmp_path / "a"), *words)
    written = json.loads(json.dumps(to_table(fs.open(tmp_path / "a").config)))
    assert {key: told[key] for key in ("method", "uplink", "posterior")} == {
        key: written[key] for key in ("method", "uplink", "posterior")
    }
    assert (written["posterior"]["window"], written["posterior"]["scale"]) == (10, 2.0)


def test_explain_says_what_and_why_and_trains_nothing(tmp_path):
    words = ["train", "--explain", "--set", "uplink.budget=0.2d"]
    told = json.loads(command(*words, "--json").stdout)
    assert {line["key"]: line["value"] for line in told["chosen"]} == chosen("uplink.budget=0.2d")
    assert all(line["why"] for line in told["chosen"])
    page = " ".join(command(*words).stdout.split())
    assert all(
        word in page for word in ("method.step_size", "0.2", "uplink.feedback", "last tenth of all turns, 10 at most")
    )
    assert not list(tmp_path.iterdir())
    assert [(c.key, c.value) for c in fs.explain(None, "uplink.budget=0.2d")] == list(
        chosen("uplink.budget=0.2d").items()
    )


@pytest.mark.parametrize("table", [{"method": 3}, {"uplink": "1d"}, {"data": [1]}, {"method": {"particles": "x"}}])
def test_a_mistake_is_told_where_settings_are_checked(table):
    with pytest.raises(fs.UserError):
        choose_config(table)
