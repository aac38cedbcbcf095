"""The audit of an erasure: is the model now like one that never had the data?

The yardstick is retraining: the same config without the erased agents, once with the run's own seed and again with
others. What two retrained models differ by is what cannot be asked of an erasure. Every check has a value, a threshold,
a status (pass, warn, fail) and a note; `quick` retrains three models, `full` five and shadow models besides.

The audit looks at the erased agents' data: it is for the operator, before that data is gone, or for a simulation.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

import torch

from fedstein.devices import device_or_cpu
from fedstein.errors import UserError
from fedstein.protocol.state import Metrics
from fedstein.runs.audit import attacks, behaviour, provenance
from fedstein.runs.audit.record import Audit
from fedstein.runs.audit.references import model_of, retrained
from fedstein.runs.data_record import check_data, hashed
from fedstein.runs.folder import check_particles, lineage_of, load_checkpoint, load_run_config
from fedstein.runs.forget.complete import bits_before, is_done
from fedstein.runs.given import Given
from fedstein.runs.network_files import load_network_files
from fedstein.runs.onlooker import Onlooker
from fedstein.runs.problem import build_problem
from fedstein.store.journal import erasures_of, read_journal
from fedstein.version import __version__

__all__ = ["SCHEMA", "TIERS", "audit_run"]

SCHEMA = "fedstein.audit/1"
TIERS = {"quick": (3, 0), "full": (5, 16)}  # retrained models, shadow models

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
OF_HANDING_OVER = (
    "The erased agents' sites were handed over: each agent that stays was given an equal portion of their sum, which "
    "its own data replaces visit by visit. '--subtract' gives nothing to anybody, and needs more repair."
)


def audit_run(
    run: Path,
    tier: str = "quick",
    onlooker: Onlooker = Onlooker(),  # noqa: B008
    data: Path | None = None,
    given: Given | None = None,
) -> Audit:
    """Audit a run folder that `fedstein forget` has made.

    Args:
        run: the folder.
        tier: "quick" or "full".
        onlooker: sees what is retrained.
        data: the folder with the agents' files, where the server does not have them.
        given: what the run was given in Python.

    Raises:
        UserError: it forgot nothing, or is not finished.
    """
    if tier not in TIERS:
        raise UserError(f"The 'tier' must be one of {', '.join(TIERS)}. Got {tier!r} instead.")
    config, lineage = load_run_config(run), lineage_of(run)
    if not lineage and (asked := erasures_of(run)):
        raise UserError(f"The run '{run}' is the one that was asked to forget. Audit the new one: {asked[-1]['out']}.")
    if not lineage:
        raise UserError(f"The run '{run}' forgot nothing: there is nothing to audit. 'fedstein forget' comes first.")
    if not lineage.asked:
        raise UserError(f"The run '{run}' never had agents {', '.join(map(str, lineage.erased))}: nothing was erased.")
    if not is_done(run):
        raise UserError(f"The erasure in run '{run}' is not finished. Go on with 'fedstein resume {run}'.")
    behaviour.check_extra()  # before anything is retrained
    torch.set_num_threads(config.threads)
    if data is not None:
        if config.data.name != "folder":
            raise UserError(f"The '--data' is for runs with data.name = 'folder'. This one has '{config.data.name}'.")
        config = config.model_copy(update={"data": config.data.model_copy(update={"path": str(data.resolve())})})
    device = device_or_cpu(config.device)
    problem = build_problem(config, lineage, given=given, files=load_network_files(run), device=device)
    check_data(run, hashed(problem, onlooker), lineage.erased)
    if problem.judge.test is not None and not problem.task.model.likelihood.predicts:
        raise UserError("An audit compares predictions: it needs a likelihood, and this run has a loss of its own.")
    gone = [agent for agent in lineage.erased if len(problem.holdings.agents[agent]) == 0]
    if gone and problem.judge.test is not None:
        raise UserError(
            f"The audit looks at the data of those who were erased: agents {', '.join(map(str, gone))} were given as "
            "None. Where that data is gone it is too late for an audit."
        )
    checkpoint, learnt = load_checkpoint(run)
    check_particles(run, config, problem.dim, learnt.particles)
    audit = Audit(run, tier, config, lineage, problem, checkpoint.round)
    totals = replace(checkpoint.totals, upload_bits=checkpoint.totals.upload_bits - bits_before(run, lineage))
    mine = model_of(config, checkpoint, totals)
    before = _before(run)
    provenance.check_provenance(audit, checkpoint.particles_sha256)
    provenance.check_leftovers(audit)
    provenance.check_schedule(audit)
    provenance.check_taken_back(audit)
    provenance.check_window(audit, mine)
    provenance.check_touched(audit)
    count, shadows = TIERS[tier]
    first = config.seed + (lineage.newest.method == "retrain")  # that of its own seed is this very run
    references = [retrained(audit, first + i, i + 1, count, onlooker, given) for i in range(count)]
    audit.table["retrained"] = [{"seed": model.seed, "particles_sha256": model.sha256} for model in references]
    behaviour.check_cost(audit, mine, references)
    if problem.judge.test is None:
        behaviour.check_exact(audit, mine, references, before)
    else:
        behaviour.check_quality(audit, mine, references, before)
        behaviour.check_divergence(audit, mine, references)
        attacks.check_membership(audit, mine, before)
        behaviour.check_relearning(audit, mine, references, before)
        behaviour.check_agents(audit, mine, references, before)
        if shadows:
            attacks.check_shadows(audit, mine, references, shadows, onlooker)
            attacks.check_features(audit, mine, onlooker)
    audit.table = {
        "schema": SCHEMA,
        "fedstein": __version__,
        "run": str(run.resolve()),
        "made": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "data": config.data.name,
        "tier": tier,
        "verdict": audit.verdict,
        "checks": [asdict(check) for check in audit.checks],
        **audit.table,
        "limits": [*LIMITS, *([OF_HANDING_OVER] if provenance.handed_over(lineage) else [])],
    }
    return audit


def _before(run: Path) -> Metrics:
    """How good the model was when the request came."""
    before: Metrics = {}
    for event in read_journal(run):
        if event["event"] == "erasure began" and isinstance(event.get("before"), dict):
            before = event["before"]
    return before
