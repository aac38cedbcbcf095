"""A request for erasure, from the moment it is asked until everything is purged. It survives a stop at any point.

    ask        check, then write "erasure requested" into the parent's journal, forced to disk: from here on the parent
               cannot go on, and the request is known
    open_run   the new run folder: made, begun from the parent's state, or found as it was left
    (rounds)   `erasure/rounds.py`, in the new run
    complete   purge the new run and its parents, and write "erasure done" into the journals

Each step looks at what is there and does what is missing, so that doing all of them again changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from fedstein.build import build_problem, check_particles, load_features_of
from fedstein.config import Config, ErasureConfig, Forgetting, differences
from fedstein.engines import State
from fedstein.erasure.evidence import assess
from fedstein.erasure.rounds import first_state, plan_erasure, site_norms
from fedstein.errors import UserError
from fedstein.problem import Problem
from fedstein.runs import (
    RunFolder,
    edits,
    erasures_of,
    hold,
    is_half_made,
    is_remote,
    load_checkpoint,
    load_run_config,
    purge,
    read_journal,
    read_metrics,
)

__all__ = [
    "Request",
    "ask",
    "begin",
    "bits_before",
    "complete",
    "describe",
    "done_event",
    "frozen_network",
    "is_done",
    "left_of",
    "open_run",
    "unforgotten",
]


MOST_LEFT = 0.05  # of an agent's site, where it is taken for forgotten


@dataclass(frozen=True)
class Request:
    """What was asked, and the config of the run that will do it."""

    parent: Path
    out: Path
    config: Config
    known: bool  # the same was asked before

    @property
    def erasure(self) -> ErasureConfig:
        """This request, as settings."""
        return self.config.erasures[-1]


def ask(parent: Path, agents: Sequence[int], method: Forgetting, out: Path, **options: Any) -> Request:
    """Check a request and write it into the parent's journal; when this returns it will not be lost.

    Args:
        parent: the run folder.
        agents: who asked to be forgotten.
        method: forget-svgd, take-back or retrain.
        out: the run folder to make.
        options: of `plan_erasure`; they are part of the request.

    Raises:
        UserError: it cannot be done; nothing was written.
    """
    out = out.resolve()
    asked = {"agents": sorted(agents), "method": method, "out": str(out), "options": options}
    load_run_config(parent, careful=False)  # is it a run folder at all?
    with hold(parent) as journal:
        earlier = erasures_of(parent)
        known = next((event for event in earlier if event["out"] == str(out)), None)
        if known is not None:
            before = {key: known.get(key) for key in asked}
            if before != asked:
                raise UserError(
                    "Another erasure was asked for with the same '--out':\n  " + "\n  ".join(differences(before, asked))
                )
            if (out / "config.toml").is_file():
                return Request(parent, out, load_run_config(out), known=True)
        elif under_way := [event for event in earlier if not event["done"]]:
            last = under_way[-1]
            raise UserError(
                f"Another erasure of run '{parent}' is under way: agents {', '.join(map(str, last['agents']))} in "
                f"{last['out']}. Finish it with 'fedstein forget' as before, then forget more agents from there."
            )
        _refuse_places(parent, out)
        _refuse_unfinished(parent)
        checkpoint, particles = load_checkpoint(parent)
        state = checkpoint.state()
        old = load_run_config(parent)
        problem = build_problem(old, load_features_of(parent), remote=is_remote(parent))
        check_particles(parent, old, problem, particles)
        config = plan_erasure(
            old,
            problem,
            state,
            agents,
            method,
            still_known=unforgotten(parent) if old.erasures else (),
            parent=str(parent.resolve()),
            parent_sha256=checkpoint.particles_sha256,
            **options,
        )
        if known is None:
            journal.note(
                "erasure requested",
                request=_identity(asked, checkpoint.particles_sha256),
                **asked,
                round=checkpoint.round,
                particles_sha256=checkpoint.particles_sha256,
            )
            journal.sync()
    return Request(parent, out, config, known is not None)


def _refuse_unfinished(run: Path) -> None:
    """An erasure purges the run that it begins from: that run must be complete and as it says it is."""
    config = load_run_config(run, careful=False)
    if config.erasures and not is_done(run):
        raise UserError(f"The erasure in run '{run}' is not finished. Go on with 'fedstein resume {run}'.")
    if changed := edits(run):
        raise UserError(
            f"The config of run '{run}' was edited since it began, so its agents may not be who they were:\n  "
            + "\n  ".join(changed)
        )
    done, there = load_checkpoint(run)[0].round, sum(1 for _ in read_metrics(run))
    if there < done:
        raise UserError(f"The metrics.jsonl of run '{run}' is damaged: it has {there} whole lines for {done} rounds.")


def open_run(request: Request, problem: Problem) -> tuple[RunFolder, State | None]:
    """The new run folder and the state to go on from."""
    if (request.out / "config.toml").is_file():
        return RunFolder.resume(request.out)
    if is_half_made(request.out):
        shutil.rmtree(request.out)
    return RunFolder.create(request.out, request.config, problem.frozen), None


def frozen_network(request: Request) -> Tensor | None:
    """The features of the new run: the parent's, unless it is retrained and they were pre-trained in the run itself."""
    if (request.out / "features.safetensors").is_file():
        return load_features_of(request.out)
    if request.erasure.method == "retrain" and request.config.pretrain.rounds:
        return None
    return load_features_of(request.parent)


def begin(run: RunFolder, problem: Problem) -> State | None:
    """The first state of an erasure, from its parent; None where it begins from scratch."""
    erasure = run.config.erasures[-1]
    parent = Path(erasure.parent)
    checkpoint = load_checkpoint(parent)[0]
    if checkpoint.particles_sha256 != erasure.parent_sha256:
        raise UserError(f"The run '{parent}' is not as it was when the erasure was requested: its particles changed.")
    old = checkpoint.state()
    run.note(
        "erasure began",
        parent=str(parent),
        round=checkpoint.round,
        before=assess(problem, old.particles),
        site_norms=site_norms(old, erasure.agents),
    )
    if erasure.start == 0:
        return None
    state = first_state(old, problem, run.config)
    run.adopt(parent, state)
    return state


def complete(run: Path) -> None:
    """Purge what is left of the agents, in this run and in those before it, and say that it is done.

    Doing it again purges what could not be reached before, for instance a run folder that had been moved.
    """
    config = load_run_config(run, careful=False)
    checkpoint = load_checkpoint(run)[0]
    erasure = config.erasures[-1]
    gone = {
        "request": _request_of(erasure, run),
        "agents": list(erasure.agents),
        "out": str(run.resolve()),
        "round": checkpoint.round,
        "parent_sha256": erasure.parent_sha256,
        "particles_sha256": checkpoint.particles_sha256,
        "unforgotten": unforgotten(run),
    }
    done = is_done(run)
    for one in reversed(config.erasures):
        place = Path(one.parent)
        # A run is purged only if it knows of the request itself: a config could name any folder.
        if not one.parent or _request_of(one) is None:
            warnings.warn(
                f"The run '{place}' that the erasure began from is not there, or knows nothing of it: it was not "
                f"purged. Put it back and say 'fedstein resume {run}', or delete it.",
                stacklevel=2,
            )
            continue
        with hold(place) as journal:
            found = {} if erasure.keep_parent else purge(place, config.erased)
            if any(found.values()):
                journal.note("purged", **found)
            if one is erasure and not any(
                event["request"] == gone["request"] and event["done"] for event in erasures_of(place)
            ):
                journal.note("erasure done", **gone)
            journal.sync()
    if done:
        return
    with hold(run) as journal:
        journal.note("purged", kept_parent=erasure.keep_parent, **purge(run, config.erased, keep=1))
        journal.note("erasure done", **gone)
        journal.sync()


def unforgotten(run: Path) -> list[int]:
    """Agents elsewhere that had to forget themselves, and did not, or not enough: the model still knows them."""
    erasure = load_run_config(run, careful=False).erasures[-1]
    if erasure.rounds == 0 or not is_remote(run):  # retrained, or taken back by the server; or nobody can be away
        return []
    return sorted(agent for agent, left in left_of(run, erasure).items() if left > MOST_LEFT)


def left_of(run: Path, erasure: ErasureConfig) -> dict[int, float]:
    """What is left of each agent that forgets itself: 1 until it has answered.

    Of a site: every upload says which share of the energy of all that was left has arrived.
    """
    left = dict.fromkeys(erasure.agents, 1.0)
    for line in read_metrics(run):
        if erasure.start < line["round"] <= erasure.start + erasure.rounds:
            for upload in line["uploads"]:
                if upload["agent"] in left and not upload["refused"]:
                    gone = upload["captured"] if erasure.method == "take-back" else 1.0
                    left[upload["agent"]] *= min(1.0, max(0.0, 1.0 - gone)) ** 0.5
    return left


def is_done(run: Path) -> bool:
    """Whether the erasure that a run folder is for is complete."""
    return done_event(run) is not None


def done_event(run: Path) -> dict[str, Any] | None:
    """What the journal says of the end of the erasure that a run folder is for."""
    if not (run / "config.toml").is_file():
        return None
    config = load_run_config(run, careful=False)
    began = config.erasures[-1].parent_sha256 if config.erasures else None
    events = [event for event in read_journal(run) if event["event"] == "erasure done"]
    return next((event for event in events if began and event.get("parent_sha256") == began), None)


def bits_before(run: Path, config: Config) -> int:
    """What had been sent up when the newest erasure began."""
    start = config.erasures[-1].start
    return next((line["total_upload_bits"] for line in read_metrics(run) if line["round"] == start), 0)


def describe(run: Path, result: dict[str, Any]) -> dict[str, Any]:
    """The result of an erasure: what `fedstein forget --json` prints."""
    config = load_run_config(run, careful=False)
    erasure = config.erasures[-1]
    sent = bits_before(run, config)
    found = {
        "run": str(run),
        "parent": erasure.parent,
        "method": erasure.method,
        "by": erasure.by,
        "agents": list(erasure.agents),
        "rounds": result["rounds"] - erasure.start,
        "upload_bits": result["total_upload_bits"] - sent,
        "forgotten_accuracy": result.get("forgotten_accuracy"),
        "retained_accuracy": result.get("retained_accuracy"),
        "seconds": result["seconds"],
        "total_rounds": result["rounds"],
    }
    return found | {key: value for key, value in result.items() if key not in found}


def _refuse_places(parent: Path, out: Path) -> None:
    """Folders that purging would reach beyond, or not reach."""
    here = parent.resolve()
    if out == here or here in out.parents or out in here.parents:
        raise UserError(f"The '--out' must be a folder of its own, beside the run {here}. Got {str(out)!r}.")
    if out.exists() and (not out.is_dir() or any(out.iterdir())) and not is_half_made(out):
        raise UserError(f"The '--out' must be a new folder. {out} exists already.")
    links = [path for kind in ("agents", "frames", "checkpoints") for path in (here / kind, *(here / kind).glob("*"))]
    if links := [path for path in links if path.is_symlink()]:
        raise UserError(
            f"{links[0]} is a link: what it leads to cannot be purged from here. Put the files in its place."
        )


def _identity(asked: dict[str, Any], sha256: str) -> str:
    return hashlib.sha256(json.dumps([asked, sha256], sort_keys=True).encode()).hexdigest()[:12]


def _request_of(erasure: ErasureConfig, run: Path | None = None) -> str | None:
    """The number of the request behind an erasure, in the journal of the run that it was asked of.

    Where the parent was kept there may be several alike; the one that asked for the folder `run` is meant then.
    """
    alike = [
        event
        for event in erasures_of(Path(erasure.parent))
        if event["agents"] == sorted(erasure.agents) and event.get("particles_sha256") == erasure.parent_sha256
    ]
    named = [event for event in alike if run is not None and event["out"] == str(run.resolve())]
    return next((str(event.get("request")) for event in [*named, *alike]), None)
