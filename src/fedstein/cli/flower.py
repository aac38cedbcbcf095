"""`fedstein flower`: the same run between machines, on Flower."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedstein.cli.output import JsonOption, console, print_json
from fedstein.cli.train import with_whole_paths
from fedstein.config import load_config
from fedstein.flower.app import write_app

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="The same run between machines, on Flower (docs/between-machines.md).")


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the app to write.")],
    config_file: Annotated[Path | None, typer.Option("--config", help="Settings of the run.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a config key; repeat as needed.")
    ] = None,
    agents: Annotated[
        str, typer.Option(help="The agents' names with commas between them; none for a simulation.")
    ] = "",
    run: Annotated[Path | None, typer.Option(help="The run folder on the server; DIR-run if left out.")] = None,
    json: JsonOption = False,
) -> None:
    """Write a Flower app that trains with the installed fedstein."""
    names = [name.strip() for name in agents.split(",") if name.strip()]
    overrides = [*(set_ or []), *([f"data.agents={len(names)}"] if names else [])]
    config = with_whole_paths(load_config(config_file, overrides))
    run = folder.resolve().with_name(f"{folder.resolve().name}-run") if run is None else run
    files = write_app(folder, config, names, run)
    if json:
        print_json({"folder": str(folder), "files": [str(file) for file in files], "run": str(run)})
        return
    for file in files:
        console.print(f"Wrote {file}")
    console.print(f"Next: flwr run {folder} SUPERLINK --stream    (docs/between-machines.md)")
