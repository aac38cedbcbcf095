"""The erasure report: what was asked, what was done, and what can be shown of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from fedstein.erasure.audit import Audit, Check
from fedstein.erasure.evidence import SCORES
from fedstein.errors import RunError
from fedstein.report.charts import Axis, Chart, Series
from fedstein.report.page import Page, Raw, html, table, tiles
from fedstein.report.run import human_bytes, write_page
from fedstein.runs import read_metrics, to_json
from fedstein.runs.files import write

__all__ = ["write_audit"]

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


def write_audit(audit: Audit) -> tuple[Path, Path]:
    """Write RUN/audit/audit.html and RUN/audit/audit.json. Returns both."""
    folder = audit.run / "audit"
    try:
        folder.mkdir(exist_ok=True)
        write(folder / "audit.json", to_json(audit.table, indent=2).encode())
    except OSError as error:
        raise RunError(f"Cannot write the audit to {folder}: {error.strerror}.") from error
    return write_page(_page(audit), folder / "audit.html")[0], folder / "audit.json"


def _page(audit: Audit) -> Page:
    found, erasure = audit.table, audit.config.erasures[-1]
    request, cost = found["request"], found["cost"]
    agents = ", ".join(map(str, erasure.agents))
    page = Page(
        f"Erasure of agents {agents}",
        f"{audit.run.resolve().name}, on {found['data']}: requested {_time(request['requested'])}, done "
        f"{_time(request['done'])}, by {_how(request)}. Audited {_time(found['made'])}, tier {audit.tier}, against "
        f"{len(found['retrained'])} models that were retrained without the agents.",
    )
    page.add(
        f'<p class="verdict"><span class="{audit.verdict}">{audit.verdict}</span> {html(_SAYS[audit.verdict])}</p>',
        tiles(_tiles(audit)),
    )
    page.section(
        "The checks",
        "Each line compares this model with models that were retrained from scratch without the agents, or looks at "
        "the folders. The verdict is that of the worst line.",
    )
    page.add(f'<div class="said">{table(["check", "value", "threshold", "", "what it says"], _lines(audit))}</div>')
    _curves(page, audit)
    if "forgotten" in found.get("metrics", {}).get("audited", {}):
        _scores(page, audit)
        _agents(page, found["retained_agents"])
    page.section("What it cost", "Against training from scratch without the agents.")
    page.add(
        table(
            ["", "this erasure", "retraining"],
            [
                ["rounds", f"{cost['rounds']:,}", f"{cost['retraining_rounds']:,}"],
                ["sent up", human_bytes(cost["upload_bits"]), human_bytes(cost["retraining_upload_bits"])],
                ["seconds", f"{cost['seconds']:,.1f}", f"{cost['retraining_seconds']:,.1f}"],
            ],
        )
    )
    page.section("Request, purge and hashes")
    rows = [
        ["this run", found["run"]],
        ["request", request["id"]],
        ["agents erased by it", agents],
        ["agents erased in all", ", ".join(map(str, request["erased_in_all"]))],
        ["began from", found["provenance"]["parents"][-1]],
        ["particles before, SHA-256", found["provenance"]["particles_sha256_before"]],
        ["particles after, SHA-256", found["provenance"]["particles_sha256_after"]],
        *[[f"files deleted: {word}", found["purged"]["files"].get(kind, 0)] for kind, word in _KINDS.items()],
        ["files that should not be there", "; ".join(found["purged"]["left"][:20]) or "none"],
        ["folders that could not be looked into", "; ".join(found["purged"]["not_looked_into"]) or "none"],
        ["parent kept by the operator", "yes" if found["purged"]["kept_parent"] else "no"],
        [
            "parameters that the erasure could change",
            f"{found['parameters']['touched']:,} of {found['parameters']['of']:,}",
        ],
    ]
    for one in found["retrained"]:
        rows.append([f"retrained model, seed {one['seed']}, SHA-256", one["particles_sha256"]])
    page.add(f'<div class="said">{table(["what", ""], rows)}</div>')
    page.section("Words")
    page.add("<dl>", *(f"<dt><b>{html(word)}</b></dt><dd>{html(text)}</dd>" for word, text in _WORDS.items()), "</dl>")
    page.section("What this cannot show")
    page.add("<ul>", *(f"<li>{html(limit)}</li>" for limit in found["limits"]), "</ul>")
    return page


def _tiles(audit: Audit) -> list[tuple[str, str]]:
    found = audit.table
    cost, metrics = found["cost"], found.get("metrics", {})
    shown = []
    if "forgotten" in metrics.get("audited", {}):
        now, theirs = metrics["audited"], metrics["retrained"]
        for group, words in (("forgotten", "accuracy on the forgotten data"), ("retained", "on the retained data")):
            mean = sum(other[group]["accuracy"] for other in theirs) / len(theirs)
            shown.append((f"{now[group]['accuracy']:.1%}", f"{words}; retrained {mean:.1%}"))
    if kl := found.get("divergence", {}).get("kl"):
        shown.append((f"{next(iter(kl.values()))['mean']:.4f}", "nats, mean KL to the retrained model"))
    if "membership" in found:
        shown.append((f"{found['membership']['auc']:.3f}", "AUC of the membership attack; 0.5 knows nothing"))
    if cost["retraining_upload_bits"]:
        shown.append((f"{cost['upload_bits'] / cost['retraining_upload_bits']:.1%}", "of retraining's uplink bits"))
    return shown


def _lines(audit: Audit) -> list[list[Any]]:
    def number(value: float | None) -> str:
        return "-" if value is None else f"{value:.4g}"

    def line(check: Check) -> list[Any]:
        badge = Raw(f'<span class="{check.status}">{check.status}</span>')
        return [check.name, number(check.value), number(check.threshold), badge, check.note]

    return [line(check) for check in audit.checks]


def _curves(page: Page, audit: Audit) -> None:
    erasure = audit.config.erasures[-1]
    lines = [line for line in read_metrics(audit.run) if line["round"] >= erasure.start]
    before = audit.table.get("metrics", {}).get("before", {})
    charts = []
    names = {
        "forgotten_label_accuracy": "forgotten labels, test",
        "retained_label_accuracy": "retained labels, test",
        "forgotten_accuracy": "forgotten agents' data",
        "retained_accuracy": "retained agents' data",
    }
    series = []
    for name, word in names.items():
        there = [(line["round"], line[name]) for line in lines if line.get(name) is not None]
        was = before.get(name.removesuffix("_accuracy"), {}).get("accuracy")
        if was is not None and erasure.start:
            there.insert(0, (erasure.start, was))
        if there:
            series.append(Series(word, [round for round, _ in there], [value for _, value in there]))
    if series:
        alt = "; ".join(f"{one.name} ends at {one.y[-1]:.3f}" for one in series) + "."
        note = f"The erasure began after round {erasure.start:,}. Nothing is published before its last round."
        charts.append(
            Chart(
                "forgetting", "Accuracy while forgetting", alt, Axis("round"), Axis("accuracy", 0, 1), series, note=note
            )
        )
    if audit.losses:
        charts.append(_histogram(audit))
    if charts:
        page.section("What happened", "")
        page.figures(charts, "two")


def _histogram(audit: Audit, bins: int = 24) -> Chart:
    """What a population loss attack sees: if the two shapes are alike, it has nothing to go by."""
    losses = {name: -values.clamp_min(1e-38).log() for name, values in audit.losses.items()}
    high = float(torch.quantile(torch.cat(list(losses.values())), 0.99)) or 1.0
    middles = [(i + 0.5) * high / bins for i in range(bins)]
    series = []
    for name, values in losses.items():
        places = (values / high * bins).long().clamp(0, bins - 1)
        shares = (torch.bincount(places, minlength=bins).double() / len(values)).tolist()
        series.append(Series(name, middles, shares))
    found = audit.table["membership"]
    return Chart(
        "membership",
        "What a membership attack sees",
        f"AUC {found['auc']:.3f}: 0.5 means that forgotten and unseen examples cannot be told apart.",
        Axis("loss of this model, nats", 0),
        Axis("share of examples", 0),
        series,
        note=f"{found['forgotten']:,} forgotten examples and {found['unseen']:,} unseen test examples of the same "
        "labels. Alike is good.",
    )


def _scores(page: Page, audit: Audit) -> None:
    metrics = audit.table["metrics"]
    before, now, theirs = metrics["before"], metrics["audited"], metrics["retrained"]
    rows = []
    for group in ("forgotten", "retained", "test"):
        for name in SCORES:
            values = [other[group][name] for other in theirs]
            was = f"{before[group][name]:.4f}" if before else "-"
            mean = sum(values) / len(values)
            rows.append([f"{group}: {name}", was, f"{now[group][name]:.4f}", f"{mean:.4f}",
                         f"{min(values):.4f} to {max(values):.4f}"])  # fmt: skip
    page.section("On forgotten, retained and test data", f"ECE with {audit.problem.ece_bins} bins of equal width.")
    page.add(table(["", "before", "now", f"retrained, mean of {len(theirs)}", "smallest to largest"], rows))


def _agents(page: Page, agents: list[dict[str, Any]]) -> None:
    page.section("Agents that stay", "Accuracy on their own data.")
    rows = [
        [row["agent"], f"{row['examples']:,}", "-" if row["before"] is None else f"{row['before']:.3f}",
         f"{row['audited']:.3f}", f"{row['retrained']:.3f}"]
        for row in agents[:100]
    ]  # fmt: skip
    page.add(table(["agent", "examples", "before", "now", "retrained"], rows))


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
