"""The letter's Fig. 3: accuracy against ECE after 1,000 rounds for FedAvg and DSVGD at R_u = 0.5d, d, 5d and 10d.

Beside the letter's methods: ours, and more peers (FedAvg with temperature scaling, an ensemble of FedAvg models at
equal bits, DSGLD, QLSD, central SVGD as the ceiling). All are judged on shifted inputs and on inputs from elsewhere as
well. The settings: fig3_settings.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from fedstein.report.figures import COLOURS
from fedstein.runs.evaluation import CLEAN, ELSEWHERE, conditions
from fedstein.studies.claims import Claim, Part
from fedstein.studies.fig3_settings import BUDGETS, FEDAVG, LETTER, METRICS, OURS, SCALED, WORDS, Key, key_of, sweep
from fedstein.studies.judge import Judgement, judge_all
from fedstein.studies.study import Findings, Study, Tell, mean_text
from fedstein.sweeps import Job, plan_sweep

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["FIG3", "METRICS", "jobs", "to_judge"]


def jobs(out: Path, runs: int, quick: bool) -> list[Job]:
    """One run a setting and seed."""
    return [planned.job(out / "runs") for planned in plan_sweep(sweep(runs, quick))]


def to_judge(runs: Iterable[Path]) -> list[tuple[Path, bool]]:
    """Run folders, and whether temperature scaling is part of their setting."""
    return [(run, key_of(run.parent.name)[0].endswith("-scaled")) for run in runs]


@dataclass(frozen=True)
class Judged:
    """Every setting's runs, judged; those of one setting in the order of their seeds."""

    by: Mapping[Key, Sequence[Judgement]]

    @property
    def budgets(self) -> list[str]:
        """Where there is FedAvg to compare with, thin ones first."""
        return [budget for budget in BUDGETS if ("fedavg", budget) in self.by]

    def values(self, name: str, budget: str, metric: str, where: str = CLEAN) -> list[float]:
        """A metric, one a seed."""
        return [run.scores[where][metric] for run in self.by[name, budget]]

    def gain(self, better: str, worse: str, budget: str, metric: str, where: str = CLEAN) -> list[float]:
        """How much better one is than the other, one a seed; positive if it is."""
        sign = 1 if metric == "accuracy" else -1
        pairs = zip(self.values(better, budget, metric, where), self.values(worse, budget, metric, where), strict=True)
        return [sign * (one - other) for one, other in pairs]

    def above(self, better: str, worse: str, metrics: tuple[str, ...] = ("accuracy", "ece")) -> list[Part]:
        """One better than the other, at every budget that both have."""
        return [
            Part(f"{budget}, {metric}", self.gain(better, worse, budget, metric))
            for budget, metric in product(self.budgets, metrics)
            if (better, budget) in self.by and (worse, budget) in self.by
        ]

    def has(self, *names: str) -> bool:
        """Whether all of these are there, at some budget."""
        return all(any((name, budget) in self.by for budget in self.budgets) for name in names)


def find(out: Path, runs: int, quick: bool, workers: int, tell: Tell) -> Findings:
    """Every setting judged, the letter's claims about Bayesian and frequentist learning, and ours."""
    keys = [key_of(entry["name"]) for entry in sweep(runs, quick)["list"]]
    places = [out / "runs" / ",".join(key) / f"seed-{seed}" for key in keys for seed in range(runs)]
    judgements = iter(judge_all(to_judge(places), workers, tell))
    judged = Judged({key: [next(judgements) for _ in range(runs)] for key in keys})
    table = [_row(key, several) for key, several in judged.by.items()]
    points = [
        {"setting": name, "R_u": budget, "seed": seed, "inputs": where} | run.scores[where]
        for (name, budget), several in judged.by.items()
        for seed, run in enumerate(several)
        for where in conditions()
    ]
    more = {"shifted": _shifted(judged), "elsewhere": _elsewhere(judged)}
    claims = [*_letters_claims(judged), *_our_claims(judged)]
    return Findings(claims, table, points, lambda figure: _draw(figure, judged, quick), (10.2, 5.0), more)


def _letters_claims(judged: Judged) -> list[Claim]:
    budgets, gain = judged.budgets, judged.gain
    claims = []
    for rival, name in product(("fedavg", "fedavg-adagrad"), ("dsvgd-5", "dsvgd-10")):
        if judged.has(rival, name):
            words = f"{WORDS[name]}, is above {'tuned ' if rival == 'fedavg' else ''}{WORDS[rival]}"
            there = [budget for budget in budgets if (rival, budget) in judged.by]
            where = "under every budget" if there == list(BUDGETS) else f"at {' and '.join(there)}"
            claims.append(Claim(f"{words}, {where}.", "accuracy and ECE", judged.above(name, rival)))
    if judged.has("dsvgd-2"):
        parts = judged.above("fedavg", "dsvgd-2")
        claims.append(Claim("2 particles fall behind tuned FedAvg.", "accuracy and ECE", parts))
    if judged.has("dsvgd-5", "dsvgd-10"):
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
    return claims


def _our_claims(judged: Judged) -> list[Claim]:
    claims = []
    for name, budget in product((OURS, SCALED), judged.budgets):
        if (name, budget) not in judged.by:
            continue
        parts = []
        for group, metric in product((LETTER, FEDAVG), METRICS):
            there = [rival for rival in group if (rival, budget) in judged.by]
            means = {rival: fmean(judged.values(rival, budget, metric)) for rival in there}
            best = (max if metric == "accuracy" else min)(there, key=means.__getitem__)
            parts.append(Part(f"{metric} over {WORDS[best]}", judged.gain(name, best, budget, metric)))
        counts = [sum((rival, budget) in judged.by for rival in group) for group in (LETTER, FEDAVG)]
        field = f"the best of {counts[0]} DSVGD and {counts[1]} FedAvg settings"
        words = f"{WORDS[name].capitalize()}, at {budget} is above {field} in all three."
        claims.append(Claim(words, "accuracy, ECE and NLL, each against the best in it", parts))
    if judged.has("ensemble-5"):
        words = "Ours is above an ensemble of five FedAvg models at equal bits, with our coding."
        claims.append(Claim(words, "accuracy, ECE and NLL", judged.above(OURS, "ensemble-5", METRICS)))
    if judged.has("fedavg-scaled"):
        parts = [
            Part(f"{where}, {metric}", judged.gain(OURS, "fedavg-scaled", "1.0d", metric, where))
            for where, metric in product(conditions(), ("ece", "nll"))
        ]
        words = "Ours stays better calibrated than FedAvg with temperature scaling when inputs shift."
        claims.append(Claim(words, "ECE and NLL at 1.0d", parts))
    return claims


def _row(key: Key, several: Sequence[Judgement]) -> dict[str, Any]:
    name, budget = key
    shown = ("accuracy", "ece", "ece_floor", "nll", "brier")
    cells = {metric: mean_text([run.scores[CLEAN][metric] for run in several]) for metric in shown}
    return {"setting": WORDS[name], "R_u": budget, "runs": len(several), **cells}


def _shifted(judged: Judged) -> list[dict[str, Any]]:
    shown = [key for key in judged.by if key[1] in ("1.0d", "none")]
    return [
        {"setting": WORDS[key[0]], "inputs": where}
        | {metric: mean_text(judged.values(*key, metric, where)) for metric in METRICS}
        for where, key in product(conditions(), shown)
    ]


def _elsewhere(judged: Judged) -> list[dict[str, Any]]:
    return [
        {"setting": WORDS[key[0]], "R_u": key[1]}
        | {
            name.replace("_", ", "): mean_text(judged.values(*key, name, ELSEWHERE), 3)
            for name in several[0].scores[ELSEWHERE]
        }
        for key, several in judged.by.items()
    ]


_MARKERS = {"0.5d": "v", "1.0d": "o", "5.0d": "s", "10.0d": "^", "none": "*"}


def _draw(figure: Figure, judged: Judged, quick: bool) -> None:
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    means = {key: (fmean(judged.values(*key, "ece")), fmean(judged.values(*key, "accuracy"))) for key in judged.by}
    _panel(panels[0], ("fedavg", "fedavg-adagrad", *LETTER), means, "The letter's methods and coding")
    _panel(panels[1], ("fedavg-ours", "fedavg-scaled", "ensemble-5", OURS, SCALED, "svgd-5"), means,
           "Ours, and FedAvg with our coding")  # fmt: skip
    panels[0].set_ylabel("accuracy")
    if not quick:
        panels[0].set_ylim(bottom=0.83)
    handles = [
        panels[0].plot([], [], _MARKERS[budget], color="#888888", label=f"R_u = {budget}")[0]
        for budget in judged.budgets
    ]
    floor = fmean(value for key in judged.by for value in judged.values(*key, "ece_floor"))
    lines = [panel.axvline(floor, color="#888888", linestyle=":", zorder=0) for panel in panels]
    lines[0].set_label("what perfect calibration would show")
    figure.legend(handles=[*handles, lines[0]], ncols=5, fontsize=8, loc="outside lower center")


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
