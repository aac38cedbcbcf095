"""The letter's Fig. 3: accuracy against ECE after 1,000 rounds for FedAvg and DSVGD at R_u = 0.5d, d, 5d and 10d.

Beside the letter's methods: ours, and more peers (FedAvg with temperature scaling, an ensemble of FedAvg models at
equal bits, DSGLD, QLSD, central SVGD as the ceiling). All are judged on shifted inputs and on inputs from elsewhere as
well. How settings were chosen: experiments/fig3/README.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from fedstein.report.figures import COLOURS
from fedstein.studies.claims import Claim, Part
from fedstein.studies.judge import CLEAN, ELSEWHERE, conditions, judge_all
from fedstein.studies.study import Findings, Study, Tell, mean_text
from fedstein.sweeps import Job, plan_sweep

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["FIG3"]

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
        "base": {"rounds": rounds, "evaluation": {"every": rounds // 4}, "recording": {"keep_checkpoints": 1}},
        "list": entries,
    }


def jobs(out: Path, runs: int, quick: bool) -> list[Job]:
    """One run a setting and seed."""
    return [planned.job(out / "runs") for planned in plan_sweep(sweep(runs, quick))]


def to_judge(runs: Iterable[Path]) -> list[tuple[Path, bool]]:
    """Run folders, and whether temperature scaling is part of their setting."""
    return [(run, _key(run.parent.name)[0].endswith("-scaled")) for run in runs]


def find(out: Path, runs: int, quick: bool, workers: int, tell: Tell) -> Findings:
    """Every setting judged, the letter's claims about Bayesian and frequentist learning, and ours."""
    keys = [_key(entry["name"]) for entry in sweep(runs, quick)["list"]]
    places = [out / "runs" / ",".join(key) / f"seed-{seed}" for key in keys for seed in range(runs)]
    judged = iter(judge_all(to_judge(places), workers, tell))
    found = {key: [next(judged) for _ in range(runs)] for key in keys}
    budgets = [budget for budget in BUDGETS if ("fedavg", budget) in found]

    def values(name: str, budget: str, metric: str, where: str = CLEAN) -> list[float]:
        return [run[where][metric] for run in found[name, budget]]

    def gain(better: str, worse: str, budget: str, metric: str, where: str = CLEAN) -> list[float]:
        sign = 1 if metric == "accuracy" else -1
        pairs = zip(values(better, budget, metric, where), values(worse, budget, metric, where), strict=True)
        return [sign * (one - other) for one, other in pairs]

    def above(better: str, worse: str, metrics: tuple[str, ...] = ("accuracy", "ece")) -> list[Part]:
        return [
            Part(f"{budget}, {metric}", gain(better, worse, budget, metric))
            for budget, metric in product(budgets, metrics)
            if (better, budget) in found and (worse, budget) in found
        ]

    def has(*names: str) -> bool:
        return all(any((name, budget) in found for budget in budgets) for name in names)

    claims = []
    for rival, name in product(("fedavg", "fedavg-adagrad"), ("dsvgd-5", "dsvgd-10")):
        if has(rival, name):
            words = f"{WORDS[name]}, is above {'tuned ' if rival == 'fedavg' else ''}{WORDS[rival]}"
            there = [budget for budget in budgets if (rival, budget) in found]
            where = "under every budget" if there == list(BUDGETS) else f"at {' and '.join(there)}"
            claims.append(Claim(f"{words}, {where}.", "accuracy and ECE", above(name, rival)))
    if has("dsvgd-2"):
        claims.append(Claim("2 particles fall behind tuned FedAvg.", "accuracy and ECE", above("fedavg", "dsvgd-2")))
    if has("dsvgd-5", "dsvgd-10"):
        thin, wide = budgets[0], budgets[-1]
        parts = []
        for metric in ("accuracy", "ece"):
            few = {budget: gain("dsvgd-5", "dsvgd-10", budget, metric) for budget in budgets}
            trend = [one - other for one, other in zip(few[thin], few[wide], strict=True)]
            parts += [
                Part(f"{thin}, 5 over 10 particles, {metric}", few[thin]),
                Part(f"{thin}, 2 over 10 particles, {metric}", gain("dsvgd-2", "dsvgd-10", thin, metric)),
                Part(f"the gain of 5 over 10 particles at {thin} over that at {wide}, {metric}", trend),
            ]
        claims.append(Claim("On thinner uplinks fewer particles beat fewer entries.", "accuracy and ECE", parts))
    for name, budget in product((OURS, SCALED), budgets):
        if (name, budget) not in found:
            continue
        parts = []
        for group, metric in product((LETTER, FEDAVG), METRICS):
            there = [rival for rival in group if (rival, budget) in found]
            best = (max if metric == "accuracy" else min)(there, key=lambda rival: fmean(values(rival, budget, metric)))
            parts.append(Part(f"{metric} over {WORDS[best]}", gain(name, best, budget, metric)))
        counts = [sum((rival, budget) in found for rival in group) for group in (LETTER, FEDAVG)]
        field = f"the best of {counts[0]} DSVGD and {counts[1]} FedAvg settings"
        words = f"{WORDS[name].capitalize()}, at {budget} is above {field} in all three."
        claims.append(Claim(words, "accuracy, ECE and NLL, each against the best in it", parts))
    if has("ensemble-5"):
        words = "Ours is above an ensemble of five FedAvg models at equal bits, with our coding."
        claims.append(Claim(words, "accuracy, ECE and NLL", above(OURS, "ensemble-5", METRICS)))
    if has("fedavg-scaled"):
        parts = [
            Part(f"{where}, {metric}", gain(OURS, "fedavg-scaled", "1.0d", metric, where))
            for where, metric in product(conditions(), ("ece", "nll"))
        ]
        words = "Ours stays better calibrated than FedAvg with temperature scaling when inputs shift."
        claims.append(Claim(words, "ECE and NLL at 1.0d", parts))

    table = [_row(key, found[key], runs) for key in keys]
    shown = [key for key in keys if key[1] in ("1.0d", "none")]
    shifts = [
        {"setting": WORDS[key[0]], "inputs": where}
        | {metric: mean_text([run[where][metric] for run in found[key]]) for metric in METRICS}
        for where, key in product(conditions(), shown)
    ]
    elsewhere = [
        {"setting": WORDS[key[0]], "R_u": key[1]}
        | {
            name.replace("_", ", "): mean_text([run[ELSEWHERE][name] for run in found[key]], 3)
            for name in found[key][0][ELSEWHERE]
        }
        for key in keys
    ]
    points = [
        {"setting": name, "R_u": budget, "seed": seed, "inputs": where} | run[where]
        for (name, budget), all_runs in found.items()
        for seed, run in enumerate(all_runs)
        for where in conditions()
    ]

    def draw(figure: Figure) -> None:
        panels = figure.subplots(1, 2, sharex=True, sharey=True)
        means = {key: (fmean(values(*key, "ece")), fmean(values(*key, "accuracy"))) for key in keys}
        _panel(panels[0], ("fedavg", "fedavg-adagrad", *LETTER), means, "The letter's methods and coding")
        _panel(panels[1], ("fedavg-ours", "fedavg-scaled", "ensemble-5", OURS, SCALED, "svgd-5"), means,
               "Ours, and FedAvg with our coding")  # fmt: skip
        panels[0].set_ylabel("accuracy")
        if not quick:
            panels[0].set_ylim(bottom=0.83)
        handles = [
            panels[0].plot([], [], _MARKERS[budget], color="#888888", label=f"R_u = {budget}")[0] for budget in budgets
        ]
        floor = fmean(value for key in keys for value in values(*key, "ece_floor"))
        lines = [panel.axvline(floor, color="#888888", linestyle=":", zorder=0) for panel in panels]
        lines[0].set_label("what perfect calibration would show")
        figure.legend(handles=[*handles, lines[0]], ncols=5, fontsize=8, loc="outside lower center")

    return Findings(claims, table, points, draw, (10.2, 5.0), {"shifted": shifts, "elsewhere": elsewhere})


_MARKERS = {"0.5d": "v", "1.0d": "o", "5.0d": "s", "10.0d": "^", "none": "*"}


def _key(name: str) -> Key:
    method, _, budget = name.partition(",")
    return method, budget


def _row(key: Key, found: list[dict[str, Any]], runs: int) -> dict[str, Any]:
    name, budget = key
    shown = ("accuracy", "ece", "ece_floor", "nll", "brier")
    cells = {metric: mean_text([run[CLEAN][metric] for run in found]) for metric in shown}
    return {"setting": WORDS[name], "R_u": budget, "runs": runs, **cells}


def _panel(axes: Axes, names: tuple[str, ...], means: Mapping[Key, tuple[float, float]], title: str) -> None:
    for number, name in enumerate(names):
        here = [(budget, *means[name, budget]) for budget in (*BUDGETS, "none") if (name, budget) in means]
        if not here:
            continue
        colour = COLOURS[number % len(COLOURS)]
        axes.plot(
            [ece for _, ece, _ in here], [acc for *_, acc in here], "-", color=colour, label=WORDS[name], zorder=1
        )
        for budget, ece, acc in here:
            axes.plot([ece], [acc], _MARKERS[budget], color=colour, markersize=11 if budget == "none" else 7)
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xlabel("ECE (15 bins)")
    axes.legend(fontsize=8, loc="lower right")


FIG3 = Study("fig3", "Accuracy against ECE under bit budgets", 3, 3, jobs, find)
