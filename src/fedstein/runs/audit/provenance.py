"""Provenance: request, parents and hashes, what was purged, who visited afterwards, which parameters were touched."""

from __future__ import annotations

from pathlib import Path

from fedstein.runs.audit.record import Audit, Model, Status
from fedstein.runs.folder import edits, is_remote
from fedstein.runs.forget.complete import done_event, left_of
from fedstein.store import checkpoints
from fedstein.store.checkpoints import Checkpoint, checkpoint_rounds, turn_file
from fedstein.store.features import FEATURE_FILES
from fedstein.store.journal import erasures_of, read_journal
from fedstein.store.lineage import Lineage
from fedstein.store.metrics_log import read_metrics
from fedstein.store.purge import KINDS

__all__ = [
    "check_leftovers",
    "check_provenance",
    "check_schedule",
    "check_taken_back",
    "check_touched",
    "check_window",
    "handed_over",
]


def handed_over(lineage: Lineage) -> bool:
    """Whether those who stay were given a portion of what was taken back."""
    return lineage.newest.method == "take-back" and lineage.newest.handover


def check_provenance(audit: Audit, sha256: str) -> None:
    """Request, parents and hashes, and whether they fit each other."""
    erasure, run = audit.lineage.newest, audit.run
    done = done_event(run) or {}
    parent = Path(erasure.parent)
    request = next((event for event in erasures_of(parent) if event.get("request") == done.get("request")), None)
    mistakes: list[str] = []
    doubtful = request is None
    if request is None:
        mistakes.append(f"the run {parent} is not there any more, or its journal does not know of the request")
    elif request.get("particles_sha256") != erasure.parent_sha256 or request["agents"] != sorted(erasure.agents):
        mistakes.append("the journal of the run that it began from names other agents or particles")
    if done.get("particles_sha256") != sha256:
        longer = audit.round > int(done.get("round") or 0)
        mistakes.append(
            "the run was extended since: its particles are not those that the erasure ended with"
            if longer
            else "the particles are not those that the erasure ended with"
        )
        doubtful = longer and len(mistakes) == 1
    for one in [one for one in audit.lineage.erasures[:-1] if one.parent]:
        if not any(event.get("particles_sha256") == one.parent_sha256 for event in erasures_of(Path(one.parent))):
            mistakes.append(f"the run {one.parent}, an earlier one, is not there, or does not know of its request")
    if changed := edits(run):
        mistakes.append(f"the config was edited since the run began ({'; '.join(changed)})")
    audit.table["request"] = {
        "id": done.get("request"),
        "agents": list(erasure.agents),
        "erased_in_all": list(audit.lineage.erased),
        "method": erasure.method,
        "by": erasure.by,
        "guarded": erasure.guarded,
        "handed_over": handed_over(audit.lineage),
        "requested": None if request is None else request.get("time"),
        "done": done.get("time"),
    }
    audit.table["provenance"] = {
        "parents": [str(one.parent) for one in audit.lineage.erasures],
        "particles_sha256_before": erasure.parent_sha256,
        "particles_sha256_after": sha256,
        "round_before": erasure.start,
        "round_after": done.get("round"),
    }
    status: Status = "pass" if not mistakes else "warn" if doubtful and len(mistakes) == 1 else "fail"
    note = "; ".join(mistakes) or "journals, hashes and parents of request and result fit each other"
    audit.check("provenance", float(len(mistakes)), 0.0, status, note)


def check_leftovers(audit: Audit) -> None:
    """Whether the folders hold anything that should not be there: everything that is not known to belong is told."""
    lineage, run = audit.lineage, audit.run
    parents = [Path(erasure.parent) for erasure in lineage.erasures if erasure.parent]
    # Only folders that know of a request are looked into: a config could name any.
    reached = [parent for parent in dict.fromkeys(parents) if erasures_of(parent)]
    left: list[str] = []
    for place in [run, *reached]:
        for file in sorted(place.rglob("*")):
            parts = file.relative_to(place).parts
            if (file.is_symlink() or not file.is_dir()) and not _belongs(place, parts, lineage, model=place == run):
                left.append(str(file))
    purged: dict[str, int] = {}
    for place in [run, *reached]:
        for event in read_journal(place):
            if event["event"] == "purged":
                for kind in KINDS:
                    purged[kind] = purged.get(kind, 0) + int(event.get(kind) or 0)
    kept = any(erasure.keep_parent for erasure in lineage.erasures)
    lost = [str(parent) for parent in dict.fromkeys(parents) if parent not in reached]
    audit.table["purged"] = {"files": purged, "left": left, "kept_parent": kept, "not_looked_into": lost}
    note = (
        f"{purged.get('agents', 0)} files of what the erased agents kept were deleted, {purged.get('frames', 0)} of "
        f"their frames, {purged.get('checkpoints', 0)} checkpoints of models that knew them"
    )
    status: Status = "pass"
    if lost:
        status, note = "warn", f"{lost[0]} is not there, or knows of no request: it could not be looked into"
    if left:
        why = "the operator asked to keep the parent" if kept else "they should not be there"
        status, note = "warn" if kept else "fail", f"{len(left)} files are left, the first is {left[0]}: {why}"
    audit.check("purged", float(len(left)), 0.0, status, note)


_RECORDS = {"config.toml", "model.json", "environment.json", "metrics.jsonl", "journal.jsonl", "result.json", "lock",
            "flower.json", "lineage.json", "data.json", "test.sha256"}  # fmt: skip


def _belongs(place: Path, parts: tuple[str, ...], lineage: Lineage, model: bool) -> bool:
    """Whether a file may be in a run folder: records; and in the new run the model, and what those who stay keep."""
    if len(parts) == 1:
        return parts[0] in _RECORDS or (model and parts[0] in ("features.safetensors", "report.html", *FEATURE_FILES))
    stays = parts[1].removeprefix("agent-") not in map(str, lineage.erased)
    if parts[0] == "frames":
        return len(parts) == 3 and stays and parts[2].endswith(".frame")
    if parts[0] == "tensorboard":
        return True
    if not model:
        return False
    if parts[0] == "agents":
        return len(parts) == 3 and stays
    if parts[0] == "checkpoints":
        there = [one for one in checkpoints.newest(place) if isinstance(one, Checkpoint)]
        turns = {turn_file(place, turn.last).name for one in there for turn in one.turns.whole}
        rounds = checkpoint_rounds(place)
        return parts[1] in turns | {f"round-{r:06d}{kind}" for r in rounds for kind in (".json", ".safetensors")}
    return parts[0] == "report-figures" or (
        parts[0] == "audit"
        and (parts[1] in ("audit.json", "audit.html", "audit-figures") or parts[1][:10] == "retrained-")
    )


def check_schedule(audit: Audit) -> None:
    """Whether an erased agent has visited after it was forgotten."""
    late = lines = 0
    for line in read_metrics(audit.run):
        lines = line["round"]
        for erasure in audit.lineage.erasures:
            gone = line["round"] > erasure.last_visit
            late += gone and any(upload["agent"] in erasure.agents for upload in line["uploads"])
    missing = audit.round - lines
    note = "rounds with an erased agent after its last one"
    if missing > 0:
        note = f"metrics.jsonl has no record of the last {missing} rounds"
    status: Status = "fail" if late or missing > 0 else "pass"
    audit.check("never scheduled again", float(late), 0.0, status, note)


def check_window(audit: Audit, mine: Model) -> None:
    """Whether what predicts was made anew: means over turns remember whoever was there."""
    turns, last = mine.state.turns, audit.lineage.newest.last_visit
    length = audit.config.posterior.length(audit.config.method.particles)
    if length == 0:
        return
    window = turns.window(length)
    missing, early = turns.meant(length) - len(window), sum(turn.first <= last for turn in turns.whole)
    early += turns.rounds > 0 and turns.first <= last
    note = f"{len(window)} turn means predict, the oldest begins with round {window[0].first if window else 'none'}, "
    note += f"and the last visit of an erased agent was in round {last}"
    if missing:
        note = f"{missing} of {turns.meant(length)} turn means are missing; {note}"
    audit.check("window made anew", float(early + missing), 0.0, "fail" if early or missing else "pass", note)


def check_taken_back(audit: Audit) -> None:
    """By agents, within a budget: how much of the sites is left."""
    erasure = audit.lineage.newest
    if erasure.method != "take-back" or erasure.by != "agent":
        return
    note = "largest share of an agent's site that its uploads have not taken back"
    if is_remote(audit.run):
        share = max(left_of(audit.run, erasure).values())
        status: Status = "pass" if share <= 0.01 else "warn" if share <= 0.05 else "fail"
        audit.check("site taken back", share, 0.01, status, f"{note}, by what the agents say of their uploads")
        return
    norms: dict[str, dict[str, float]] = {}
    for event in read_journal(audit.run):
        if event["event"] in ("erasure began", "forgot"):
            norms[event["event"]] = event.get("site_norms") or {}
    first, last = norms.get("erasure began", {}), norms.get("forgot", {})
    if "forgot" not in norms or first.keys() - last.keys():
        audit.check("site taken back", None, 0.01, "fail", "the journal has no record of it")
        return
    share = max((last[agent] / norm for agent, norm in first.items() if norm > 0), default=0.0)
    status = "pass" if share <= 0.01 else "warn" if share <= 0.05 else "fail"
    audit.check("site taken back", share, 0.01, status, note)


def check_touched(audit: Audit) -> None:
    """Which parameters the erasure could change at all, and whether the others can know anything of the agents.

    What is frozen was either there before the federation, and knows nothing of it, or was learnt by one.
    """
    problem, config = audit.problem, audit.config
    dim = problem.dim
    total = dim if problem.network is None else problem.network.size
    audit.table["parameters"] = {"touched": dim, "of": total}
    if (knows := problem.network_files.knows) is not None:
        note = (
            f"{dim:,} of {total:,}: the run began with values of 'model.weights', which fedstein exported from a run "
            f"(its particles: {knows[:12]}...): they may have been learnt from the erased agents' data"
        )
        audit.check("parameters touched", dim / total, 1.0, "warn", note)
        return
    if total == dim:
        audit.check("parameters touched", 1.0, 1.0, "pass", f"all {dim:,} of them")
        return
    if audit.lineage.newest.method == "retrain" and config.pretrain.rounds:
        audit.check("parameters touched", 1.0, 1.0, "pass", "the features were pre-trained again without the agents")
        return
    if config.model.module is not None:
        whose = f"'{config.model.module}'" if config.model.weights is None else "'model.weights'"
        note = (
            f"{dim:,} of {total:,}: the other {total - dim:,} are frozen values that {whose} brought, from outside of "
            "the federation: no agent has changed them. What their maker made them from cannot be seen from here"
        )
        audit.check("parameters touched", dim / total, 1.0, "pass", note)
        return
    saw = (
        "were pre-trained with the erased agents' data"
        if config.pretrain.rounds
        else "come from another run, which may have seen the erased agents' data"
    )
    note = (
        f"{dim:,} of {total:,}: the last layer. The {total - dim:,} parameters of the frozen features {saw}, and were "
        "not changed. '--method retrain' trains them again; so does training whole networks"
    )
    audit.check("parameters touched", dim / total, 1.0, "warn", note)
