"""The settings of Fig. 3: which methods run at which budgets, and with what.

How they were chosen is told in experiments/fig3/README.md.
"""

from __future__ import annotations

from itertools import product
from typing import Any

__all__ = ["BUDGETS", "FEDAVG", "LETTER", "METRICS", "OURS", "SCALED", "WORDS", "Key", "key_of", "settings", "sweep"]

BUDGETS = ("0.5d", "1.0d", "5.0d", "10.0d")
THIN = ("0.5d", "1.0d")
SOME = ("1.0d",)  # where the Langevin methods and the ensemble are run
QUICK = ("1.0d", "10.0d")
METRICS = ("accuracy", "ece", "nll")

WORDS = {
    "fedavg": "FedAvg",
    "fedavg-adagrad": "FedAvg, AdaGrad as DSVGD",
    "dsvgd-2": "DSVGD, 2 particles",
    "dsvgd-5": "DSVGD, 5 particles",
    "dsvgd-10": "DSVGD, 10 particles",
    "ours-5": "ours, 5 particles",
    "ours-scaled": "ours, 10 particles, temperature scaling",
    "fedavg-ours": "FedAvg, our coding",
    "fedavg-scaled": "FedAvg, our coding, temperature scaling",
    "ensemble-5": "ensemble of 5 FedAvg, our coding",
    "dsgld-5": "DSGLD, 5 chains",
    "qlsd-5": "QLSD, 5 chains",
    "svgd-5": "central SVGD, 5 particles",
}
LETTER = ("dsvgd-2", "dsvgd-5", "dsvgd-10")
FEDAVG = ("fedavg", "fedavg-adagrad", "fedavg-ours", "fedavg-scaled")
OURS = "ours-5"
SCALED = "ours-scaled"

Key = tuple[str, str]  # method and budget

_CODING = {"entries": "adaptive", "feedback": True}


def settings(name: str, budget: str) -> dict[str, Any] | None:
    """What is special about a method at a budget; None where it is not run."""
    plain = {"step": "gradient", "local_steps": 10}
    particles = int(name.rpartition("-")[2]) if name.rpartition("-")[2].isdigit() else 1
    uplink = {"budget": budget}
    if name.startswith("fedavg"):
        method: dict[str, Any] = {"name": "fedavg", **plain, "step_size": 0.2}
        if name == "fedavg-adagrad":
            if budget not in QUICK:
                return None
            method |= {"step": "ema-adagrad", "step_size": 1e-3}
        ours = name in ("fedavg-ours", "fedavg-scaled")
        data = {"data": {"validation": 5000}} if name == "fedavg-scaled" else {}
        return {"method": method, "uplink": uplink | (_CODING if ours else {}), **data}
    if name.startswith("dsvgd"):
        step = {"step": "ema-adagrad", "step_size": 1e-3} if budget in THIN else {"step_size": 0.2 * particles}
        return {"method": {**plain, "particles": particles, **step}, "uplink": uplink}
    if name == OURS or (name == SCALED and budget not in THIN):
        alone = {"kernel": "none", "step_size": 0.2, "particles": 5 if name == OURS else 10}
        data = {} if name == OURS else {"data": {"validation": 5000}}
        return {"method": {**plain, **alone}, "uplink": uplink | _CODING | {"common": True}, **data}
    if name == "ensemble-5" and budget in SOME:
        return {
            "method": {"name": "fedavg", "particles": 5, **plain, "step_size": 0.2},
            "uplink": uplink | _CODING | {"common": True},
        }
    if name == "dsgld-5" and budget in SOME:
        return {
            "method": {"name": "dsgld", "particles": 5, "local_steps": 10, "temperature": 0.1, "step_size": 1e-6},
            "uplink": uplink,
        }
    if name == "qlsd-5" and budget in SOME:
        chain = {"name": "qlsd", "particles": 5, "batch": 1000, "temperature": 0.1, "step_size": 1e-6}
        return {
            "method": chain | {"keep": 0.015},  # what a fifth of the budget has room for
            "uplink": uplink | {"sharing": 0.2},
        }
    return None


def sweep(runs: int, quick: bool) -> dict[str, Any]:
    """The runs, as a SWEEP.toml has them."""
    names = ("fedavg", "dsvgd-5", "ours-5", "fedavg-scaled") if quick else [name for name in WORDS if name != "svgd-5"]
    entries = [
        {"name": f"{name},{budget}", **special}
        for name, budget in product(names, QUICK if quick else BUDGETS)
        if (special := settings(name, budget)) is not None
    ]
    if not quick:
        central = {"name": "svgd", "particles": 5, "local_steps": 10, "step": "gradient", "step_size": 1.0}
        entries.append({"name": "svgd-5,none", "method": central})
    rounds = 200 if quick else 1000
    return {
        "seeds": list(range(runs)),
        "base": {
            "rounds": rounds,
            "posterior": {"from": "last"},
            "evaluation": {"every": rounds // 4},
            "recording": {"keep_checkpoints": 1},
        },
        "list": entries,
    }


def key_of(name: str) -> Key:
    """Method and budget in a folder's name."""
    method, _, budget = name.partition(",")
    return method, budget
