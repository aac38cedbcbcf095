"""`fedstein data list`, `get` and `split`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from fedstein.build import who_has_what
from fedstein.cli.output import JsonOption, console, print_json
from fedstein.config import load_config
from fedstein.data import SOURCES, find_fashion_mnist, get_fashion_mnist, save_examples
from fedstein.errors import UserError, nearest

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Look for data sets, and get them.")


@app.command("list")
def list_sources(json: JsonOption = False) -> None:
    """List the sources, and where Fashion-MNIST is on this machine."""
    place = find_fashion_mnist()
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "about": about,
            "ready": place is not None if name == "fashion-mnist" else name not in ("npz", "folder"),
        }
        for name, about in SOURCES.items()
    ]
    if json:
        print_json({"sources": rows, "fashion_mnist": None if place is None else str(place)})
        return
    table = Table("name", "ready", "what it is")
    for row in rows:
        table.add_row(row["name"], "yes" if row["ready"] else "-", row["about"])
    console.print(table)
    console.print(f"Fashion-MNIST: {place or 'not here; run: fedstein data get fashion-mnist'}")


@app.command("get")
def get_source(
    name: Annotated[str, typer.Argument(help="For instance fashion-mnist.")], json: JsonOption = False
) -> None:
    """Obtain a data set, verify it by SHA-256, and say where it is."""
    if name not in SOURCES:
        raise UserError(f"Unknown data source '{name}'. {nearest(name, SOURCES)}")
    if name in ("npz", "folder"):
        raise UserError(f"The source '{name}' is your own data: name it with --set data.path=PATH.")
    place, how = get_fashion_mnist() if name == "fashion-mnist" else (None, "built in")
    if json:
        print_json({"name": name, "path": None if place is None else str(place), "how": how})
    else:
        console.print(f"{name}: {place or 'ready'} ({how}{', verified' if place else ''})")


@app.command("split")
def split_source(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder: one file an agent, and test.npz.")],
    config_file: Annotated[Path | None, typer.Option("--config", help="Settings; data and seed are used.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a config key; repeat as needed.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write what each agent of a config would hold into a file of its own, to try agents on machines of their own."""
    config = load_config(config_file, set_ or [])
    if config.data.name.startswith("synthetic"):
        raise UserError(f"The 'data.name' must be a classifier's. Got '{config.data.name}'.")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"The 'DIR' must be a new or empty folder. Got {str(folder)!r}.")
    agents, test, _ = who_has_what(config)
    folder.mkdir(parents=True, exist_ok=True)
    for number, examples in enumerate(agents):
        save_examples(folder / f"agent-{number}.npz", examples)
    save_examples(folder / "test.npz", test)
    if json:
        print_json({"folder": str(folder), "agents": [len(examples) for examples in agents], "test": len(test)})
    else:
        console.print(f"{len(agents)} agents and test.npz in {folder}: --set data.name=folder --set data.path={folder}")
