"""`fedstein data list`, `get` and `split`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedstein.cli.output import JsonOption, SetOption, print_json, ready, say, show

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Look for data sets, and get them.")


@app.command("list")
def list_sources(json: JsonOption = False) -> None:
    """List the sources, and where Fashion-MNIST is on this machine."""
    from rich.table import Table

    from fedstein.data import SOURCES, find_fashion_mnist

    ready()
    place = find_fashion_mnist()
    rows: list[dict[str, Any]] = [
        {"name": name, "about": source.about, "ready": source.ready} for name, source in SOURCES.items()
    ]
    if json:
        print_json({"sources": rows, "fashion_mnist": None if place is None else str(place)})
        return
    table = Table("name", "ready", "what it is")
    for row in rows:
        table.add_row(row["name"], "yes" if row["ready"] else "-", row["about"])
    show(table)
    say(f"Fashion-MNIST: {place or 'not here; run: fedstein data get fashion-mnist'}")


@app.command("get")
def get_source(
    name: Annotated[str, typer.Argument(help="For instance fashion-mnist.")], json: JsonOption = False
) -> None:
    """Obtain a data set, verify it by SHA-256, and say where it is."""
    from fedstein.data import SOURCES
    from fedstein.errors import UserError, nearest

    ready()
    if name not in SOURCES:
        raise UserError(f"Unknown data source '{name}'. {nearest(name, SOURCES)}")
    source = SOURCES[name]
    if source.own:
        raise UserError(f"The source '{name}' is your own data: name it with --set data.path=PATH.")
    place, how = (None, "built in") if source.get is None else source.get()
    if json:
        print_json({"name": name, "path": None if place is None else str(place), "how": how})
    else:
        say(f"{name}: {place or 'ready'} ({how}{', verified' if place else ''})")


@app.command("split")
def split_source(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder: one file an agent, and test.npz.")],
    config_file: Annotated[Path | None, typer.Option("--config", help="Settings; data and seed are used.")] = None,
    set_: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Write what each agent of a config would hold into a file of its own, to try agents on machines of their own."""
    from fedstein.data import split_into_files
    from fedstein.settings import load_config

    ready()
    config = load_config(config_file, set_ or [])
    held = split_into_files(config.data, config.seed, folder)
    if json:
        sizes = [len(examples) for examples in held.agents]
        print_json({"folder": str(folder), "agents": sizes, "test": len(held.test)})
    else:
        say(f"{len(held.agents)} agents and test.npz in {folder}: --set data.name=folder --set data.path={folder}")
