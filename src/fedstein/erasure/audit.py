"""The audit of an erasure: is the model now like one that never had the data?

The yardstick is retraining: the same config without the erased agents, once with the run's own seed and again with
others. What two retrained models differ by is what cannot be asked of an erasure. Every check has a value, a threshold,
a status (pass, warn, fail) and a note; `quick` retrains three models, `full` five and shadow models besides.

The audit looks at the erased agents' data: it is for the operator, before that data is gone, or for a simulation.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice, permutations
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal

import torch
from scipy.stats import t as student
from torch import Tensor

from fedstein import __version__
from fedstein.build import build_problem, check_particles, fit_config, load_features_of
from fedstein.config import Config, ErasureConfig, differences, to_table
from fedstein.data import Examples
from fedstein.engines import State, Totals, rounds
from fedstein.erasure.evidence import SCORES, assess, membership
from fedstein.erasure.request import bits_before, done_event, is_done, left_of
from fedstein.errors import UserError
from fedstein.metrics import (
    accuracy,
    js,
    kl,
    likelihood_ratio,
    membership_auc,
    true_positives,
    true_probability,
)
from fedstein.problem import Metrics, Problem, predict
from fedstein.runs import (
    RunFolder,
    edits,
    erasures_of,
    is_remote,
    load_checkpoint,
    load_run_config,
    read_journal,
    read_metrics,
)
from fedstein.runs.checkpoints import checkpoint_rounds
from fedstein.training import Watcher, fit

__all__ = ["SCHEMA", "TIERS", "Audit", "Check", "Watch", "audit"]

SCHEMA = "fedstein.audit/1"
TIERS = {"quick": (3, 0), "full": (5, 16)}  # retrained models, shadow models
RELEARN_ROUNDS = 100
FLOORS = {"accuracy": 0.01, "nll": 0.02, "ece": 0.01, "brier": 0.01}  # what is never held against an erasure

LIMITS = (
    "The evidence is empirical: it can show that something is left, it cannot prove that nothing is. This is not a "
    "certificate of unlearning, and not differential privacy.",
    "It assumes an honest operator: copies of the model, of frames or of checkpoints outside these folders cannot be "
    "seen from here. So cannot predictions that were made before.",
    "Membership inference finds what its attack looks for. A stronger attack may find more.",
    "Deleted files are unlinked, not overwritten: backups, snapshots and the disk itself may still hold them.",
    "The agents that stay trained beside the erased ones: what they keep was shaped by models that knew the data, and "
    "is not looked at here.",
)
HANDED_OVER = (
    "The erased agents' sites were handed over: each agent that stays was given an equal share of their sum, which its "
    "own data replaces visit by visit. '--subtract' gives nothing to anybody, and needs more repair."
)

Status = Literal["pass", "warn", "fail"]
Watch = Callable[[str, int], AbstractContextManager[Watcher]]
"""Is told what is about to be trained, for how many rounds, and gives a watcher for it."""


@dataclass(frozen=True)
class Check:
    """One line of the verdict."""

    name: str
    value: float | None
    threshold: float | None
    status: Status
    note: str


@dataclass
class Audit:
    """All that the audit has found; `table` is the JSON report."""

    run: Path
    tier: str
    config: Config
    problem: Problem
    round: int  # of the model that is audited
    checks: list[Check] = field(default_factory=list)
    table: dict[str, Any] = field(default_factory=dict)
    losses: dict[str, Tensor] = field(default_factory=dict)  # true-class probabilities, for the histogram

    def check(self, name: str, value: float | None, threshold: float | None, status: Status, note: str) -> None:
        """Add a line."""
        value = None if value is None else round(value, 12)  # no -1.1e-16
        self.checks.append(Check(name, value, threshold, status, note))

    @property
    def verdict(self) -> Status:
        """The worst of all lines."""
        found = {check.status for check in self.checks}
        return "fail" if "fail" in found else "warn" if "warn" in found else "pass"


@dataclass(frozen=True)
class Model:
    """Particles under audit, or retrained ones to compare them with."""

    seed: int
    state: State
    totals: Totals
    seconds: float
    sha256: str

    @property
    def particles(self) -> Tensor:
        """(N_p, d)."""
        return self.state.particles


def audit(run: Path, tier: str, watch: Watch, data: Path | None = None) -> Audit:
    """Audit a run folder that `fedstein forget` has made.

    `data` is the folder with the agents' files, where the server does not have them.

    Raises:
        UserError: it forgot nothing, or is not finished.
    """
    config = load_run_config(run)
    if not config.erasures:
        raise UserError(f"The run '{run}' forgot nothing: there is nothing to audit. 'fedstein forget' comes first.")
    if not is_done(run):
        raise UserError(f"The erasure in run '{run}' is not finished. Go on with 'fedstein resume {run}'.")
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    if data is not None:
        if config.data.name != "folder":
            raise UserError(f"The '--data' is for runs with data.name = 'folder'. This one has '{config.data.name}'.")
        config = config.model_copy(update={"data": config.data.model_copy(update={"path": str(data.resolve())})})
    problem = build_problem(config, load_features_of(run))
    checkpoint, particles = load_checkpoint(run)
    check_particles(run, config, problem, particles)
    found = Audit(run, tier, config, problem, checkpoint.round)
    sent = bits_before(run, config)
    totals = replace(checkpoint.totals, upload_bits=checkpoint.totals.upload_bits - sent)
    mine = Model(config.seed, checkpoint.state(), totals, checkpoint.seconds, checkpoint.particles_sha256)
    before = _before(run)
    _provenance(found, checkpoint.particles_sha256)
    _leftovers(found)
    _schedule(found)
    _taken_back(found)
    _touched(found)
    count, shadows = TIERS[tier]
    first = config.seed + (config.erasures[-1].method == "retrain")  # that of its own seed is this very run
    retrained = [_retrained(found, first + i, i + 1, count, watch) for i in range(count)]
    found.table["retrained"] = [{"seed": model.seed, "particles_sha256": model.sha256} for model in retrained]
    _cost(found, mine, retrained)
    if problem.test is None:
        _exact(found, mine, retrained, before)
    else:
        _quality(found, mine, retrained, before)
        _divergence(found, mine, retrained)
        _membership(found, mine, before)
        _relearning(found, mine, retrained, before)
        _agents(found, mine, retrained, before)
        if shadows:
            _shadows(found, mine, retrained, shadows, watch)
            _features_retrained(found, mine, watch)
    found.table = {
        "schema": SCHEMA,
        "fedstein": __version__,
        "run": str(run.resolve()),
        "made": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "data": config.data.name,
        "tier": tier,
        "verdict": found.verdict,
        "checks": [asdict(check) for check in found.checks],
        **found.table,
        "limits": [*LIMITS, *([HANDED_OVER] if _handed_over(config) else [])],
    }
    return found


def _handed_over(config: Config) -> bool:
    return config.erasures[-1].method == "take-back" and config.erasures[-1].handover


def _before(run: Path) -> Metrics:
    """How good the model was when the request came."""
    found: Metrics = {}
    for event in read_journal(run):
        if event["event"] == "erasure began" and isinstance(event.get("before"), dict):
            found = event["before"]
    return found


def _provenance(found: Audit, sha256: str) -> None:
    """Request, parents and hashes, and whether they fit each other."""
    erasure, run = found.config.erasures[-1], found.run
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
        longer = found.round > int(done.get("round") or 0)
        mistakes.append(
            "the run was extended since: its particles are not those that the erasure ended with"
            if longer
            else "the particles are not those that the erasure ended with"
        )
        doubtful = longer and len(mistakes) == 1
    for one in found.config.erasures[:-1]:
        if not any(event.get("particles_sha256") == one.parent_sha256 for event in erasures_of(Path(one.parent))):
            mistakes.append(f"the run {one.parent}, an earlier one, is not there, or does not know of its request")
    if changed := edits(run):
        mistakes.append(f"the config was edited since the run began ({'; '.join(changed)})")
    found.table["request"] = {
        "id": done.get("request"),
        "agents": list(erasure.agents),
        "erased_in_all": list(found.config.erased),
        "method": erasure.method,
        "by": erasure.by,
        "guarded": erasure.guarded,
        "handed_over": _handed_over(found.config),
        "requested": None if request is None else request.get("time"),
        "done": done.get("time"),
    }
    found.table["provenance"] = {
        "parents": [str(one.parent) for one in found.config.erasures],
        "particles_sha256_before": erasure.parent_sha256,
        "particles_sha256_after": sha256,
        "round_before": erasure.start,
        "round_after": done.get("round"),
    }
    status: Status = "pass" if not mistakes else "warn" if doubtful and len(mistakes) == 1 else "fail"
    note = "; ".join(mistakes) or "journals, hashes and parents of request and result fit each other"
    found.check("provenance", float(len(mistakes)), 0.0, status, note)


def _leftovers(found: Audit) -> None:
    """Whether the folders hold anything that should not be there: everything that is not known to belong is told."""
    config, run = found.config, found.run
    parents = [Path(erasure.parent) for erasure in config.erasures if erasure.parent]
    # Only folders that know of a request are looked into: a config could name any.
    reached = [parent for parent in dict.fromkeys(parents) if erasures_of(parent)]
    left: list[str] = []
    for place in [run, *reached]:
        for file in sorted(place.rglob("*")):
            parts = file.relative_to(place).parts
            if (file.is_symlink() or not file.is_dir()) and not _belongs(place, parts, config, model=place == run):
                left.append(str(file))
    purged: dict[str, int] = {}
    for place in [run, *reached]:
        for event in read_journal(place):
            if event["event"] == "purged":
                for kind in ("agents", "other_agents", "frames", "checkpoints", "reports", "audits", "features"):
                    purged[kind] = purged.get(kind, 0) + int(event.get(kind) or 0)
    kept = any(erasure.keep_parent for erasure in config.erasures)
    lost = [str(parent) for parent in dict.fromkeys(parents) if parent not in reached]
    found.table["purged"] = {"files": purged, "left": left, "kept_parent": kept, "not_looked_into": lost}
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
    found.check("purged", float(len(left)), 0.0, status, note)


_RECORDS = {"config.toml", "environment.json", "metrics.jsonl", "journal.jsonl", "result.json", "lock", "flower.json"}


def _belongs(place: Path, parts: tuple[str, ...], config: Config, model: bool) -> bool:
    """Whether a file may be in a run folder: records; and in the new run the model, and what those who stay keep."""
    if len(parts) == 1:
        return parts[0] in _RECORDS or (model and parts[0] in ("features.safetensors", "report.html"))
    stays = parts[1].removeprefix("agent-") not in map(str, config.erased)
    if parts[0] == "frames":
        return len(parts) == 3 and stays and parts[2].endswith(".frame")
    if parts[0] == "tensorboard":
        return True
    if not model:
        return False
    if parts[0] == "agents":
        return len(parts) == 3 and stays
    if parts[0] == "checkpoints":
        rounds = checkpoint_rounds(place)
        return parts[1] in {f"round-{r:06d}{kind}" for r in rounds for kind in (".json", ".safetensors")}
    return parts[0] == "report-figures" or (
        parts[0] == "audit"
        and (parts[1] in ("audit.json", "audit.html", "audit-figures") or parts[1][:10] == "retrained-")
    )


def _schedule(found: Audit) -> None:
    """Whether an erased agent has visited after it was forgotten."""
    config = found.config
    late = lines = 0
    for line in read_metrics(found.run):
        lines = line["round"]
        for erasure in config.erasures:
            gone = line["round"] > erasure.start + erasure.rounds
            late += gone and any(upload["agent"] in erasure.agents for upload in line["uploads"])
    missing = found.round - lines
    note = "rounds with an erased agent after its last one"
    if missing > 0:
        note = f"metrics.jsonl has no record of the last {missing} rounds"
    status: Status = "fail" if late or missing > 0 else "pass"
    found.check("never scheduled again", float(late), 0.0, status, note)


def _taken_back(found: Audit) -> None:
    """By agents, within a budget: how much of the sites is left."""
    erasure = found.config.erasures[-1]
    if erasure.method != "take-back" or erasure.by != "agent":
        return
    note = "largest share of an agent's site that its uploads have not taken back"
    if is_remote(found.run):
        share = max(left_of(found.run, erasure).values())
        status: Status = "pass" if share <= 0.01 else "warn" if share <= 0.05 else "fail"
        found.check("site taken back", share, 0.01, status, f"{note}, by what the agents say of their uploads")
        return
    norms: dict[str, dict[str, float]] = {}
    for event in read_journal(found.run):
        if event["event"] in ("erasure began", "forgot"):
            norms[event["event"]] = event.get("site_norms") or {}
    first, last = norms.get("erasure began", {}), norms.get("forgot", {})
    if "forgot" not in norms or first.keys() - last.keys():
        found.check("site taken back", None, 0.01, "fail", "the journal has no record of it")
        return
    share = max((last[agent] / norm for agent, norm in first.items() if norm > 0), default=0.0)
    status = "pass" if share <= 0.01 else "warn" if share <= 0.05 else "fail"
    found.check("site taken back", share, 0.01, status, note)


def _touched(found: Audit) -> None:
    """Which parameters the erasure could change at all."""
    problem, config = found.problem, found.config
    dim = problem.model.dim
    total = dim if problem.frozen is None else problem.frozen.numel()
    found.table["parameters"] = {"touched": dim, "of": total}
    if problem.frozen is None:
        found.check("parameters touched", 1.0, 1.0, "pass", f"all {dim:,} of them")
        return
    if config.erasures[-1].method == "retrain" and config.pretrain.rounds:
        found.check("parameters touched", 1.0, 1.0, "pass", "the features were pre-trained again without the agents")
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
    found.check("parameters touched", dim / total, 1.0, "warn", note)


def _reference(config: Config, seed: int) -> Config:
    """The same training, without the agents, from scratch."""
    everyone = ErasureConfig(agents=config.erased, method="retrain")
    data = config.data.model_copy(update={"seed": config.seed if config.data.seed is None else config.data.seed})
    length = config.training_rounds
    return config.model_copy(
        update={
            "seed": seed,
            "rounds": length,
            "data": data,
            "erasures": (everyone,),
            "evaluation": config.evaluation.model_copy(update={"every": length}),
            "recording": config.recording.model_copy(update={"escrow": False, "trackers": ()}),
            "uplink": config.uplink.model_copy(update={"record_frames": False}),
        }
    )


def _retrained(found: Audit, seed: int, number: int, count: int, watch: Watch) -> Model:
    """A retrained model; kept in RUN/audit, so that an audit that is repeated finds it."""
    config = _reference(found.config, seed)
    path = found.run / "audit" / f"retrained-{seed}"
    frozen = found.problem.frozen
    return _train(path, config, frozen, f"Retraining without the agents, seed {seed} ({number} of {count})", watch)


def _train(path: Path, config: Config, frozen: Tensor | None, title: str, watch: Watch) -> Model:
    if (path / "config.toml").is_file() and differences(to_table(load_run_config(path, False)), to_table(config)):
        shutil.rmtree(path)
    begun = (path / "config.toml").is_file()
    problem = build_problem(config, load_features_of(path) if frozen is None and begun else frozen)
    state: State | None = None
    if begun:
        try:
            folder, state = RunFolder.resume(path)
        except UserError:  # damaged: it costs only time to do it again
            begun = False
    if not begun:
        shutil.rmtree(path, ignore_errors=True)
        folder = RunFolder.create(path, config, problem.frozen)
    with folder:
        if state is None or state.round < config.rounds:
            with watch(title, config.rounds) as watcher:
                trained = fit_config(config, [folder, watcher], problem, state, folder.note)
            folder.finish({"rounds": trained.state.round}, "interrupted" if trained.interrupted else "finished")
            if trained.interrupted:
                raise KeyboardInterrupt
            state = trained.state
    checkpoint = load_checkpoint(path)[0]
    return Model(config.seed, checkpoint.state(), checkpoint.totals, checkpoint.seconds, checkpoint.particles_sha256)


def _cost(found: Audit, mine: Model, retrained: Sequence[Model]) -> None:
    erasure = found.config.erasures[-1]
    bits = fmean(model.totals.upload_bits for model in retrained)
    seconds = fmean(model.seconds for model in retrained)
    found.table["cost"] = {
        "rounds": found.round - erasure.start,
        "upload_bits": mine.totals.upload_bits,
        "seconds": mine.seconds,
        "retraining_rounds": found.config.training_rounds,
        "retraining_upload_bits": bits,
        "retraining_seconds": seconds,
    }
    ratio = mine.totals.upload_bits / bits if bits else 0.0
    note = f"{mine.totals.upload_bits:,} of {bits:,.0f} bits, {mine.seconds:.1f} of {seconds:.1f} seconds"
    if erasure.method == "retrain":
        found.check("cost against retraining", ratio, 1.0, "pass", f"this is retraining: {note}")
    else:
        found.check("cost against retraining", ratio, 0.25, "pass" if ratio <= 0.25 else "warn", note)


def _graded(distance: float, tolerance: float) -> Status:
    return "pass" if distance <= tolerance else "warn" if distance <= 3 * tolerance else "fail"


def _exact(found: Audit, mine: Model, retrained: Sequence[Model], before: Metrics) -> None:
    """Problems whose posterior is known: the distance to the exact posterior without the agents."""
    now, others = found.problem.evaluate(mine.particles), [found.problem.evaluate(m.particles) for m in retrained]
    found.table["metrics"] = {"before": before, "audited": now, "retrained": others}
    for name in ("posterior_mean_error", "total_variation"):
        if name in now:
            worst = max(other[name] for other in others)
            tolerance = max(1.5 * worst, 0.01)
            note = f"before {before.get(name, float('nan')):.4g}; retrained models reach up to {worst:.4g}"
            found.check(name.replace("_", " "), now[name], tolerance, _graded(now[name], tolerance), note)


def _quality(found: Audit, mine: Model, retrained: Sequence[Model], before: Metrics) -> None:
    """Accuracy, NLL, ECE and Brier score on forgotten, retained and test data."""
    now = assess(found.problem, mine.particles)
    others = [assess(found.problem, model.particles) for model in retrained]
    found.table["metrics"] = {"before": before, "audited": now, "retrained": others}
    for group in ("forgotten", "retained", "test"):
        for name in SCORES:
            values = [other[group][name] for other in others]
            # Where another retrained model would be, with 95 % probability.
            width = float(student.ppf(0.975, len(values) - 1)) * (1 + 1 / len(values)) ** 0.5
            mean, spread = fmean(values), stdev(values) * width
            tolerance = max(spread, FLOORS[name] * (max(1.0, mean) if name == "nll" else 1.0))
            change = now[group][name] - mean
            # Better than retrained is no fault on retained data. Elsewhere it is remembered; worse is over-forgotten.
            worse = -change if name == "accuracy" else change
            distance = max(worse, 0.0) if group == "retained" else abs(change)
            note = f"{now[group][name]:.4g}; retrained {mean:.4g} ({min(values):.4g} to {max(values):.4g})"
            if before:
                note += f"; before {before[group][name]:.4g}"
            word = {"nll": "NLL", "ece": "ECE", "brier": "Brier score"}.get(name, name)
            found.check(f"{group}: {word}, off retrained", change, tolerance, _graded(distance, tolerance), note)


def _divergence(found: Audit, mine: Model, retrained: Sequence[Model]) -> None:
    """How differently the models predict, on the test set."""
    problem = found.problem
    assert problem.test is not None

    def of(model: Model) -> Tensor:
        assert problem.test is not None
        return predict(problem.model, model.particles, problem.test.x).probabilities

    ours, theirs = of(mine), [of(model) for model in retrained]
    between = [kl(a, b) for a, b in permutations(theirs, 2)]
    to = {f"seed {model.seed}": _spread(kl(other, ours)) for model, other in zip(retrained, theirs, strict=True)}
    table: dict[str, Any] = {
        "kl": to,
        "js": {f"seed {m.seed}": _spread(js(other, ours)) for m, other in zip(retrained, theirs, strict=True)},
        "kl_between_retrained": [_spread(one) for one in between],
    }
    found.table["divergence"] = table
    limit = fmean(float(one.mean()) for one in between)
    if retrained[0].seed == mine.seed:
        value = to[f"seed {mine.seed}"]
        note = (
            f"mean KL(retrained || this) in nats, 95 % below {value['p95']:.3g}, largest {value['largest']:.3g}; the "
            "threshold is the mean between retrained models of different seeds"
        )
        found.check("predictive KL, same seed", value["mean"], limit, _graded(value["mean"], limit), note)
    rest = [to[f"seed {model.seed}"]["mean"] for model in retrained if model.seed != mine.seed]
    note = "mean over retrained models of other seeds; threshold 1.5 times what they have between themselves"
    value_of_rest = fmean(rest)
    found.check("predictive KL, other seeds", value_of_rest, 1.5 * limit, _graded(value_of_rest, 1.5 * limit), note)


def _spread(values: Tensor) -> dict[str, float]:
    return {
        "mean": float(values.mean()),
        "p95": float(torch.quantile(values, 0.95)),
        "largest": float(values.max()),
    }


def _membership(found: Audit, mine: Model, before: Metrics) -> None:
    """The population loss attack, on this model and on models that cannot know."""
    auc, suspects, unseen = membership(found.problem, mine.particles)
    if auc is None:
        found.check("membership, loss attack", None, None, "warn", "the test set lacks labels of the forgotten data")
        return
    others = [other["membership_auc"] for other in found.table["metrics"]["retrained"]]
    mean = fmean(other for other in others if other is not None)
    found.losses = {"forgotten examples": suspects, "unseen examples": unseen}
    found.table["membership"] = {"auc": auc, "auc_retrained": others, "auc_before": before.get("membership_auc"),
                                 "forgotten": len(suspects), "unseen": len(unseen)}  # fmt: skip
    off = auc - mean
    was = before.get("membership_auc")
    error = ((1 / len(suspects) + 1 / len(unseen)) / 12) ** 0.5
    weak = was is None or abs(was - mean) < 0.03
    found.table["membership"] |= {"standard_error": error, "has_power": not weak}
    note = (
        f"AUC {auc:.3f} ± {error:.3f}; retrained models, which cannot know, {mean:.3f}"
        + (f"; before {was:.3f}" if was is not None else "")
        + ". Above theirs: something is remembered; below: over-forgotten, which betrays the data as well"
    )
    status = _graded(abs(off), 0.03)
    if weak and status == "pass":
        status, note = "warn", f"{note}. It says little: it hardly told them apart in the model before either"
    found.check("membership, loss attack: off retrained", off, 0.03, status, note)


def _relearning(found: Audit, mine: Model, retrained: Sequence[Model], before: Metrics) -> None:
    """If the forgotten agents came back: how many rounds of all agents bring their data back?"""
    if found.config.method.central or not before:
        found.check("relearn time", None, None, "warn", "not measured: the journal has no record of the model before")
        return
    target = 0.9 * before["forgotten"]["accuracy"]
    took = _relearn(found, mine, target)
    others = [_relearn(found, model, target) for model in retrained]
    found.table["relearn"] = {"target_accuracy": target, "rounds": took, "retrained": others, "most": RELEARN_ROUNDS}
    mean = fmean(others)
    status: Status = "pass" if took >= 0.5 * mean - 1 else "warn" if took >= 0.25 * mean - 1 else "fail"
    note = (
        f"if they came back: rounds of all agents until their data is at {target:.2f} again; retrained models need "
        f"{', '.join(map(str, others))} (at most {RELEARN_ROUNDS}). Much faster: something was left"
    )
    found.check("relearn time", float(took), 0.5 * mean - 1, status, note)


def _relearn(found: Audit, model: Model, target: float) -> int:
    config, problem = found.config, found.problem
    data = problem.pooled(problem.erased)
    some = data.take(torch.arange(0, len(data), -(-len(data) // 2000)))
    uplink = config.uplink.terms(config.method, problem.model.dim)
    everyone = range(len(problem.agents))
    schedule = config.schedule.model_copy(update={"order": "round-robin"})
    if accuracy(predict(problem.model, model.particles, some.x).probabilities, some.y) >= target:
        return 0
    # All models begin in the same round, so that the same agents come first.
    state = replace(model.state, round=-(-config.rounds // len(everyone)) * len(everyone))
    more = rounds(problem, config.method, schedule, config.seed, state, uplink, among=everyone)
    for count, now in enumerate(islice(more, RELEARN_ROUNDS), start=1):
        if accuracy(predict(problem.model, now.particles, some.x).probabilities, some.y) >= target:
            return count
    return RELEARN_ROUNDS


def _agents(found: Audit, mine: Model, retrained: Sequence[Model], before: Metrics) -> None:
    """What changed for each agent that stays."""
    metrics = found.table["metrics"]
    rows = []
    for agent in found.problem.present:
        others = [other["agents"][agent] for other in metrics["retrained"]]
        rows.append(
            {
                "agent": agent,
                "before": before["agents"][agent] if before else None,
                "audited": metrics["audited"]["agents"][agent],
                "retrained": fmean(others),
                "examples": len(found.problem.agents[agent]),
            }
        )
    found.table["retained_agents"] = rows
    worst = min(rows, key=lambda row: row["audited"] - row["retrained"])
    change = worst["audited"] - worst["retrained"]
    tolerance = max(0.02, 2.0 / worst["examples"])
    note = (
        f"accuracy on its own data, the agent that lost most: agent {worst['agent']}, {worst['audited']:.3f}; "
        f"retrained {worst['retrained']:.3f}"
    )
    found.check("retained agents: worst change", change, -tolerance, _graded(max(-change, 0.0), tolerance), note)


def _shadows(found: Audit, mine: Model, retrained: Sequence[Model], count: int, watch: Watch) -> None:
    """The likelihood-ratio attack: shadow models that hold a random half of the forgotten examples each."""
    config, problem = _reference(found.config, found.config.seed), found.problem
    forgotten = problem.pooled(problem.erased)
    sizes = [len(problem.agents[agent]) for agent in problem.erased]
    generator = torch.Generator().manual_seed(found.config.seed)
    inside = torch.zeros(count, len(forgotten), dtype=torch.bool)
    scores = torch.zeros(count, len(forgotten), dtype=torch.float64)
    for shadow in range(count):
        # In pairs of complements, so that every example is in exactly half of them.
        half = torch.rand(len(forgotten), generator=generator) < 0.5 if shadow % 2 == 0 else ~inside[shadow - 1]
        inside[shadow] = half
        agents = list(problem.agents)
        for agent, part in zip(problem.erased, torch.split(half, sizes), strict=True):
            agents[agent] = problem.agents[agent].take(part.nonzero()[:, 0])
        empty = tuple(agent for agent in problem.erased if len(agents[agent]) == 0)
        with watch(f"Shadow model {shadow + 1} of {count}", config.rounds) as watcher:
            trained = fit(
                replace(problem, agents=agents, erased=empty),
                config.method,
                rounds_to_do=config.rounds,
                schedule=config.schedule,
                seed=found.config.seed + 1000 + shadow,
                evaluate_every=config.rounds,
                watchers=[watcher],
                uplink=config.uplink.terms(config.method, problem.model.dim),
            )
        if trained.interrupted:
            raise KeyboardInterrupt
        scores[shadow] = _log_odds(problem, trained.particles, forgotten)
    suspects = likelihood_ratio(_log_odds(problem, mine.particles, forgotten), scores, inside)
    clean = torch.cat(
        [likelihood_ratio(_log_odds(problem, model.particles, forgotten), scores, inside) for model in retrained]
    )
    # Does the attack work at all? Each shadow model is attacked with the others.
    known: list[Tensor] = []
    unknown: list[Tensor] = []
    for shadow in range(count):
        rest = torch.arange(count) != shadow
        ratio = likelihood_ratio(scores[shadow], scores[rest], inside[rest])
        known.append(ratio[inside[shadow]])
        unknown.append(ratio[~inside[shadow]])
    power = membership_auc(torch.cat(known), torch.cat(unknown))
    auc = membership_auc(suspects, clean)
    found.table["likelihood_ratio_attack"] = {
        "shadow_models": count,
        "auc": auc,
        "true_positives_at_1_percent": true_positives(suspects, clean),
        "auc_on_shadow_models": power,
        "true_positives_on_shadow_models": true_positives(torch.cat(known), torch.cat(unknown)),
    }
    note = (
        f"AUC {auc:.3f}, {true_positives(suspects, clean):.1%} found at 1 % false alarms, against retrained models; "
        f"on models that do hold the examples the same attack has AUC {power:.3f}"
    )
    found.check("membership, likelihood ratio: off 0.5", auc - 0.5, 0.05, _graded(abs(auc - 0.5), 0.05), note)


def _log_odds(problem: Problem, particles: Tensor, data: Examples) -> Tensor:
    p = true_probability(predict(problem.model, particles, data.x).probabilities, data.y).clamp(1e-12, 1 - 1e-12)
    return p.log() - (-p).log1p()


def _features_retrained(found: Audit, mine: Model, watch: Watch) -> None:
    """Against a model whose features have never seen the data either."""
    config = found.config
    if not config.pretrain.rounds or config.erasures[-1].method == "retrain":
        return
    path = found.run / "audit" / "retrained-with-features"
    whole = _train(path, _reference(config, config.seed), None, "Retraining, features as well", watch)
    other = build_problem(_reference(config, config.seed), load_features_of(path))
    assert other.test is not None
    assert found.problem.test is not None
    theirs = predict(other.model, whole.particles, other.test.x).probabilities
    ours = predict(found.problem.model, mine.particles, found.problem.test.x).probabilities
    value = _spread(kl(theirs, ours))
    found.table["features"] = {"kl": value, "retrained": assess(other, whole.particles)}
    note = (
        f"mean KL to a model whose features were pre-trained without the agents too, test accuracy "
        f"{accuracy(theirs, other.test.y):.3f} against {accuracy(ours, other.test.y):.3f}; the frozen features were "
        f"not touched by this erasure ({len(found.problem.forgotten_labels())} labels were held by nobody else)"
    )
    found.check("features retrained as well: KL", value["mean"], None, "warn", note)
