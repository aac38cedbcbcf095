"""`fedstein methods`: which methods there are, and their settings."""

from __future__ import annotations

from rich.table import Table

from fedstein.cli.output import JsonOption, console, print_json
from fedstein.methods import METHODS

__all__ = ["methods"]


def methods(json: JsonOption = False) -> None:
    """List the methods with their settings and defaults."""
    if json:
        described = [
            {
                "name": name,
                "summary": method.summary,
                "settings": {
                    key: {"default": field.default, "about": field.description}
                    for key, field in method.model_fields.items()
                },
            }
            for name, method in METHODS.items()
        ]
        print_json({"methods": described})
        return
    for name, method in METHODS.items():
        table = Table("setting", "default", "meaning", title=f"{name}: {method.summary}", title_justify="left")
        for key, field in method.model_fields.items():
            table.add_row(f"method.{key}", str(field.default), field.description or "")
        console.print(table)
