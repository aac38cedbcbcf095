from __future__ import annotations

import pytest

from fedstein.errors import UserError
from fedstein.methods import METHODS
from fedstein.settings import load_config, make_config, to_toml


@pytest.mark.parametrize("name", METHODS)
def test_round_trip_through_toml(name, tmp_path):
    config = make_config({"seed": 5, "method": {"name": name, "batch": 7}}, ["model.hidden=[30, 20]"])
    (tmp_path / "config.toml").write_text(to_toml(config))
    assert load_config(tmp_path / "config.toml") == config


def test_the_defaults_are_promised():
    config = make_config()
    assert (config.data.name, config.data.agents, config.data.partition) == ("fashion-mnist", 10, "iid")
    assert (config.method.name, config.method.particles) == ("dsvgd", 10)


def test_overrides_win_and_need_no_quotes(tmp_path):
    (tmp_path / "c.toml").write_text('rounds = 3\n[method]\nname = "fedavg"\n')
    config = load_config(tmp_path / "c.toml", ["rounds=4", "data.name=digits", "method.step_size=2"])
    assert (config.rounds, config.data.name, config.method.name) == (4, "digits", "fedavg")
    assert config.method.step_size == 2.0


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("sed=1", "Unknown config key 'sed'. Did you mean 'seed'?"),
        ("data.agnts=3", "Unknown config key 'data.agnts'. Did you mean 'agents'?"),
        ("method.particle=3", "Unknown config key 'method.particle'. Did you mean 'particles'?"),
        ("method.name=dsvg", "Did you mean 'dsvgd'?"),
        ("method.particles=0", "Config key 'method.particles' must be greater than or equal to 1. Got 0 instead."),
        ("method.particles=2.5", "Config key 'method.particles' must be a valid integer. Got 2.5 instead."),
        ("method.step_size=nan", "finite number"),
        ("rounds=many", "Config key 'rounds' must be a valid integer. Got 'many' instead."),
        ("data.partition=idd", "Config key 'data.partition' must be 'iid', 'class-pairs', 'dirichlet' or 'indices'"),
        ("model.hidden=[0]", "widths must be at least 1"),
        ("seed.x=1", "Config key 'seed' must be a valid integer"),
        ("noequals", "dotted.key=value"),
        ("method=3", "Config key 'method'"),
    ],
)
def test_mistakes_are_explained(override, message):
    with pytest.raises(UserError) as error:
        make_config(overrides=[override])
    assert message in str(error.value)


def test_a_bad_file_is_named(tmp_path):
    (tmp_path / "c.toml").write_text("rounds = = 3")
    with pytest.raises(UserError, match=r"c\.toml is not TOML"):
        load_config(tmp_path / "c.toml")
    with pytest.raises(UserError, match="No such file"):
        load_config(tmp_path / "missing.toml")
