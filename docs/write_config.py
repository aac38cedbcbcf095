"""Write docs/config.md from the settings themselves: `make docs`."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from fedstein.methods import METHODS
from fedstein.settings import Config


def cell(value: object) -> str:
    return "" if value is None else f"`{list(value) if isinstance(value, tuple) else value}`"


def rows(section: str, fields: type[BaseModel]) -> list[str]:
    lines = ["| key | default | meaning |", "|---|---|---|"]
    prefix = f"{section}." if section else ""
    for name, field in fields.model_fields.items():
        if field.description:
            default = "" if field.is_required() or field.default == "" else cell(field.default)
            lines.append(f"| `{prefix}{name}` | {default} | {field.description} |")
    return [*lines, ""]


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
        if isinstance(part, BaseModel) and name != "method":
            lines += [f"## `[{name}]`", "", (type(part).__doc__ or "").strip(), "", *rows(name, type(part))]
    for name, method in METHODS.items():
        if METHODS.source(name) != "fedstein":
            continue
        lines += [f'## `[method]` with `name = "{name}"`', "", f"{method.summary.capitalize()}.", ""]
        lines += rows("method", method)
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    (Path(__file__).parent / "config.md").write_text(text(), encoding="utf-8")
