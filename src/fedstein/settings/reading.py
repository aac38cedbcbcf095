"""Configs from TOML, presets and overrides, and back. An unknown key is refused with the nearest right one."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import ValidationError

from fedstein.checked import explain
from fedstein.errors import UserError
from fedstein.likelihoods import LIKELIHOODS
from fedstein.methods import METHODS
from fedstein.settings.schema import Config

__all__ = ["load_config", "load_preset", "make_config", "presets", "read_toml", "to_table", "to_toml"]


def presets() -> list[str]:
    """The names of the settings that come with fedstein."""
    names = [file.name for file in files("fedstein.settings").joinpath("presets").iterdir()]
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def load_preset(name: str, overrides: Sequence[str] = ()) -> Config:
    """Settings that come with fedstein, by name, with overrides."""
    if name not in presets():
        raise UserError(f"The '--preset' must be one of {', '.join(presets())}. Got {name!r} instead.")
    text = files("fedstein.settings").joinpath("presets", f"{name}.toml").read_text(encoding="utf-8")
    return make_config(tomllib.loads(text), overrides)


def make_config(table: Mapping[str, Any] | None = None, overrides: Sequence[str] = ()) -> Config:
    """A checked config from a table and `dotted.key=value` overrides.

    >>> make_config(overrides=["method.particles=5", "data.name=digits"]).method.particles
    5
    """
    merged: dict[str, Any] = json.loads(json.dumps(dict(table or {}), default=str))
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key.strip():
            raise UserError(f"The '--set' must look like dotted.key=value. Got {override!r} instead.")
        place = merged
        *sections, last = key.strip().split(".")
        if len(sections) > 2 or not override.isprintable():
            raise UserError(f"The '--set' must look like dotted.key=value, in plain text. Got {override[:80]!r}.")
        for section in sections:
            place = place.setdefault(section, {})
            if not isinstance(place, dict):
                raise UserError(f"The '--set {override}' does not fit: '{section}' is a value, not a table.")
        place[last] = _value(text.strip())
    try:
        return Config.model_validate(merged)
    except ValidationError as error:
        raise UserError(explain(error, lambda section: _known(section, merged))) from None


def _value(text: str) -> Any:
    """A TOML value; a bare word is a string, so that --set data.name=digits needs no quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def load_config(path: Path | None, overrides: Sequence[str] = ()) -> Config:
    """The config in a TOML file (the defaults if None), with overrides."""
    return make_config({} if path is None else read_toml(path, "config"), overrides)


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """The table in a user's file; `what` it is, for the words of an error."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UserError(f"Cannot read the {what} {path}: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"The {what} {path} is not TOML: {error}.") from error


def to_table(config: Config) -> dict[str, Any]:
    """The whole config, defaults included, as plain values that `make_config` reads back as the same config."""
    table: dict[str, Any] = json.loads(config.model_dump_json(exclude_none=True, by_alias=True))
    for part, settings in (("method", config.method), ("likelihood", config.likelihood)):
        table[part] = {"name": settings.name} | table[part]
    return table


def to_toml(config: Config) -> str:
    """The same as TOML."""
    return tomli_w.dumps(to_table(config))


def _known(section: Sequence[str], table: Mapping[str, Any]) -> list[str]:
    """The keys of a section."""
    if not section:
        return list(Config.model_fields)
    if section[0] == "method":
        return ["name", *METHODS[table.get("method", {}).get("name", "dsvgd")].model_fields]
    if section[0] == "likelihood":
        return ["name", *LIKELIHOODS[table.get("likelihood", {}).get("name", "categorical")].model_fields]
    fields = type(getattr(Config(), section[0])).model_fields
    return [field.alias or name for name, field in fields.items()]
