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
from itertools import islice, permutations
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import torch
from torch import Tensor

from fedstein import __version__
from fedstein.build import build_problem, check_particles, fit_config, load_features_of
from fedstein.config import Config, ErasureConfig, differences, to_table
from fedstein.data import Examples
from fedstein.engines import State, Totals, rounds
from fedstein.erasure.evidence import SCORES, assess, membership
from fedstein.erasure.request import bits_before, done_event, is_done
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
from fedstein.runs import RunFolder, erasures_of, load_checkpoint, load_run_config, read_journal, read_metrics
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
    "The other agents trained beside the erased ones: what they keep was shaped by models that knew the data. "
    "Repair rounds, and the distance to retrained models, say how much of that is left.",
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

    @property
    def particles(self) -> Tensor:
        """(N_p, d)."""
        return self.state.particles


def audit(run: Path, tier: str, watch: Watch) -> Audit:
    """Audit a run folder that `fedstein forget` has made.

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
    problem = build_problem(config, load_features_of(run))
    checkpoint, particles = load_checkpoint(run)
    check_particles(run, config, problem, particles)
    found = Audit(run, tier, config, problem)
    sent = bits_before(run, config)
    totals = replace(checkpoint.totals, upload_bits=checkpoint.totals.upload_bits - sent)
    mine = Model(config.seed, checkpoint.state(), totals, checkpoint.seconds)
    before = _before(run)
    _provenance(found, checkpoint.particles_sha256)
    _leftovers(found)
    _schedule(found)
    _taken_back(found)
    _touched(found)
    count, shadows = TIERS[tier]
    retrained = [_retrained(found, config.seed + i, i + 1, count, watch) for i in range(count)]
    if config.erasures[-1].method == "retrain":
        retrained = retrained[1:]  # the first is this very run
    _cost(found, mine, retrained, checkpoint.round)
    if problem.test is None:
        _exact(found, mine, retrained, before)
    else:
        _quality(found, mine, retrained, before)
        _divergence(found, mine, retrained)
        _membership(found, mine, retrained, before)
        _relearning(found, mine, retrained, before)
        _agents(found, mine, retrained, before)
        if shadows:
            _shadows(found, mine, retrained, shadows, watch)
            _features_retrained(found, mine, watch)
    found.table = {
        "schema": SCHEMA,
        "fedstein": __version__,
        "run": str(run),
        "tier": tier,
        "verdict": found.verdict,
        "checks": [asdict(check) for check in found.checks],
        **found.table,
        "limits": list(LIMITS),
    }
    return found


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
    mistakes = []
    if request is None:
        mistakes.append(f"the run {parent} is not there any more, or its journal does not know of the request")
    elif request.get("particles_sha256") != erasure.parent_sha256 or request["agents"] != sorted(erasure.agents):
        mistakes.append("the journal of the run that it began from names other agents or particles")
    longer = found.config.rounds > max(erasure.end, found.config.training_rounds)
    if done.get("particles_sha256") != sha256 and not longer:
        mistakes.append("the particles are not those that the erasure ended with")
    found.table["request"] = {
        "id": done.get("request"),
        "agents": list(erasure.agents),
        "erased_in_all": list(found.config.erased),
        "method": erasure.method,
        "by": erasure.by,
        "guarded": erasure.guarded,
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
    status: Status = "pass" if not mistakes else "warn" if request is None and len(mistakes) == 1 else "fail"
    note = "; ".join(mistakes) or "journals, hashes and parents of request and result fit each other"
    found.check("provenance", float(len(mistakes)), 0.0, status, note)


def _leftovers(found: Audit) -> None:
    """Whether the folders still hold anything of the agents."""
    config, run = found.config, found.run
    parents = [Path(erasure.parent) for erasure in config.erasures]
    left: list[str] = []
    for place in dict.fromkeys([run, *parents]):
        for file in sorted(place.rglob("*")):
            if file.suffix in (".safetensors", ".frame", ".part") or file.is_symlink():
                parts = file.relative_to(place).parts
                if not _belongs(parts, config.erased, model=place == run):
                    left.append(str(file))
    purged: dict[str, int] = {}
    for place in dict.fromkeys([run, *parents]):
        for event in read_journal(place):
            if event["event"] == "purged":
                for kind in ("agents", "frames", "checkpoints", "reports"):
                    purged[kind] = purged.get(kind, 0) + int(event.get(kind) or 0)
    kept = any(erasure.keep_parent for erasure in config.erasures)
    found.table["purged"] = {"files": purged, "left": left, "kept_parent": kept}
    status: Status = "pass" if not left else "warn" if kept else "fail"
    note = f"deleted: {', '.join(f'{count} of {kind}' for kind, count in purged.items())}"
    if left:
        why = "the operator asked to keep the parent" if kept else "they should have been deleted"
        note = f"{len(left)} files are left, the first is {left[0]}: {why}"
    found.check("purged", float(len(left)), 0.0, status, note)


def _belongs(parts: tuple[str, ...], erased: Sequence[int], model: bool) -> bool:
    """Whether a file of parameters may be in a run folder: the final model and those who stay; frames of others."""
    if parts[0] in ("agents", "frames"):
        gone = len(parts) < 3 or parts[1] in {f"agent-{agent}" for agent in erased}
        return not gone and (model or parts[0] == "frames")
    return parts == ("features.safetensors",) or (model and parts[0] in ("checkpoints", "audit"))


def _schedule(found: Audit) -> None:
    """Whether an erased agent has visited after it was forgotten."""
    config = found.config
    late = 0
    for line in read_metrics(found.run):
        for erasure in config.erasures:
            gone = line["round"] > erasure.start + erasure.rounds
            late += gone and any(upload["agent"] in erasure.agents for upload in line["uploads"])
    status: Status = "fail" if late else "pass"
    found.check("never scheduled again", float(late), 0.0, status, "rounds with an erased agent after its last one")


def _taken_back(found: Audit) -> None:
    """By agents, within a budget: how much of the sites is left."""
    erasure = found.config.erasures[-1]
    if erasure.method != "take-back" or erasure.by != "agent":
        return
    norms: dict[str, dict[str, float]] = {}
    for event in read_journal(found.run):
        if event["event"] in ("erasure began", "forgot"):
            norms[event["event"]] = event.get("site_norms") or {}
    first, last = norms.get("erasure began", {}), norms.get("forgot", {})
    share = max((last.get(agent, 0.0) / norm for agent, norm in first.items() if norm > 0), default=0.0)
    status: Status = "pass" if share <= 0.01 else "warn" if share <= 0.05 else "fail"
    note = "largest share of an agent's site that its uploads have not taken back"
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
        folder, state = RunFolder.resume(path)
    else:
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
    return Model(config.seed, checkpoint.state(), checkpoint.totals, checkpoint.seconds)


def _cost(found: Audit, mine: Model, retrained: Sequence[Model], round: int) -> None:
    erasure = found.config.erasures[-1]
    bits = fmean(model.totals.upload_bits for model in retrained)
    seconds = fmean(model.seconds for model in retrained)
    found.table["cost"] = {
        "rounds": round - erasure.start,
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
            mean, spread = fmean(values), max(values) - min(values)
            tolerance = max(spread, FLOORS[name] * (max(1.0, mean) if name == "nll" else 1.0))
            change = now[group][name] - mean
            # Better than retrained is a fault only on the forgotten data; there worse is one as well: over-forgotten.
            worse = -change if name == "accuracy" else change
            distance = abs(change) if group == "forgotten" else max(worse, 0.0)
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


def _membership(found: Audit, mine: Model, retrained: Sequence[Model], before: Metrics) -> None:
    """The population loss attack, on this model and on models that cannot know."""
    auc, suspects, unseen = membership(found.problem, mine.particles)
    if auc is None:
        found.check("membership, loss attack", None, None, "warn", "the test set lacks labels of the forgotten data")
        return
    others = [membership(found.problem, model.particles)[0] for model in retrained]
    mean = fmean(other for other in others if other is not None)
    found.losses = {"forgotten examples": suspects, "unseen examples": unseen}
    found.table["membership"] = {"auc": auc, "auc_retrained": others, "auc_before": before.get("membership_auc"),
                                 "forgotten": len(suspects), "unseen": len(unseen)}  # fmt: skip
    off = auc - mean
    was = before.get("membership_auc")
    note = (
        f"AUC {auc:.3f}; retrained models, which cannot know, {mean:.3f}"
        + (f"; before {was:.3f}" if was is not None else "")
        + ". Above theirs: something is remembered; below: over-forgotten, which betrays the data as well"
    )
    found.check("membership, loss attack: off retrained", off, 0.03, _graded(abs(off), 0.03), note)


def _relearning(found: Audit, mine: Model, retrained: Sequence[Model], before: Metrics) -> None:
    """If the forgotten agents came back: how many rounds of all agents bring their data back?"""
    if found.config.method.central or not before:
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
    labels = torch.tensor(found.problem.forgotten_labels(), dtype=torch.int64)
    found.table["features"] = {"kl": value, "retrained": assess(other, whole.particles)}
    note = (
        f"mean KL to a model whose features were pre-trained without the agents too, test accuracy "
        f"{accuracy(theirs, other.test.y):.3f} against {accuracy(ours, other.test.y):.3f}; the frozen features were "
        f"not touched by this erasure ({len(labels)} labels were held by nobody else)"
    )
    found.check("features retrained as well: KL", value["mean"], None, "warn", note)
