"""The letter's Fig. 2: accuracy and ECE over rounds for the sparsification schemes at R_u = d, N_p = 10, N_b = 5.

Ours is beside them: error feedback, entropy-coded entries, values in common, no kernel. Step sizes were chosen on
validation data: experiments/fig3/README.md.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedstein.report.figures import COLOURS
from fedstein.studies.claims import Claim, Part, interval
from fedstein.studies.study import Findings, Study, Tell, evaluations, mean_text
from fedstein.sweeps import Job, plan_sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FIG2"]

SHARED, HALF, EACH = Fraction(1), Fraction(1, 2), Fraction(1, 10)
OURS = "ours"
METRICS = ("accuracy", "ece", "nll")
EARLY = 50  # rounds


def sweep(runs: int, quick: bool) -> dict[str, Any]:
    """The runs, as a SWEEP.toml has them."""
    letter = {"step": "ema-adagrad", "step_size": 1e-3}
    ours = {"step": "gradient", "step_size": 0.2, "kernel": "none"}
    schemes: list[dict[str, Any]] = [
        {"name": _name(sharing), "method": letter, "uplink": {"sharing": float(sharing)}}
        for sharing in (SHARED, HALF, EACH)
    ]
    schemes.append({"name": OURS, "method": ours, "uplink": {"entries": "adaptive", "feedback": True, "common": True}})
    return {
        "seeds": list(range(runs)),
        "base": {
            "rounds": 200 if quick else 1000,
            "method": {"particles": 10, "local_steps": 10},
            "uplink": {"budget": "1.0d", "bits_per_entry": 5},
            "evaluation": {"every": 25},
            "posterior": {"from": "last"},
            "recording": {"keep_checkpoints": 1},
        },
        "list": schemes,
    }


def jobs(out: Path, runs: int, quick: bool) -> list[Job]:
    """One run a setting and seed."""
    return [planned.job(out / "runs") for planned in plan_sweep(sweep(runs, quick))]


def find(out: Path, runs: int, quick: bool, workers: int, tell: Tell) -> Findings:
    """Curves, early and final values, and the letter's three claims about sparsification."""
    names = [entry["name"] for entry in sweep(runs, quick)["list"]]
    curves = {name: [evaluations(out / "runs" / name / f"seed-{seed}") for seed in range(runs)] for name in names}
    rounds = sorted(curves[OURS][0])
    early, late = min(rounds, key=lambda at: abs(at - EARLY)), rounds[-1]

    def gain(better: str, worse: str, metric: str, at: int) -> list[float]:
        sign = 1 if metric == "accuracy" else -1
        pairs = zip(curves[better], curves[worse], strict=True)
        return [sign * (one[at][metric] - other[at][metric]) for one, other in pairs]

    def part(better: Fraction, worse: Fraction, metric: str, at: int) -> Part:
        return Part(f"sharing {better} over {worse}, {metric}", gain(_name(better), _name(worse), metric, at))

    claims = [
        Claim(
            "Shared sparsification is best early.",
            f"accuracy after {early} rounds",
            [part(SHARED, other, "accuracy", early) for other in (HALF, EACH)],
        ),
        Claim(
            "Sharing below 1 is better late.",
            f"accuracy and ECE after {late} rounds",
            [part(HALF, SHARED, metric, late) for metric in ("accuracy", "ece")],
        ),
        Claim(
            "Sparsification for each particle alone is suboptimal.",
            f"accuracy after {late} rounds",
            [part(other, EACH, "accuracy", late) for other in (SHARED, HALF)],
        ),
        Claim(
            "Ours (coding, plain step, no kernel) is better than every scheme of the letter.",
            f"accuracy, ECE and NLL after {late} rounds",
            [
                Part(f"over sharing {sharing}, {metric}", gain(OURS, _name(sharing), metric, late))
                for sharing, metric in product((SHARED, HALF, EACH), METRICS)
            ],
        ),
    ]
    table = [
        {"setting": _words(name), "rounds": at, "runs": runs}
        | {metric: mean_text([curve[at][metric] for curve in curves[name]]) for metric in METRICS}
        for at, name in product((early, late), names)
    ]
    points = []
    for name, at in product(names, rounds):
        row: dict[str, Any] = {"setting": name, "round": at}
        for metric in METRICS:
            mean, low, high = interval([curve[at][metric] for curve in curves[name]])
            row |= {metric: mean, f"{metric}_low": low, f"{metric}_high": high}
        points.append(row)

    def draw(figure: Figure) -> None:
        panels = figure.subplots(1, 2, sharex=True)
        for panel, metric, word in zip(panels, METRICS, ("accuracy", "ECE (15 bins)"), strict=False):
            for number, name in enumerate(names):
                here = [point for point in points if point["setting"] == name]
                x, colour = [point["round"] for point in here], COLOURS[6 if name == OURS else number]
                style = "--" if name == OURS else "-"
                panel.plot(x, [point[metric] for point in here], style, color=colour, label=_words(name))
                if runs > 1:
                    ends = [[point[f"{metric}_{end}"] for point in here] for end in ("low", "high")]
                    panel.fill_between(x, *ends, color=colour, alpha=0.15, linewidth=0)
            panel.set(xlabel="rounds", ylabel=word)
        panels[0].set_ylim(0.5, 0.9)
        panels[1].set_ylim(0, 0.25)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, ncols=4, fontsize=8, loc="outside lower center")

    return Findings(claims, table, points, draw, (9.6, 3.9))


def _name(sharing: Fraction) -> str:
    return f"sharing={sharing.numerator}-{sharing.denominator}"


def _words(name: str) -> str:
    return "ours" if name == OURS else name.replace("=", " ").replace("-", "/").removesuffix("/1")


FIG2 = Study("fig2", "Accuracy and ECE over rounds, R_u = d, 10 particles", 3, 3, jobs, find)
