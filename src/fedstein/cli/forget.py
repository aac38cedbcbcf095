"""`fedstein forget`: make a run forget some of its agents."""

from __future__ import annotations

import csv
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedstein.cli.output import (
    EngineOption,
    JsonOption,
    RayOption,
    VisitsOption,
    engine_name,
    on_terminal,
    print_json,
    ready,
    say,
    warn,
)

if TYPE_CHECKING:
    from fedstein.api import Run

__all__ = ["forget"]


class How(StrEnum):
    """The methods of forgetting."""

    forget_svgd = "forget-svgd"
    take_back = "take-back"
    retrain = "retrain"


class Who(StrEnum):
    """Who takes a site back."""

    agent = "agent"
    server = "server"


def forget(
    run: Annotated[Path, typer.Argument(help="The run folder that is to forget.")],
    agents: Annotated[str, typer.Option(help="Who asked to be forgotten: 2,3, or names: north,south.")],
    method: Annotated[How, typer.Option(help="How.")] = How.take_back,
    out: Annotated[Path | None, typer.Option(help="The run folder to make; RUN-without-2-3 if left out.")] = None,
    by: Annotated[
        Who | None, typer.Option(help="take-back: the server from its escrow (if there is one), or the agents.")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Rounds in which the agents forget; chosen to suit if left out.")
    ] = None,
    repair: Annotated[
        int | None,
        typer.Option(min=0, help="Rounds of those that stay, after that; with take-back a fifth of training's."),
    ] = None,
    subtract: Annotated[
        bool, typer.Option("--subtract", help="take-back: subtract the sites, share nothing out; needs more repair.")
    ] = False,
    unguarded: Annotated[bool, typer.Option("--unguarded", help="Forget-SVGD as the letter writes it.")] = False,
    keep_parent: Annotated[
        bool, typer.Option("--keep-parent", help="Purge nothing from RUN; the audit says so.")
    ] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Override a key of uplink, posterior, evaluation or recording, or the device.",
        ),
    ] = None,
    engine: EngineOption = None,
    ray: RayOption = None,
    workers: VisitsOption = None,
    flower: Annotated[
        Path | None, typer.Option(metavar="APP", help="The app of a Flower federation: its agents do it.")
    ] = None,
    superlink: Annotated[str | None, typer.Option(help="With --flower: which SuperLink of Flower's config.")] = None,
    json: JsonOption = False,
) -> None:
    """Forget agents: a new run folder without them, and nothing left of them in the old one.

    The request is on disk before anything else is done. After any stop, the same command (or 'fedstein resume NEW')
    goes on; once it is done, it prints the same again.
    """
    from fedstein import api
    from fedstein.cli.train import tell
    from fedstein.runs.stopping import StopAfterRound

    ready()
    options: dict[str, Any] = {
        "by": None if by is None else by.value,
        "rounds": rounds,
        "repair": repair,
        "handover": not subtract,
        "guarded": not unguarded,
        "keep_parent": keep_parent,
        "overrides": set_ or [],
        "flower": flower,
        "superlink": superlink,
        "engine": engine_name(engine, ray),
        "workers": workers,
        "watchers": [] if flower else [StopAfterRound(warn)],
        "onlooker": on_terminal(json),
    }
    after = api.open(run, careful=False).forget(_listed(agents), method.value, out, **options)
    if flower is not None:
        _tell_of_federation(after, json)
    elif after.trained_now:
        tell(after, report=False, json=json)
    elif json:
        print_json(after.result)
    else:
        say(f"It is done: {after.path}\nNext:       fedstein audit {after.path}")


def _tell_of_federation(after: Run, json: bool) -> None:
    from fedstein.deploy.flower.identity import load_identity
    from fedstein.errors import UserError

    assert after.path is not None
    identity = load_identity(after.path)
    assert identity is not None
    result = after.result
    if json:
        print_json(result)
    if result["unforgotten"]:
        names = ", ".join(identity.names[agent] for agent in result["unforgotten"])
        raise UserError(
            f"The model has not forgotten {names}: it never answered, or too little was taken back. The others go on "
            f"without it in {after.path}. "
            f"When it is back: 'fedstein forget {after.path} --agents {names} ...'; without it: '--method retrain'."
        )
    if json:
        return
    for agent in result["unconfirmed"]:
        say(
            f"Agent {identity.names[agent]} has not yet said that it deleted what it knew: the same command asks again."
        )
    say(
        f"It is done: {after.path}\n"
        f"Next:       fedstein flower purge DATABASE    (the SuperLink's: its file may still hold frames)\n"
        f"            fedstein audit {after.path} --data FOLDER"
    )


def _listed(text: str) -> list[str]:
    """The agents in a list like 2,3 or north,south; a name with a comma in it is in double quotes."""
    return next(csv.reader([text], skipinitialspace=True), [""])
