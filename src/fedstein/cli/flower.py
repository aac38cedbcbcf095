"""`fedstein flower`: the same run between machines, on Flower."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedstein.cli.output import JsonOption, SetOption, print_json, ready, say, warn

__all__ = ["app"]

TRIAL = (
    "data.name=digits",
    "model.hidden=[]",
    "threads=1",
    "rounds=24",
    "method.factor=linear",
    "method.particles=5",
    "method.local_steps=50",
    "method.batch=1000",
    "method.step_size=0.5",
    "method.stiffness=2.0",
    "method.temperature=20.0",
    "schedule.agents_per_round=2",
    "uplink.budget=8.0d",
    "evaluation.every=8",
)

app = typer.Typer(no_args_is_help=True, help="The same run between machines, on Flower (docs/between-machines.md).")


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the app to write.")],
    config_file: Annotated[Path | None, typer.Option("--config", help="Settings of the run.")] = None,
    set_: SetOption = None,
    agents: Annotated[
        str, typer.Option(help="The agents' names with commas between them; none for a simulation.")
    ] = "",
    run: Annotated[Path | None, typer.Option(help="The run folder on the server; DIR-run if left out.")] = None,
    json: JsonOption = False,
) -> None:
    """Write a Flower app that trains with the installed fedstein."""
    from fedstein.deploy.flower.app import write_app
    from fedstein.errors import UserError
    from fedstein.runs.folder import left_out
    from fedstein.runs.verbs import with_whole_paths
    from fedstein.settings import load_config

    ready()
    if config_file is not None and (gone := left_out(config_file)):
        raise UserError(
            f"The config is of a run from which agents {', '.join(map(str, gone))} were erased: use another."
        )
    names = _names(agents) if agents else []
    overrides = [*(set_ or []), *([f"data.agents={len(names)}"] if names else [])]
    config = with_whole_paths(load_config(config_file, overrides))
    run = folder.resolve().with_name(f"{folder.resolve().name}-run") if run is None else run
    files = write_app(folder, config, names, run)
    if json:
        print_json({"folder": str(folder), "files": [str(file) for file in files], "run": str(run)})
        return
    for file in files:
        say(f"Wrote {file}")
    say(f"Next: flwr run {folder} SUPERLINK --stream    (docs/between-machines.md)")


@app.command()
def keys(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where the files go.")],
    agents: Annotated[str, typer.Option(help="The agents' names with commas between them.")],
    hosts: Annotated[str, typer.Option(help="Names and addresses of the server, besides localhost.")] = "",
    json: JsonOption = False,
) -> None:
    """Make certificates and keys for a trial: a CA, a server certificate, and a key pair for each agent."""
    from fedstein.deploy.flower.keys import make_agent_key, make_certificates

    ready()
    names = _names(agents)
    files = make_certificates(folder, [host.strip() for host in hosts.split(",") if host.strip()])
    for name in names:
        files += make_agent_key(folder, name)
    if json:
        print_json({"files": [str(file) for file in files]})
        return
    for file in files:
        say(f"Wrote {file}")


@app.command()
def node(
    agent: Annotated[str, typer.Option(help="This agent's name.")],
    data: Annotated[Path, typer.Option(help="Its own examples: an .npz with x and y.")],
    state: Annotated[Path, typer.Option(help="A folder of its own, for what it remembers.")],
    superlink: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where the server's SuperLink listens.")],
    ca: Annotated[Path | None, typer.Option(help="The CA that signed the server's certificate.")] = None,
    key: Annotated[Path | None, typer.Option(help="This agent's private key.")] = None,
    module: Annotated[
        list[str] | None,
        typer.Option(help="A network by name that the server may ask for: 'package.nets:make_cnn'. Repeatable."),
    ] = None,
    device: Annotated[
        str, typer.Option(help="On which this agent computes: cpu, cuda, cuda:1, mps or auto. No server chooses it.")
    ] = "cpu",
    insecure: Annotated[bool, typer.Option("--insecure", help="Without TLS and keys: for trials only.")] = False,
) -> None:
    """Take part as an agent: run a Flower SuperNode, and start it again whenever it ends."""
    from fedstein.deploy.flower.node import Node, serve_node
    from fedstein.errors import UserError

    ready()
    if insecure != (ca is None and key is None):
        raise UserError("Give '--ca' and '--key', or say '--insecure'.")
    who = Node(agent, data, state, superlink, ca, key, tuple(module or ()), device)
    serve_node(who, warn)


@app.command()
def purge(
    database: Annotated[Path, typer.Argument(metavar="DATABASE", help="The SuperLink's '--database'.")],
    json: JsonOption = False,
) -> None:
    """Delete for good what the SuperLink has deleted: its file keeps frames of agents that were forgotten."""
    from fedstein.deploy.flower.database import purge_database

    ready()
    freed = purge_database(database)
    if json:
        print_json({"database": str(database), "freed_bytes": freed})
    else:
        say(f"Wrote {database} anew, without what was deleted in it ({freed:,} bytes).")


@app.command()
def trial(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder for everything.")],
    agents: Annotated[str, typer.Option(help="The agents' names with commas between them.")] = "north,south,west",
    set_: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Try a whole federation on this machine: keys, SuperLink, agents, training, an erasure, an audit, a comparison."""
    from fedstein.deploy.flower.trial import run_trial
    from fedstein.errors import UserError

    ready()
    names = _names(agents)
    result = run_trial(folder, names, [*TRIAL, *(set_ or [])], lambda text: None if json else say(text))
    if json:
        print_json(result)
    if not result["same"]:
        raise UserError("The federation has not the same particles as one process.")


def _names(agents: str) -> list[str]:
    from fedstein.deploy.flower.keys import check_name
    from fedstein.errors import UserError

    names = [name.strip() for name in agents.split(",")]
    for name in names:
        check_name(name)
    if len(set(names)) < len(names):
        raise UserError(f"The '--agents' must be different names. Got {agents!r}.")
    return names
