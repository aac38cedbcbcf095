"""Attacks: can somebody tell, from the model, that the erased data was part of it?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import torch
from torch import Tensor

from fedstein.data import Examples
from fedstein.metrics import likelihood_ratio, membership_auc, true_positives
from fedstein.protocol.state import Metrics
from fedstein.runs.assess import assess, membership, telling
from fedstein.runs.audit.behaviour import spread_of
from fedstein.runs.audit.record import Audit, Model, graded
from fedstein.runs.audit.references import reference, train_reference
from fedstein.runs.judge import predict, quality
from fedstein.runs.onlooker import Onlooker
from fedstein.runs.problem import Problem
from fedstein.runs.training import fit

__all__ = ["check_features", "check_membership", "check_shadows"]


def check_membership(audit: Audit, mine: Model, before: Metrics) -> None:
    """The population loss attack, on this model and on models that cannot know."""
    auc, suspects, unseen = membership(audit.problem, mine.members)
    if auc is None:
        audit.check("membership, loss attack", None, None, "warn", "the test set lacks labels of the forgotten data")
        return
    others = [other["membership_auc"] for other in audit.table["metrics"]["retrained"]]
    mean = fmean(other for other in others if other is not None)
    audit.losses = {"forgotten examples": suspects, "unseen examples": unseen}
    audit.table["membership"] = {"auc": auc, "auc_retrained": others, "auc_before": before.get("membership_auc"),
                                 "forgotten": len(suspects), "unseen": len(unseen)}  # fmt: skip
    off = auc - mean
    was = before.get("membership_auc")
    error = ((1 / len(suspects) + 1 / len(unseen)) / 12) ** 0.5
    weak = was is None or abs(was - mean) < 0.03
    audit.table["membership"] |= {"standard_error": error, "has_power": not weak}
    note = (
        f"AUC {auc:.3f} ± {error:.3f}; retrained models, which cannot know, {mean:.3f}"
        + (f"; before {was:.3f}" if was is not None else "")
        + ". Above theirs: something is remembered; below: over-forgotten, which betrays the data as well"
    )
    status = graded(abs(off), 0.03)
    if weak and status == "pass":
        status, note = "warn", f"{note}. It says little: it hardly told them apart in the model before either"
    audit.check("membership, loss attack: off retrained", off, 0.03, status, note)


def check_shadows(audit: Audit, mine: Model, retrained: Sequence[Model], count: int, onlooker: Onlooker) -> None:
    """The likelihood-ratio attack: shadow models that hold a random half of the forgotten examples each."""
    config, problem = reference(audit.config, audit.lineage, audit.config.seed)[0], audit.problem
    holdings = problem.holdings
    forgotten = problem.holdings.pooled(problem.holdings.erased)
    sizes = [len(problem.holdings.agents[agent]) for agent in problem.holdings.erased]
    generator = torch.Generator().manual_seed(audit.config.seed)
    inside = torch.zeros(count, len(forgotten), dtype=torch.bool)
    scores = torch.zeros(count, len(forgotten), dtype=torch.float64)
    for shadow in range(count):
        # In pairs of complements, so that every example is in exactly half of them.
        half = torch.rand(len(forgotten), generator=generator) < 0.5 if shadow % 2 == 0 else ~inside[shadow - 1]
        inside[shadow] = half
        agents = list(problem.holdings.agents)
        for agent, part in zip(problem.holdings.erased, torch.split(half, sizes), strict=True):
            agents[agent] = problem.holdings.agents[agent].take(part.nonzero()[:, 0])
        empty = tuple(agent for agent in problem.holdings.erased if len(agents[agent]) == 0)
        title = f"Shadow model {shadow + 1} of {count}"
        onlooker.say(title)
        with onlooker.watching(title, config.rounds) as watcher:
            trained = fit(
                problem.task,
                replace(holdings, agents=agents, erased=empty),
                problem.evaluate,
                config.method,
                rounds_to_do=config.rounds,
                schedule=config.schedule,
                seed=audit.config.seed + 1000 + shadow,
                evaluate_every=config.rounds,
                watchers=[watcher],
                link=config.uplink.link(config.method, problem.dim),
                posterior=config.posterior,
            )
        if trained.interrupted:
            raise KeyboardInterrupt
        scores[shadow] = _log_odds(problem, trained.members, forgotten)
    suspects = likelihood_ratio(_log_odds(problem, mine.members, forgotten), scores, inside)
    clean = torch.cat(
        [likelihood_ratio(_log_odds(problem, model.members, forgotten), scores, inside) for model in retrained]
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
    audit.table["likelihood_ratio_attack"] = {
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
    audit.check("membership, likelihood ratio: off 0.5", auc - 0.5, 0.05, graded(abs(auc - 0.5), 0.05), note)


def _log_odds(problem: Problem, particles: Tensor, data: Examples) -> Tensor:
    """What a shadow model says of an example: the log-odds of its class, or the log-density of its target."""
    seen = telling(problem.task.model, particles, data)
    if problem.task.model.likelihood.name != "categorical":
        return seen
    p = seen.clamp(1e-12, 1 - 1e-12)
    return p.log() - (-p).log1p()


def check_features(audit: Audit, mine: Model, onlooker: Onlooker) -> None:
    """Against a model whose features have never seen the data either."""
    config = audit.config
    if not config.pretrain.rounds or audit.lineage.newest.method == "retrain":
        return
    path = audit.run / "audit" / "retrained-with-features"
    without, lineage = reference(config, audit.lineage, config.seed)
    whole, other = train_reference(path, without, lineage, None, "Retraining, features as well", onlooker)
    assert other.judge.test is not None
    assert audit.problem.judge.test is not None
    theirs = predict(other.task.model, whole.members, other.judge.test.x)
    ours = predict(audit.problem.task.model, mine.members, audit.problem.judge.test.x)
    value = spread_of(theirs.divergence(ours))
    name = other.task.model.likelihood.headline[0]
    reached = [
        quality(one.task.model, particles, one.judge.test)
        for one, particles in ((other, whole.members), (audit.problem, mine.members))
        if one.judge.test is not None
    ]
    audit.table["features"] = {"kl": value, "retrained": assess(other, whole.members)}
    note = (
        f"mean KL to a model whose features were pre-trained without the agents too, test {name} "
        f"{reached[0]:.3f} against {reached[1]:.3f}; the frozen "
        f"features were not touched by this erasure ({len(audit.problem.holdings.erased_labels())} labels were held "
        "by nobody else)"
    )
    audit.check("features retrained as well: KL", value["mean"], None, "warn", note)
