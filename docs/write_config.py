"""Write docs/config.md from the settings themselves: `make docs`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel

from fedstein.likelihoods import LIKELIHOODS
from fedstein.methods import METHODS
from fedstein.registry import Registry
from fedstein.settings import Config


def cell(value: object) -> str:
    return "" if value is None else f"`{list(value) if isinstance(value, tuple) else value}`"


def rows(section: str, fields: type[BaseModel]) -> list[str]:
    lines = ["| key | default | meaning |", "|---|---|---|"]
    prefix = f"{section}." if section else ""
    for name, field in fields.model_fields.items():
        if field.description:
            default = "" if field.is_required() or field.default == "" else cell(field.default)
            lines.append(f"| `{prefix}{field.alias or name}` | {default} | {field.description} |")
    return [*lines, ""]


def by_name(section: str, registry: Registry[Any]) -> list[str]:
    """A part of ours for each name, as `section.name` says it."""
    lines = []
    for name, kind in registry.items():
        if registry.source(name) == "fedstein":
            summary = kind.summary[0].upper() + kind.summary[1:]
            lines += [f'## `[{section}]` with `name = "{name}"`', "", f"{summary}.", "", *rows(section, kind)]
    return lines


def text() -> str:
    lines = [
        "# The config",
        "",
        "A run is described by a TOML file; every key has a default, and `--set key=value` overrides one.",
        "This page is written from the code by `make docs`. Where a key names a part, a package may bring more",
        "of them ([adding a part](extending.md)). What was forgotten is not in the config: it is the run's lineage",
        "([runs](runs.md)).",
        "",
        "## The run",
        "",
        *rows("", Config),
    ]
    config = Config()
    for name in Config.model_fields:
        part = getattr(config, name)
        if name == "likelihood":
            lines += by_name(name, LIKELIHOODS)
        elif isinstance(part, BaseModel) and name != "method":
            lines += [f"## `[{name}]`", "", (type(part).__doc__ or "").strip(), "", *rows(name, type(part))]
    lines += by_name("method", METHODS)
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    (Path(__file__).parent / "config.md").write_text(text(), encoding="utf-8")
