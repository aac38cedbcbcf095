"""A request for erasure, from the moment it is asked until everything is purged. It survives a stop at any point.

    ask        check, then write "erasure requested" into the parent's journal, forced to disk: from here on the parent
               cannot go on, and the request is known
    open_run   the new run folder: made, begun from the parent's state, or found as it was left
    (rounds)   `forget/rounds.py`, in the new run
    complete   purge the new run and its parents, and write "erasure done" into the journals (`forget/complete.py`)

Each step looks at what is there and does what is missing, so that doing all of them again changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedstein.devices import device_or_cpu
from fedstein.errors import UserError
from fedstein.protocol.state import State
from fedstein.runs.assess import assess
from fedstein.runs.data_record import check_data, hashed
from fedstein.runs.folder import (
    check_particles,
    edits,
    is_half_made,
    is_remote,
    lineage_of,
    load_checkpoint,
    load_run_config,
)
from fedstein.runs.forget.complete import is_done, unforgotten
from fedstein.runs.forget.plan import plan_erasure
from fedstein.runs.forget.rounds import contribution_sizes, first_state
from fedstein.runs.given import Given
from fedstein.runs.network_files import NetworkFiles, load_network_files
from fedstein.runs.problem import Problem, build_problem
from fedstein.runs.recorder import Recorder, hold
from fedstein.runs.training import members_of
from fedstein.settings import Config, differences
from fedstein.store.journal import erasures_of
from fedstein.store.lineage import Erasure, Forgetting, Lineage, load_lineage
from fedstein.store.metrics_log import read_metrics
from fedstein.trackers import check_trackers

__all__ = ["Request", "ask", "begin", "network_files_of", "open_run"]


@dataclass(frozen=True)
class Request:
    """What was asked, and the config of the run that will do it."""

    parent: Path
    out: Path
    config: Config
    lineage: Lineage
    asked_before: bool  # the same, and it was written down then

    @property
    def erasure(self) -> Erasure:
        """What this request asks for."""
        return self.lineage.newest

    def words(self) -> str:
        """An acknowledgement: the request is on disk, and what it will take."""
        erasure = self.erasure
        agents = ", ".join(map(str, erasure.agents))
        known = "was known already" if self.asked_before else "is on disk"
        said = f"The request to forget agents {agents} of {self.parent} {known} (journal.jsonl)."
        again = self.lineage.training_rounds(self.config.rounds)
        if erasure.method != "retrain":
            said += f"\nIt takes {erasure.rounds} rounds of those who leave and {erasure.repair} of those who stay."
            if erasure.rounds + erasure.repair > again:
                said += f" Training again ('--method retrain') takes {again}."
        return said


def ask(
    parent: Path,
    agents: Sequence[int],
    method: Forgetting,
    out: Path,
    given: Given | None = None,
    **options: Any,
) -> Request:
    """Check a request and write it into the parent's journal; when this returns it will not be lost.

    Args:
        parent: the run folder.
        agents: who asked to be forgotten.
        method: forget-svgd, take-back or retrain.
        out: the run folder to make.
        given: what the run was given in Python, if it was.
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
            earlier_words = {key: known.get(key) for key in asked}
            if earlier_words != asked:
                raise UserError(
                    "Another erasure was asked for with the same '--out':\n  "
                    + "\n  ".join(differences(earlier_words, asked))
                )
            if (out / "config.toml").is_file():
                lineage = lineage_of(out)
                return Request(parent, out, load_run_config(out), lineage, asked_before=True)
        elif under_way := [event for event in earlier if not event["done"] and not _both_keep(event, options)]:
            last = under_way[-1]
            raise UserError(
                f"Another erasure of run '{parent}' is under way: agents {', '.join(map(str, last['agents']))} in "
                f"{last['out']}. Finish it with 'fedstein forget' as before, then forget more agents from there."
            )
        _refuse_places(parent, out)
        _refuse_unfinished(parent)
        checkpoint, learnt = load_checkpoint(parent)
        state = checkpoint.state()
        old, before = load_run_config(parent), lineage_of(parent)
        device = device_or_cpu(old.device, say=False)  # for a look at it: what forgets has a device of its own
        problem = build_problem(
            old, before, given=given, files=load_network_files(parent), remote=is_remote(parent), device=device
        )
        check_particles(parent, old, problem.dim, learnt.particles)
        check_data(parent, hashed(problem), before.erased)
        config, lineage = plan_erasure(
            old,
            before,
            problem,
            state,
            agents,
            method,
            still_known=unforgotten(parent) if before else (),
            parent=str(parent.resolve()),
            parent_sha256=checkpoint.particles_sha256,
            **options,
        )
        _refuse_what_cannot_run(config, lineage, given, parent)
        _make_place(out)
        if known is None:
            journal.note(
                "erasure requested",
                request=_identity(asked, checkpoint.particles_sha256),
                **asked,
                round=checkpoint.round,
                particles_sha256=checkpoint.particles_sha256,
            )
            journal.sync()
    return Request(parent, out, config, lineage, known is not None)


def _refuse_what_cannot_run(config: Config, lineage: Lineage, given: Given | None, parent: Path) -> None:
    """Whatever would end the new run at its start is told now: a request that is written down must be possible."""
    check_trackers(config.recording.trackers)
    files = load_network_files(parent)  # never pre-trained for a look
    problem = build_problem(config, lineage, given=given, files=files, remote=is_remote(parent))
    config.uplink.link(config.method, problem.dim)
    config.schedule.pick(0, len(problem.holdings.present), config.seed)


def _both_keep(event: dict[str, Any], options: dict[str, Any]) -> bool:
    """Whether neither purges the parent: then one that never ended, a divergence perhaps, is in nobody's way."""
    before = event.get("options")
    return bool(options.get("keep_parent")) and isinstance(before, dict) and bool(before.get("keep_parent"))


def _refuse_unfinished(run: Path) -> None:
    """An erasure purges the run that it begins from: that run must be complete and as it says it is."""
    if load_lineage(run) and not is_done(run):
        raise UserError(f"The erasure in run '{run}' is not finished. Go on with 'fedstein resume {run}'.")
    if changed := edits(run):
        raise UserError(
            f"The config of run '{run}' was edited since it began, so its agents may not be who they were:\n  "
            + "\n  ".join(changed)
        )
    done, there = load_checkpoint(run)[0].round, sum(1 for _ in read_metrics(run))
    if there < done:
        raise UserError(f"The metrics.jsonl of run '{run}' is damaged: it has {there} whole lines for {done} rounds.")


def open_run(request: Request, problem: Problem, given: Given | None = None) -> tuple[Recorder, State | None]:
    """The new run folder and the state to go on from."""
    if (request.out / "config.toml").is_file():
        return Recorder.resume(request.out, device=problem.device)
    if is_half_made(request.out):
        shutil.rmtree(request.out)
    created = Recorder.create(
        request.out, request.config, request.lineage, problem.network_files, given, problem.device, hashed(problem)
    )
    return created, None


def network_files_of(request: Request) -> NetworkFiles:
    """What the new run has of the network: the parent's, unless that was pre-trained in the run and is so again."""
    if (request.out / "features.safetensors").is_file():
        return load_network_files(request.out)
    if request.erasure.method == "retrain" and request.config.pretrain.rounds:
        return NetworkFiles()
    return load_network_files(request.parent)


def begin(run: Recorder, problem: Problem) -> State | None:
    """The first state of an erasure, from its parent; None where it begins from scratch."""
    erasure = run.lineage.newest
    parent = Path(erasure.parent)
    checkpoint = load_checkpoint(parent)[0]
    if checkpoint.particles_sha256 != erasure.parent_sha256:
        raise UserError(f"The run '{parent}' is not as it was when the erasure was requested: its particles changed.")
    old = checkpoint.state()
    run.note(
        "erasure began",
        parent=str(parent),
        round=checkpoint.round,
        before=assess(problem, members_of(old, run.config.posterior, run.config.seed)),
        site_norms=contribution_sizes(old, run.config.method, erasure.agents),
    )
    if erasure.start == 0:
        return None
    state = first_state(old, problem, run.config.method, run.lineage, run.config.recording.escrow)
    run.adopt(parent, state)
    return state


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


def _make_place(out: Path) -> None:
    """The new folder, empty: a request that is written down must have a place."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"Cannot make the '--out' {out}: {error.strerror}.") from error


def _identity(asked: dict[str, Any], sha256: str) -> str:
    return hashlib.sha256(json.dumps([asked, sha256], sort_keys=True).encode()).hexdigest()[:12]
