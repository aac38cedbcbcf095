"""What is to be said of an exported model, from the run's files: one flat table, for the card and for file headers.

Nobody's examples are in it, and no path of the machine: an export is made to be given away.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from fedstein.export.mixture import told
from fedstein.models.named import PARTICLES
from fedstein.runs.audit.audit import LIMITS as OF_ERASURE
from fedstein.runs.evaluation import Loaded
from fedstein.runs.forget.complete import done_event
from fedstein.settings import Config, flat, to_table
from fedstein.store import Checkpoint, read_metrics
from fedstein.version import __version__

__all__ = ["Facts", "facts_of", "metrics_at"]

Facts = dict[str, str]
"""By dotted keys; what is before the dot is the section of the card."""

_BOOKKEEPING = ("round", "uploads", "pit", "reliability")


def facts_of(run: Path, loaded: Loaded, checkpoint: Checkpoint, network: nn.Module, example: Tensor) -> Facts:
    """All of it.

    Args:
        run: the folder.
        loaded: the same, read.
        checkpoint: whose particles are exported.
        network: the whole one.
        example: inputs of the right shape and type.
    """
    return {
        **_model(loaded, checkpoint, network, example),
        **{f"method.{key}": _text(value) for key, value in _settings(loaded.config).items()},
        **_data(loaded),
        **_budget(loaded, checkpoint),
        **{f"metrics.{key}": _text(value) for key, value in metrics_at(run, checkpoint.round, loaded.config).items()},
        **_erasures(run, loaded, checkpoint),
        **{f"limits.{number}": text for number, text in enumerate(_limits(loaded, checkpoint), 1)},
        **_versions(run),
    }


def metrics_at(run: Path, round: int, config: Config) -> dict[str, Any]:
    """The newest metrics up to a round, with the round and the split that they are of; empty before there are any."""
    lines = [line for line in read_metrics(run) if line["round"] <= round]
    for line in reversed(lines):
        kept = {
            key: value
            for key, value in line.items()
            if key not in _BOOKKEEPING and not key.startswith("total_") and isinstance(value, int | float)
        }
        if kept:
            return {"split": config.evaluation.split, "after_round": line["round"], **kept}
    return {}


def _model(loaded: Loaded, checkpoint: Checkpoint, network: nn.Module, example: Tensor) -> Facts:
    config, likelihood = loaded.config, loaded.problem.task.model.likelihood
    sizes = {True: 0, False: 0}
    for parameter in network.parameters():
        sizes[parameter.requires_grad] += parameter.numel()
    name = config.model.module or ("a module given in Python" if config.is_given else "dense stack of model.hidden")
    assert loaded.problem.inputs is not None
    outputs = loaded.problem.inputs.outputs
    names = ", ".join(told(likelihood, example.new_zeros(1, 1, outputs).float())) if likelihood.predicts else "outputs"
    settings = {key: value for key, value in flat(to_table(config)).items() if key.startswith("likelihood.")}
    return {
        "model.particles": str(len(loaded.members)),
        "model.posterior": config.posterior.from_,
        "model.network": name,
        "model.args": json.dumps(config.model.args),
        "model.learnt_parameters": str(sizes[True]),
        "model.frozen_parameters": str(sizes[False]),
        "model.input": f"(n, {', '.join(map(str, example.shape[1:]))}) {str(example.dtype).removeprefix('torch.')}",
        "model.likelihood": likelihood.name,
        **{f"model.{key}": _text(value) for key, value in settings.items() if key != "likelihood.name"},
        "model.says": names,
        PARTICLES: checkpoint.particles_sha256,
    }


def _settings(config: Config) -> dict[str, Any]:
    table = flat(to_table(config))
    method = {key.removeprefix("method."): value for key, value in table.items() if key.startswith("method.")}
    return {"name": config.method.name, **method, "prior_std": config.prior.std, "seed": config.seed}


def _data(loaded: Loaded) -> Facts:
    config, holdings = loaded.config, loaded.problem.holdings
    sizes = [holdings.sizes[agent] for agent in holdings.present]
    examples = f"{sum(sizes)} in all, {min(sizes)} to {max(sizes)} an agent"
    facts = {
        "data.name": "given in Python" if config.is_given else config.data.name,
        "data.agents": f"{len(sizes)} of {len(holdings.agents)}" if holdings.erased else str(len(sizes)),
        "data.examples": "with the agents, who alone know how many" if holdings.remote else examples,
    }
    if not config.is_given and not holdings.remote and config.data.name != "folder":
        facts["data.partition"] = config.data.partition
    test = loaded.problem.judge.test
    return facts | {
        "data.evaluated_on": "nothing" if test is None else f"{len(test)} {config.evaluation.split} examples"
    }


def _budget(loaded: Loaded, checkpoint: Checkpoint) -> Facts:
    config, totals = loaded.config, checkpoint.totals
    link = config.uplink.link(config.method, loaded.problem.dim)
    return {
        "budget.bits_an_upload": "none: plain float32" if link is None else str(link.contract.budget_bits),
        "budget.setting": str(config.uplink.budget),
        "budget.largest_upload_bits": str(totals.max_upload_bits),
        "budget.uploads": str(totals.uploads),
        "budget.refused_uploads": str(totals.refused),
        "budget.bits_up": str(totals.upload_bits),
        "budget.bits_down": str(totals.download_bits),
        "budget.rounds": f"{checkpoint.round} of {config.rounds}",
    }


def _erasures(run: Path, loaded: Loaded, checkpoint: Checkpoint) -> Facts:
    if not loaded.lineage:
        return {"erasures.none": "nobody has asked for one in this run"}
    facts = {}
    for number, erasure in enumerate(loaded.lineage.erasures, 1):
        agents = ", ".join(map(str, erasure.agents))
        facts[f"erasures.{number}"] = (
            f"agents {agents} forgotten by {erasure.method} from round {erasure.start} on, in {erasure.rounds} rounds "
            f"of theirs and {erasure.repair} of those who stay"
            if erasure.parent
            else f"agents {agents} were never trained with"
        )
    if loaded.lineage.asked:
        facts["erasures.done"] = _text((done_event(run) or {}).get("time"))
        facts["erasures.audit"] = _audit(run, checkpoint)
    return facts


def _audit(run: Path, checkpoint: Checkpoint) -> str:
    """The verdict, if there is one on these very particles."""
    try:
        table = json.loads((run / "audit" / "audit.json").read_bytes())
        verdict, tier, made = str(table["verdict"]), str(table["tier"]), str(table["made"])
        audited = table["provenance"]["particles_sha256_after"]
        passed = sum(check["status"] == "pass" for check in table["checks"])
        words = f"{verdict} ({tier}, {passed} of {len(table['checks'])} checks passed, {made})"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "there is none"
    return words if audited == checkpoint.particles_sha256 else "there is none of these particles, only of earlier ones"


def _limits(loaded: Loaded, checkpoint: Checkpoint) -> list[str]:
    config, limits = loaded.config, []
    if checkpoint.round < config.rounds:
        limits.append(f"Training was stopped after {checkpoint.round} of {config.rounds} rounds.")
    if not loaded.problem.task.model.likelihood.predicts:
        limits.append("It was trained with a loss of its own: the program gives raw outputs, and no probabilities.")
    if config.model.precision == "bf16":
        limits.append("It was trained with bfloat16 products; the exported programs compute in float32.")
    limits += [
        "Calibration was measured on the evaluation data above. On other data it may be worse: look at the epistemic "
        "part, and measure again.",
        "It is not differentially private: who has the particles may find out something about the training data.",
        "Inputs must be scaled like the training data.",
    ]
    if loaded.problem.network is not None and loaded.problem.network.frozen is not None:
        limits.append("The frozen part was not learnt by the particles, and no erasure touches it.")
    if loaded.lineage.asked:
        limits.append(OF_ERASURE[0])
    return [*limits, "An export is a copy: a later erasure does not reach it. Delete it then, and export the new run."]


def _versions(run: Path) -> Facts:
    try:
        trained = json.loads((run / "environment.json").read_bytes())
        facts = {f"versions.trained_with_{name}": str(trained[name]) for name in ("fedstein", "torch", "python")}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        facts = {}
    return facts | {"versions.exported_with_fedstein": __version__, "versions.exported_with_torch": version("torch")}


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
