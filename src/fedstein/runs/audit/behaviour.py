"""Behaviour: how the model predicts, beside models that never had the data, and what it cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice, permutations
from statistics import fmean, stdev
from typing import Any

import torch
from torch import Tensor

from fedstein.engines import Local
from fedstein.extras import needs_extra
from fedstein.metrics import Prediction, js
from fedstein.protocol.server import rounds
from fedstein.protocol.state import Metrics
from fedstein.runs.assess import assess, scores_of
from fedstein.runs.audit.record import Audit, Model, Status, graded
from fedstein.runs.judge import predict, quality

__all__ = [
    "check_agents",
    "check_cost",
    "check_divergence",
    "check_exact",
    "check_extra",
    "check_quality",
    "check_relearning",
    "spread_of",
]

RELEARN_ROUNDS = 100
WORDS = {"nll": "NLL", "ece": "ECE", "brier": "Brier score", "rmse": "RMSE", "crps": "CRPS"}
FLOORS = {"accuracy": 0.01, "nll": 0.02, "ece": 0.01, "brier": 0.01}  # what is never held against an erasure
SHARE = 0.02  # the same of metrics that have a unit, as a share of their value


def check_cost(audit: Audit, mine: Model, retrained: Sequence[Model]) -> None:
    """Rounds, bits and seconds, beside those of retraining."""
    erasure = audit.lineage.newest
    bits = fmean(model.totals.upload_bits for model in retrained)
    seconds = fmean(model.seconds for model in retrained)
    audit.table["cost"] = {
        "rounds": audit.round - erasure.start,
        "upload_bits": mine.totals.upload_bits,
        "seconds": mine.seconds,
        "retraining_rounds": audit.lineage.training_rounds(audit.config.rounds),
        "retraining_upload_bits": bits,
        "retraining_seconds": seconds,
    }
    ratio = mine.totals.upload_bits / bits if bits else 0.0
    note = f"{mine.totals.upload_bits:,} of {bits:,.0f} bits, {mine.seconds:.1f} of {seconds:.1f} seconds"
    if erasure.method == "retrain":
        audit.check("cost against retraining", ratio, 1.0, "pass", f"this is retraining: {note}")
    else:
        audit.check("cost against retraining", ratio, 0.25, "pass" if ratio <= 0.25 else "warn", note)


def check_extra() -> None:
    """Refuse where what an audit computes with is not installed."""
    with needs_extra("report", "Audits"):
        import scipy.stats  # noqa: F401


def check_exact(audit: Audit, mine: Model, retrained: Sequence[Model], before: Metrics) -> None:
    """Problems whose posterior is known: the distance to the exact posterior without the agents."""
    now, others = audit.problem.evaluate(mine.members), [audit.problem.evaluate(m.members) for m in retrained]
    audit.table["metrics"] = {"before": before, "audited": now, "retrained": others}
    for name in ("posterior_mean_error", "total_variation"):
        if name in now:
            worst = max(other[name] for other in others)
            tolerance = max(1.5 * worst, 0.01)
            note = f"before {before.get(name, float('nan')):.4g}; retrained models reach up to {worst:.4g}"
            audit.check(name.replace("_", " "), now[name], tolerance, graded(now[name], tolerance), note)


def check_quality(audit: Audit, mine: Model, retrained: Sequence[Model], before: Metrics) -> None:
    """What the likelihood is judged by (accuracy, NLL, ECE, ...) on forgotten, retained and test data."""
    from scipy.stats import t as student

    likelihood = audit.problem.task.model.likelihood
    now = assess(audit.problem, mine.members)
    others = [assess(audit.problem, model.members) for model in retrained]
    audit.table["metrics"] = {"before": before, "audited": now, "retrained": others}
    for group in ("forgotten", "retained", "test"):
        for name in scores_of(likelihood):
            values = [other[group][name] for other in others]
            # Where another retrained model would be, with 95 % probability.
            width = float(student.ppf(0.975, len(values) - 1)) * (1 + 1 / len(values)) ** 0.5
            mean, spread = fmean(values), stdev(values) * width
            floor = FLOORS.get(name, SHARE * abs(mean)) * (max(1.0, abs(mean)) if name == "nll" else 1.0)
            tolerance = max(spread, floor)
            change = now[group][name] - mean
            # Better than retrained is no fault on retained data. Elsewhere it is remembered; worse is over-forgotten.
            worse = change if likelihood.lower_is_better(name) else -change
            distance = max(worse, 0.0) if group == "retained" else abs(change)
            note = f"{now[group][name]:.4g}; retrained {mean:.4g} ({min(values):.4g} to {max(values):.4g})"
            if before:
                note += f"; before {before[group][name]:.4g}"
            word = WORDS.get(name, name.replace("_", " "))
            audit.check(f"{group}: {word}, off retrained", change, tolerance, graded(distance, tolerance), note)


def check_divergence(audit: Audit, mine: Model, retrained: Sequence[Model]) -> None:
    """How differently the models predict, on the test set."""
    problem = audit.problem
    assert problem.judge.test is not None

    def of(model: Model) -> Any:
        assert problem.judge.test is not None
        return predict(problem.task.model, model.members, problem.judge.test.x)

    ours, theirs = of(mine), [of(model) for model in retrained]
    between = [a.divergence(b) for a, b in permutations(theirs, 2)]
    pairs = list(zip(retrained, theirs, strict=True))
    to = {f"seed {model.seed}": spread_of(other.divergence(ours)) for model, other in pairs}
    table: dict[str, Any] = {"kl": to, "kl_between_retrained": [spread_of(one) for one in between]}
    if isinstance(ours, Prediction):
        table["js"] = {f"seed {m.seed}": spread_of(js(other.probabilities, ours.probabilities)) for m, other in pairs}
    audit.table["divergence"] = table
    limit = fmean(float(one.mean()) for one in between)
    if retrained[0].seed == mine.seed:
        value = to[f"seed {mine.seed}"]
        note = (
            f"mean KL(retrained || this) in nats, 95 % below {value['p95']:.3g}, largest {value['largest']:.3g}; the "
            "threshold is the mean between retrained models of different seeds"
        )
        audit.check("predictive KL, same seed", value["mean"], limit, graded(value["mean"], limit), note)
    rest = [to[f"seed {model.seed}"]["mean"] for model in retrained if model.seed != mine.seed]
    note = "mean over retrained models of other seeds; threshold 1.5 times what they have between themselves"
    value_of_rest = fmean(rest)
    audit.check("predictive KL, other seeds", value_of_rest, 1.5 * limit, graded(value_of_rest, 1.5 * limit), note)


def spread_of(values: Tensor) -> dict[str, float]:
    """Mean, 95th percentile and largest."""
    return {
        "mean": float(values.mean()),
        "p95": float(torch.quantile(values, 0.95)),
        "largest": float(values.max()),
    }


def check_relearning(audit: Audit, mine: Model, retrained: Sequence[Model], before: Metrics) -> None:
    """If the forgotten agents came back: how many rounds of all agents bring their data back?"""
    if audit.config.method.central or not before:
        audit.check("relearn time", None, None, "warn", "not measured: the journal has no record of the model before")
        return
    likelihood = audit.problem.task.model.likelihood
    name = likelihood.headline[0]
    was = before["forgotten"][name]
    target = was / 0.9 if likelihood.lower_is_better(name) else 0.9 * was
    took = _relearn(audit, mine, target)
    others = [_relearn(audit, model, target) for model in retrained]
    audit.table["relearn"] = {f"target_{name}": target, "rounds": took, "retrained": others, "most": RELEARN_ROUNDS}
    mean = fmean(others)
    status: Status = "pass" if took >= 0.5 * mean - 1 else "warn" if took >= 0.25 * mean - 1 else "fail"
    if took == 0 < min(others):
        status = "fail"  # it knows already what models that never had the data have yet to learn
    note = (
        f"if they came back: rounds of all agents until their data is at {target:.2f} again; retrained models need "
        f"{', '.join(map(str, others))} (at most {RELEARN_ROUNDS}). Much faster: something was left"
    )
    audit.check("relearn time", float(took), 0.5 * mean - 1, status, note)


def _relearn(audit: Audit, model: Model, target: float) -> int:
    config, problem = audit.config, audit.problem
    data = problem.holdings.pooled(problem.holdings.erased)
    some = data.take(torch.arange(0, len(data), -(-len(data) // 2000)))
    link = config.uplink.link(config.method, problem.dim)
    everyone = range(len(problem.holdings.agents))
    schedule, method = config.schedule.model_copy(update={"order": "round-robin"}), config.method.annealed_anew(0, None)
    lower = problem.task.model.likelihood.lower_is_better(problem.task.model.likelihood.headline[0])

    def is_back(particles: Tensor) -> bool:
        value = quality(problem.task.model, particles, some)
        return value <= target if lower else value >= target

    if is_back(model.state.particles):
        return 0
    # All models begin in the same round, so that the same agents come first.
    state = replace(model.state, round=-(-config.rounds // len(everyone)) * len(everyone))
    engine = Local(problem.task, problem.holdings)
    more = rounds(
        problem.task, problem.holdings, method, schedule, config.seed, state, engine, link=link, among=everyone
    )
    for count, (now, _) in enumerate(islice(more, RELEARN_ROUNDS), start=1):
        if is_back(now.particles):
            return count
    return RELEARN_ROUNDS


def check_agents(audit: Audit, mine: Model, retrained: Sequence[Model], before: Metrics) -> None:
    """What changed for each agent that stays."""
    metrics = audit.table["metrics"]
    rows = []
    for agent in audit.problem.holdings.present:
        others = [other["agents"][agent] for other in metrics["retrained"]]
        rows.append(
            {
                "agent": agent,
                "before": before["agents"][agent] if before else None,
                "audited": metrics["audited"]["agents"][agent],
                "retrained": fmean(others),
                "examples": len(audit.problem.holdings.agents[agent]),
            }
        )
    audit.table["retained_agents"] = rows
    likelihood = audit.problem.task.model.likelihood
    name = likelihood.headline[0]
    sign = -1.0 if likelihood.lower_is_better(name) else 1.0  # a loss is negative
    worst = min(rows, key=lambda row: sign * (row["audited"] - row["retrained"]))
    change = sign * (worst["audited"] - worst["retrained"])
    floor = max(0.02, 2.0 / worst["examples"])
    tolerance = floor if name in FLOORS else floor * abs(worst["retrained"])
    note = (
        f"{WORDS.get(name, name)} on its own data, the agent that lost most: agent {worst['agent']}, "
        f"{worst['audited']:.3f}; retrained {worst['retrained']:.3f}"
    )
    audit.check("retained agents: worst change", change, -tolerance, graded(max(-change, 0.0), tolerance), note)
