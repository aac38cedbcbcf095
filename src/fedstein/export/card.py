"""The model card: the facts in Markdown, under front matter as model hubs read it, and how to load each file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fedstein.export.facts import Facts

__all__ = ["card"]

_SECTIONS = {
    "model": "What it is",
    "method": "How it was learnt",
    "data": "Data",
    "budget": "Budget, and what was really sent",
    "metrics": "Metrics and calibration",
    "erasures": "Erasures",
    "limits": "Limits",
    "versions": "Versions",
}
_NOT_RESULTS = ("split", "after_round", "ece_bins")


def card(name: str, facts: Facts, metrics: Mapping[str, Any], files: Mapping[str, str]) -> str:
    """MODEL_CARD.md.

    Args:
        name: of the model.
        facts: by dotted keys.
        metrics: the numbers, for the front matter.
        files: what each file of the export is, by its name.
    """
    parts = [
        _front_matter(name, facts, metrics),
        f"# {_cell(name)}",
        f"{facts['model.particles']} whole networks that stand together (posterior: "
        f"{_cell(facts['model.posterior'])}), learnt by {_cell(facts['method.name'])} across "
        f"{_cell(facts['data.agents'])} agents whose data was never pooled. Their mixture is the prediction; where "
        "they disagree, the model does not know.",
        "## Files",
        _table(("file", "what is in it"), files),
        "## How to load it",
        _loading(facts, files),
    ]
    for section, title in _SECTIONS.items():
        inside = {key.partition(".")[2]: value for key, value in facts.items() if key.startswith(f"{section}.")}
        parts.append(f"## {title}")
        if section == "limits":
            parts.append("\n".join(f"- {_cell(value)}" for value in inside.values()))
        else:
            parts.append(_table(("what", "value"), inside) if inside else "There are none.")
    return "\n\n".join(parts) + "\n"


def _front_matter(name: str, facts: Facts, metrics: Mapping[str, Any]) -> str:
    """YAML, each value as JSON, which is YAML too: whatever is in a name cannot leave its place."""
    results = [{"type": key, "value": value} for key, value in metrics.items() if key not in _NOT_RESULTS]
    task = {"type": "classification" if facts["model.likelihood"] == "categorical" else "regression"}
    known = facts["model.likelihood"] in ("categorical", "gaussian", "poisson")
    data = {"type": facts["data.name"], "name": facts["data.name"], "split": str(metrics.get("split"))}
    table: dict[str, Any] = {
        "library_name": "pytorch",
        "tags": ["bayesian", "federated-learning", "uncertainty", "fedstein", facts["method.name"]],
    }
    if results and known:
        table["model-index"] = [{"name": name, "results": [{"task": task, "dataset": data, "metrics": results}]}]
    return "\n".join(["---", *(f"{key}: {json.dumps(value)}" for key, value in table.items()), "---"])


def _loading(facts: Facts, files: Mapping[str, str]) -> str:
    dense = facts["model.network"].startswith("dense")
    make = (
        "nn.Sequential(nn.Flatten(), nn.Linear(...), ...)  # as many layers as the file has"
        if dense
        else "..."
        if facts["model.network"].startswith("a module")
        else f"{facts['model.network'].partition(':')[2]}(**{facts['model.args']})  # of {facts['model.network']}"
    )
    lines = [
        "```python",
        "from safetensors.torch import load_file",
        "",
        f"network = {_cell(make)}",
        'network.load_state_dict(load_file("particle-0.safetensors"))',
        "network.eval()",
        "```",
    ]
    if dense:
        lines += [
            "",
            "The names are those of `nn.Sequential(nn.Flatten(), nn.Linear, activation, nn.Linear, ...)`: "
            "`1.weight`, `1.bias`, `3.weight`, ...",
        ]
    if "mixture.pt2" in files:
        lines += [
            "",
            "```python",
            "import torch",
            "",
            'program = torch.export.load("mixture.pt2").module()  # load only files that you trust',
            f"said = program(x)  # a dict: {_cell(facts['model.says'])}",
            "```",
            "",
            "`python serve.py mixture.pt2 8000` serves it on 127.0.0.1; it needs only torch.",
        ]
    return "\n".join(lines)


def _table(head: tuple[str, str], rows: Mapping[str, str]) -> str:
    lines = [
        f"| {_cell(key.replace('_', ' ') if head[0] == 'what' else key)} | {_cell(value)} |"
        for key, value in rows.items()
    ]
    return "\n".join([f"| {head[0]} | {head[1]} |", "|---|---|", *lines])


def _cell(text: str) -> str:
    """Words of a run folder, which may be anybody's, as plain text on one line."""
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "'")
