"""`fedstein methods` and `fedstein components`: what there is to choose from, plugins included."""

from __future__ import annotations

from fedstein.cli.output import JsonOption, print_json, ready, show, warn

__all__ = ["components", "methods"]


def methods(json: JsonOption = False) -> None:
    """List the methods with their settings and defaults."""
    from rich.table import Table

    from fedstein.errors import UserError
    from fedstein.methods import METHODS

    ready()
    known = {}
    for name in METHODS:
        try:
            known[name] = METHODS[name]
        except UserError as error:  # a package that cannot be imported hides nobody else's
            warn(str(error))
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
            for name, method in known.items()
        ]
        print_json({"methods": described})
        return
    for name, method in known.items():
        origin = METHODS.source(name)
        words = f"{name}: {method.summary}" + ("" if origin == "fedstein" else f" (from {origin})")
        table = Table("setting", "default", "meaning", title=words, title_justify="left")
        for key, field in method.model_fields.items():
            table.add_row(f"method.{key}", str(field.default), field.description or "")
        show(table)


def components(json: JsonOption = False) -> None:
    """List every seam and the parts that are registered in it, those of other packages included."""
    from rich.table import Table

    from fedstein.api import seams

    ready()
    if json:
        print_json({name: list(registry) for name, registry in seams().items()})
        return
    table = Table(box=None)
    for head in ("seam", "parts", "what they are", "entry points"):
        table.add_column(head, overflow="fold")
    for registry in seams().values():
        parts = [
            name if registry.source(name) == "fedstein" else f"{name} (from {registry.source(name)})"
            for name in registry
        ]
        table.add_row(registry.seam, ", ".join(parts), registry.about, registry.group)
    show(table)
