"""Forgetting in a federation: the rounds are its own. Make the run folder, and let Flower run the app in it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedstein.deploy.flower.identity import (
    Identity,
    confirmed,
    load_identity,
    names_of,
    new_identity,
    save_identity,
)
from fedstein.deploy.flower.launch import run_app
from fedstein.errors import UserError
from fedstein.runs.forget.complete import is_done, unforgotten
from fedstein.runs.forget.request import Request, network_files_of, open_run
from fedstein.runs.problem import build_problem
from fedstein.settings import read_toml
from fedstein.store.lock import in_use

__all__ = ["agents_by_name", "federation_of", "forget_in_federation", "result_of"]


def forget_in_federation(request: Request, identity: Identity, app: Path, superlink: str | None) -> dict[str, Any]:
    """Do what a request asks for, by the agents of a Flower federation; what was done of it is gone on with.

    Args:
        request: as it was written down.
        identity: of the run that is to forget.
        app: the folder that `fedstein flower init` wrote.
        superlink: which SuperLink of Flower's config.

    Returns:
        The result, and which agents have `confirmed`, are `unconfirmed` or `unforgotten`.
    """
    if not is_done(request.out) or set(request.erasure.agents) - confirmed(request.out):
        if in_use(request.out):
            raise UserError(
                f"The erasure in {request.out} is under way already: 'flwr list' names its run, 'flwr log' shows it."
            )
        problem = build_problem(request.config, request.lineage, files=network_files_of(request), remote=True)
        open_run(request, problem)[0].close()
        if load_identity(request.out) is None:
            anew = request.erasure.method == "retrain"
            ids = (None, identity.model_id) if anew else (identity.model_id, None)
            save_identity(request.out, new_identity(identity.names, *ids))
        run_app(app, superlink, {"run": str(request.out)})
    if not is_done(request.out):
        raise UserError(
            f"The federation has not finished the erasure: look at what its server said. The request is on disk, and "
            f"the same command goes on in {request.out}."
        )
    return result_of(request.out) | {
        "confirmed": sorted(confirmed(request.out)),
        "unconfirmed": sorted(set(request.erasure.agents) - confirmed(request.out)),
        "unforgotten": unforgotten(request.out),
    }


def result_of(run: Path) -> dict[str, Any]:
    """The result that a run folder has kept."""
    try:
        result = json.loads((run / "result.json").read_bytes())
        if isinstance(result, dict):
            return result
    except (OSError, ValueError, RecursionError):
        pass
    raise UserError(f"The result.json of run '{run}' is gone or damaged. 'fedstein resume {run}' writes it again.")


def _check_app(app: Path, identity: Identity) -> None:
    """The app must be of the federation that has trained the run."""
    if not (app / "pyproject.toml").is_file() or not (app / "config.toml").is_file():
        raise UserError(f"The '--flower' must be the folder that 'fedstein flower init' wrote. Got {str(app)!r}.")
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


def agents_by_name(agents: Sequence[int | str], identity: Identity) -> list[int]:
    """The numbers of agents that are named, or numbered."""
    numbers = []
    for part in (str(agent).strip() for agent in agents):
        if part in identity.names:
            numbers.append(identity.names.index(part))
        elif part.isdecimal() and int(part) < len(identity.names):
            numbers.append(int(part))
        else:
            raise UserError(f"The '--agents' must be among {', '.join(identity.names)}. Got {part!r} instead.")
    return sorted(numbers)


def federation_of(run: Path, app: Path | None, superlink: str | None, keep_parent: bool) -> Identity | None:
    """The federation of a run, which must be that of the app; None for a run that has none.

    Args:
        run: the folder.
        app: the app of a federation, if one is named.
        superlink: of Flower's config, if one is named.
        keep_parent: nothing would be purged.
    """
    identity = load_identity(run)
    if (identity is None) != (app is None) or (superlink is not None and app is None):
        raise UserError(
            f"The '--flower' must name the app of the federation: the agents of run '{run}' are elsewhere."
            if identity is not None
            else f"The '--flower' and '--superlink' are for runs of a Flower federation. The run '{run}' is none."
        )
    if app is not None and identity is not None:
        _check_app(app, identity)
        if keep_parent:
            raise UserError("The '--keep-parent' is not for a federation: its agents have gone on, and cannot go back.")
    return identity
