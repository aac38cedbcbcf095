"""The erasure report: what was asked, what was done, and what can be shown of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fedstein.errors import RunError
from fedstein.metrics.names import NAMES
from fedstein.report.forgetting import add_charts
from fedstein.report.page import Page, Raw, html, table, tiles
from fedstein.report.words import capital, data_name, human_bytes
from fedstein.report.writing import Written, write_page
from fedstein.runs.audit.record import Audit, Check
from fedstein.store import to_json, write

__all__ = ["write_audit"]

MOST_AGENTS = 100  # rows of the table of those that stay
MOST_FILES = 20  # named of those that should not be there

_SAYS = {
    "pass": "No check found a difference from models that never had the data.",
    "warn": "Nothing failed, with reservations: read the lines marked warn.",
    "fail": "At least one line says that the erasure is not good enough, or not complete. More repair may help "
    "('fedstein resume RUN --rounds N', then audit again); retraining always does.",
}
_KINDS = {
    "agents": "what the erased agents kept",
    "other_agents": "what other agents kept, in the old run or before the last round",
    "frames": "frames that the erased agents sent",
    "checkpoints": "checkpoints",
    "reports": "reports",
    "audits": "audits of the old run",
    "features": "frozen features of the old run",
}
_WORDS = {
    "off retrained": "this model's value less the mean of the retrained models'. Better or worse, it should be near 0.",
    "accuracy, NLL, ECE, Brier score": "the share of right answers; how unlikely the true answers are (negative "
    "log-likelihood, nats); how far confidence is from accuracy; the squared error of the probabilities.",
    "KL": "how differently two models predict, in nats; 0 if they predict the same.",
    "AUC": "how well an attacker tells forgotten from unseen examples: 0.5 is guessing, 1 is always.",
    "site, escrow": "the sum of all that an agent has changed in the model; the server's copy of it.",
    "provenance": "whether request, old model and new model belong together, by their hashes and journals.",
    "particles": "the parameter vectors that together are the model.",
}


def write_audit(audit: Audit) -> Written:
    """Write RUN/audit/audit.json and RUN/audit/audit.html, and the page's figures."""
    folder = audit.run / "audit"
    json = folder / "audit.json"
    try:
        folder.mkdir(exist_ok=True)
        write(json, to_json(audit.table, indent=2).encode())
    except OSError as error:
        raise RunError(f"Cannot write the audit to {folder}: {error.strerror}.") from error
    written = write_page(_page(audit), folder / "audit.html")
    return replace(written, files=[json, *written.files], json=json)


def _page(audit: Audit) -> Page:
    facts = audit.table
    request = facts["request"]
    agents = ", ".join(map(str, audit.lineage.newest.agents))
    page = Page(
        f"Erasure of agents {agents}",
        f"{audit.run.resolve().name}, on {data_name(audit.config)}: requested {_time(request['requested'])}, done "
        f"{_time(request['done'])}, by {_how(request)}. Audited {_time(facts['made'])}, tier {audit.tier}, against "
        f"{len(facts['retrained'])} models that were retrained without the agents.",
    )
    page.add(
        f'<p class="verdict"><span class="{audit.verdict}">{audit.verdict}</span> {html(_SAYS[audit.verdict])}</p>',
        tiles(_tiles(facts)),
    )
    page.section(
        "The checks",
        "Each line compares this model with models that were retrained from scratch without the agents, or looks at "
        "the folders. The verdict is that of the worst line.",
    )
    lines = [_line(check) for check in audit.checks]
    page.add(f'<div class="said">{table(["check", "value", "threshold", "", "what it says"], lines)}</div>')
    add_charts(page, audit)
    if "forgotten" in facts.get("metrics", {}).get("audited", {}):
        _add_scores(page, facts["metrics"], audit.problem.judge.ece_bins)
        _add_agents(page, facts["retained_agents"], NAMES[next(iter(facts["metrics"]["audited"]["forgotten"]))])
    _add_cost(page, facts["cost"])
    _add_records(page, facts, agents)
    page.section("Words")
    page.add("<dl>", *(f"<dt><b>{html(word)}</b></dt><dd>{html(text)}</dd>" for word, text in _WORDS.items()), "</dl>")
    page.section("What this cannot show")
    page.add("<ul>", *(f"<li>{html(limit)}</li>" for limit in facts["limits"]), "</ul>")
    return page


def _tiles(facts: dict[str, Any]) -> list[tuple[str, str]]:
    cost, metrics = facts["cost"], facts.get("metrics", {})
    shown = []
    if "forgotten" in metrics.get("audited", {}):
        now, theirs = metrics["audited"], metrics["retrained"]
        name = next(iter(now["forgotten"]))
        form = "{:.1%}" if name == "accuracy" else "{:.4g}"
        for group, words in (
            ("forgotten", f"{NAMES[name]} on the forgotten data"),
            ("retained", "on the retained data"),
        ):
            mean = sum(other[group][name] for other in theirs) / len(theirs)
            shown.append((form.format(now[group][name]), f"{words}; retrained {form.format(mean)}"))
    if kl := facts.get("divergence", {}).get("kl"):
        shown.append((f"{next(iter(kl.values()))['mean']:.4f}", "nats, mean KL to the retrained model"))
    if "membership" in facts:
        shown.append((f"{facts['membership']['auc']:.3f}", "AUC of the membership attack; 0.5 knows nothing"))
    if cost["retraining_upload_bits"]:
        shown.append((f"{cost['upload_bits'] / cost['retraining_upload_bits']:.1%}", "of retraining's uplink bits"))
    return shown


def _line(check: Check) -> list[str]:
    value, threshold = ("-" if number is None else f"{number:.4g}" for number in (check.value, check.threshold))
    badge = Raw(f'<span class="{check.status}">{check.status}</span>')
    return [check.name, value, threshold, badge, check.note]


def _add_scores(page: Page, metrics: dict[str, Any], bins: int) -> None:
    before, now, theirs = metrics["before"], metrics["audited"], metrics["retrained"]
    rows = []
    for group in ("forgotten", "retained", "test"):
        for name in now[group]:
            values = [other[group][name] for other in theirs]
            was = f"{before[group][name]:.4f}" if before else "-"
            mean = sum(values) / len(values)
            rows.append([f"{group}: {name}", was, f"{now[group][name]:.4f}", f"{mean:.4f}",
                         f"{min(values):.4f} to {max(values):.4f}"])  # fmt: skip
    lead = f"ECE with {bins} bins of equal width." if "ece" in now["test"] else ""
    page.section("On forgotten, retained and test data", lead)
    page.add(table(["", "before", "now", f"retrained, mean of {len(theirs)}", "smallest to largest"], rows))


def _add_agents(page: Page, agents: list[dict[str, Any]], metric: str) -> None:
    page.section("Agents that stay", f"{capital(metric)} on their own data.")
    rows = [
        [row["agent"], f"{row['examples']:,}", "-" if row["before"] is None else f"{row['before']:.3f}",
         f"{row['audited']:.3f}", f"{row['retrained']:.3f}"]
        for row in agents[:MOST_AGENTS]
    ]  # fmt: skip
    page.add(table(["agent", "examples", "before", "now", "retrained"], rows))


def _add_cost(page: Page, cost: dict[str, Any]) -> None:
    page.section("What it cost", "Against training from scratch without the agents.")
    rows = [
        ["rounds", f"{cost['rounds']:,}", f"{cost['retraining_rounds']:,}"],
        ["sent up", human_bytes(cost["upload_bits"]), human_bytes(cost["retraining_upload_bits"])],
        ["seconds", f"{cost['seconds']:,.1f}", f"{cost['retraining_seconds']:,.1f}"],
    ]
    page.add(table(["", "this erasure", "retraining"], rows))


def _add_records(page: Page, facts: dict[str, Any], agents: str) -> None:
    request, provenance, purged, parameters = (
        facts[key] for key in ("request", "provenance", "purged", "parameters")
    )  # fmt: skip
    rows = [
        ["this run", facts["run"]],
        ["request", request["id"]],
        ["agents erased by it", agents],
        ["agents erased in all", ", ".join(map(str, request["erased_in_all"]))],
        ["began from", provenance["parents"][-1]],
        ["particles before, SHA-256", provenance["particles_sha256_before"]],
        ["particles after, SHA-256", provenance["particles_sha256_after"]],
        *[[f"files deleted: {word}", purged["files"].get(kind, 0)] for kind, word in _KINDS.items()],
        ["files that should not be there", "; ".join(purged["left"][:MOST_FILES]) or "none"],
        ["folders that could not be looked into", "; ".join(purged["not_looked_into"]) or "none"],
        ["parent kept by the operator", "yes" if purged["kept_parent"] else "no"],
        ["parameters that the erasure could change", f"{parameters['touched']:,} of {parameters['of']:,}"],
        *[[f"retrained model, seed {one['seed']}, SHA-256", one["particles_sha256"]] for one in facts["retrained"]],
    ]
    page.section("Request, purge and hashes")
    page.add(f'<div class="said">{table(["what", ""], rows)}</div>')


def _how(request: dict[str, Any]) -> str:
    if request["method"] == "take-back":
        side = "server from its escrow" if request["by"] == "server" else "agents themselves"
        then = "handed over to the agents that stay" if request["handed_over"] else "subtracted from the model"
        return f"taking the sites back (the {side}; {then})"
    if request["method"] == "retrain":
        return "training from scratch without them"
    return "Forget-SVGD" + ("" if request["guarded"] else ", as the letter writes it")


def _time(text: str | None) -> str:
    return "at an unknown time" if text is None else text[:19].replace("T", " ") + " UTC"
