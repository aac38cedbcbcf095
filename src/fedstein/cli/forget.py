"""`fedstein forget`: make a run forget some of its agents."""

from __future__ import annotations

import json as json_module
import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from fedstein.build import build_problem
from fedstein.cli.output import JsonOption, console, print_json
from fedstein.cli.train import RayOption, VisitsOption, engine_on, prepare, work
from fedstein.config import read_toml
from fedstein.erasure.request import Request, ask, begin, complete, frozen_network, is_done, open_run, unforgotten
from fedstein.errors import UserError
from fedstein.flower.identity import Identity, confirmed, load_identity, names_of, new_identity, save_identity
from fedstein.flower.launch import run_app
from fedstein.runs import in_use, load_run_config

__all__ = ["agent_list", "forget"]


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
    agents: Annotated[str, typer.Option(help="Who asked to be forgotten: 2,3, or names in a Flower federation.")],
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
        typer.Option("--set", metavar="KEY=VALUE", help="Override a key of uplink, evaluation or recording."),
    ] = None,
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
    load_run_config(run, careful=False)  # is it a run folder at all?
    identity = load_identity(run)
    if (identity is None) != (flower is None) or (superlink is not None and flower is None):
        raise UserError(
            f"The '--flower' must name the app of the federation: the agents of run '{run}' are elsewhere."
            if identity is not None
            else f"The '--flower' and '--superlink' are for runs of a Flower federation. The run '{run}' is none."
        )
    if flower is not None and (not (flower / "pyproject.toml").is_file() or not (flower / "config.toml").is_file()):
        raise UserError(f"The '--flower' must be the folder that 'fedstein flower init' wrote. Got {str(flower)!r}.")
    if flower is not None and identity is not None:
        _check_app(flower, identity)
    if flower is not None and keep_parent:
        raise UserError("The '--keep-parent' is not for a federation: its agents have gone on, and cannot go back.")
    who = agent_list(agents) if identity is None else _by_name(agents, identity)
    out = run.resolve().with_name(f"{run.resolve().name}-without-{'-'.join(map(str, who))}") if out is None else out
    request = ask(
        run,
        who,
        method.value,
        out,
        by=None if by is None else by.value,
        rounds=rounds,
        repair=repair,
        handover=not subtract,
        guarded=not unguarded,
        keep_parent=keep_parent,
        **({"overrides": set_} if set_ else {}),
    )
    if not json:
        console.print(_acknowledge(request))
    if flower is not None:
        assert identity is not None
        _in_federation(request, identity, flower, superlink, json)
        return
    if is_done(request.out):
        complete(request.out)
        if json:
            print_json(_result_of(request.out))
        else:
            console.print(f"It is done: {request.out}\nNext:       fedstein audit {request.out}")
        return
    problem = prepare(request.config, frozen_network(request), quiet=json)
    folder, state = open_run(request, problem)
    with folder:
        state = begin(folder, problem) if state is None else state
        with engine_on(ray, workers, request.config, problem) as engine:
            tell = work(folder, problem, state, report=False, json=json, engine=engine)
    complete(request.out)
    tell()


def _in_federation(request: Request, identity: Identity, app: Path, superlink: str | None, json: bool) -> None:
    """The rounds are the federation's: make the run folder, and let Flower run the app in it."""
    if not is_done(request.out) or set(request.erasure.agents) - confirmed(request.out):
        if in_use(request.out):
            raise UserError(
                f"The erasure in {request.out} is under way already: 'flwr list' names its run, 'flwr log' shows it."
            )
        problem = build_problem(request.config, frozen_network(request), remote=True)
        open_run(request, problem)[0].close()
        if load_identity(request.out) is None:
            anew = request.erasure.method == "retrain"
            lineages = (None, identity.lineage) if anew else (identity.lineage, None)
            save_identity(request.out, new_identity(identity.names, *lineages))
        run_app(app, superlink, {"run": str(request.out)})
    if not is_done(request.out):
        raise UserError(
            f"The federation has not finished the erasure: look at what its server said. The request is on disk, and "
            f"the same command goes on in {request.out}."
        )
    result = _result_of(request.out) | {
        "confirmed": sorted(confirmed(request.out)),
        "unconfirmed": sorted(set(request.erasure.agents) - confirmed(request.out)),
        "unforgotten": unforgotten(request.out),
    }
    if json:
        print_json(result)
    if result["unforgotten"]:
        names = ", ".join(identity.names[agent] for agent in result["unforgotten"])
        raise UserError(
            f"The model has not forgotten {names}: it never answered, or too little was taken back. The others go on "
            f"without it in {request.out}. "
            f"When it is back: 'fedstein forget {request.out} --agents {names} ...'; without it: '--method retrain'."
        )
    if json:
        return
    for agent in result["unconfirmed"]:
        console.print(
            f"Agent {identity.names[agent]} has not yet said that it deleted what it knew: the same command asks again."
        )
    console.print(
        f"It is done: {request.out}\n"
        f"Next:       fedstein flower purge DATABASE    (the SuperLink's: its file may still hold frames)\n"
        f"            fedstein audit {request.out} --data FOLDER"
    )


def _check_app(app: Path, identity: Identity) -> None:
    """The app must be of the federation that has trained the run."""
    table: Any = read_toml(app / "pyproject.toml", "app")
    try:
        names = str(table["tool"]["flwr"]["app"]["config"]["agents"])
    except (KeyError, TypeError):
        raise UserError(f"The '--flower' must be the folder that 'fedstein flower init' wrote. Got {app}.") from None
    given = names_of(names, len(identity.names))
    if given != identity.names:
        raise UserError(
            f"The '--flower' must be the app of the run's federation, of agents {', '.join(identity.names)}. The app "
            f"{app} is {'of ' + ', '.join(given) if names.strip() else 'for a simulation'}."
        )


def _by_name(text: str, identity: Identity) -> list[int]:
    """The agents in a list of names or numbers."""
    found = []
    for part in (part.strip() for part in text.split(",")):
        if part in identity.names:
            found.append(identity.names.index(part))
        elif part.isdecimal() and int(part) < len(identity.names):
            found.append(int(part))
        else:
            raise UserError(f"The '--agents' must be among {', '.join(identity.names)}. Got {part!r} instead.")
    return sorted(found)


def _result_of(run: Path) -> dict[str, Any]:
    try:
        found = json_module.loads((run / "result.json").read_bytes())
        if isinstance(found, dict):
            return found
    except (OSError, ValueError, RecursionError):
        pass
    raise UserError(f"The result.json of run '{run}' is gone or damaged. 'fedstein resume {run}' writes it again.")


def agent_list(text: str) -> list[int]:
    """The agents in a list like 2,3."""
    if not re.fullmatch(r"\s*-?[0-9]{1,9}\s*(,\s*-?[0-9]{1,9}\s*)*", text):
        raise UserError(f"The '--agents' must be numbers with commas between them. Got {text!r} instead.")
    return sorted(int(part) for part in text.split(","))


def _acknowledge(request: Request) -> str:
    erasure = request.erasure
    agents = ", ".join(map(str, erasure.agents))
    known = "was known already" if request.known else "is on disk"
    said = f"The request to forget agents {agents} of {request.parent} {known} (journal.jsonl)."
    again = request.config.training_rounds
    if erasure.method != "retrain":
        said += f"\nIt takes {erasure.rounds} rounds of those who leave and {erasure.repair} of those who stay."
        if erasure.rounds + erasure.repair > again:
            said += f" Training again ('--method retrain') takes {again}."
    return said
