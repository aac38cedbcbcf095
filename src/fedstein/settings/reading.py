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
from fedstein.settings.choosing import Choice, choose
from fedstein.settings.schema import Config

__all__ = ["choose_config", "load_config", "load_preset", "make_config", "presets", "read_toml", "to_table", "to_toml"]


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
    return _checked(_merged({} if table is None else table, overrides))


def _merged(table: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    merged: dict[str, Any] = json.loads(json.dumps(dict(table), default=str))
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
    return _with_chains(merged)


def _with_chains(table: dict[str, Any]) -> dict[str, Any]:
    """Particles are chains where their way is the posterior: `posterior.chains` is another name of them."""
    posterior, method = table.get("posterior"), table.get("method", {})
    if not isinstance(posterior, dict) or "chains" not in posterior or not isinstance(method, dict):
        return table
    rest = {key: value for key, value in posterior.items() if key != "chains"}
    chains = posterior["chains"]
    if method.get("particles", chains) != chains:
        raise UserError(
            f"Config key 'posterior.chains' must be method.particles, which it is another name of. Got {chains} and "
            f"{method['particles']}."
        )
    return table | {"posterior": rest, "method": method | {"particles": chains}}


def _checked(table: dict[str, Any]) -> Config:
    try:
        return Config.model_validate(table)
    except ValidationError as error:
        raise UserError(explain(error, lambda section: _known(section, table))) from None


def _value(text: str) -> Any:
    """A TOML value; a bare word is a string, so that --set data.name=digits needs no quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def load_config(path: Path | None, overrides: Sequence[str] = ()) -> Config:
    """The config in a TOML file (nothing is given if None), with overrides; what was left out is chosen."""
    return choose_config({} if path is None else read_toml(path, "config"), overrides)[0]


def choose_config(table: Mapping[str, Any], overrides: Sequence[str] = ()) -> tuple[Config, list[Choice]]:
    """The config of a table, in which what was left out is chosen to suit, and what was chosen.

    >>> choose_config({}, ["uplink.budget=0.2d"])[0].method.particles
    1
    """
    filled, choices = choose(_merged(table, overrides))
    return _checked(filled), choices


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
