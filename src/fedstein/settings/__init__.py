"""Settings: the schema of a config, TOML and overrides, presets, comparison. No history is in them."""

from fedstein.settings.choosing import Choice, choose_parts
from fedstein.settings.comparison import differences, flat
from fedstein.settings.reading import (
    choose_config,
    load_config,
    load_preset,
    make_config,
    presets,
    read_toml,
    to_table,
    to_toml,
)
from fedstein.settings.schema import MOST_ROUNDS, Config, EvaluationConfig, PretrainConfig, RecordingConfig

__all__ = [
    "MOST_ROUNDS",
    "Choice",
    "Config",
    "EvaluationConfig",
    "PretrainConfig",
    "RecordingConfig",
    "choose_config",
    "choose_parts",
    "differences",
    "flat",
    "load_config",
    "load_preset",
    "make_config",
    "presets",
    "read_toml",
    "to_table",
    "to_toml",
]
