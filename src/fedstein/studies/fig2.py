"""The letter's Fig. 2: accuracy and ECE over rounds for the sparsification schemes at R_u = d, N_p = 10, N_b = 5.

The letter's step rule is AdaGrad; the schemes are run with the plain step as well, because the step rule decides how
an update compresses, and so which scheme is best. Ours (error feedback, entropy-coded entries, values in common) is
beside them. Step sizes: experiments/fig2/README.md.
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

RULES = {"adagrad": ("ema-adagrad", 1e-3), "plain": ("gradient", 1.0)}
SHARINGS = (Fraction(1), Fraction(1, 2), Fraction(1, 10))
ENDS = (SHARINGS[0], SHARINGS[-1])  # of the plain step
OURS = "ours"


def sweep(runs: int, quick: bool) -> dict[str, Any]:
    """The runs, as a SWEEP.toml has them."""
    settings = [
        {
            "name": _name(rule, sharing),
            "method": {"step": RULES[rule][0], "step_size": RULES[rule][1]},
            "uplink": {"sharing": float(sharing)},
        }
        for rule, sharing in product(RULES, SHARINGS)
        if rule == "adagrad" or (not quick and sharing in ENDS)
    ]
    ours = {"entries": "adaptive", "feedback": True}
    settings.append({"name": OURS, "method": {"step": "gradient", "step_size": 2.0}, "uplink": ours})
    return {
        "seeds": list(range(runs)),
        "base": {
            "rounds": 200 if quick else 1000,
            "method": {"particles": 10, "local_steps": 10},
            "uplink": {"budget": "1.0d", "bits_per_entry": 5},
            "evaluation": {"every": 20 if quick else 50},
            "recording": {"keep_checkpoints": 1},
        },
        "list": settings,
    }


def jobs(out: Path, runs: int, quick: bool) -> list[Job]:
    """One run a setting and seed."""
    return [planned.job(out / "runs") for planned in plan_sweep(sweep(runs, quick))]


def find(out: Path, runs: int, quick: bool, tell: Tell) -> Findings:
    """Curves, final values, and the letter's three claims about sparsification."""
    names = [entry["name"] for entry in sweep(runs, quick)["list"]]
    curves = {name: [evaluations(out / "runs" / name / f"seed-{seed}") for seed in range(runs)] for name in names}
    rounds = sorted(curves[names[0]][0])
    early, late = rounds[max(0, len(rounds) // 10 - 1)], rounds[-1]

    def gain(better: str, worse: str, metric: str, at: int) -> list[float]:
        sign = 1 if metric == "accuracy" else -1
        pairs = zip(curves[better], curves[worse], strict=True)
        return [sign * (one[at][metric] - other[at][metric]) for one, other in pairs]

    def parts(better: Fraction, worse: Fraction, metrics: tuple[str, ...], at: int, rule: str) -> list[Part]:
        pair = _name(rule, better), _name(rule, worse)
        return [Part(f"sharing {better} over {worse}, {metric}", gain(*pair, metric, at)) for metric in metrics]

    claims = []
    both = ("accuracy", "ece")
    for rule in dict.fromkeys(name.split(",")[0] for name in names if name != OURS):
        shared, *between, each = (sharing for sharing in SHARINGS if _name(rule, sharing) in names)
        claims += [
            Claim(
                f"Shared sparsification is best early ({rule} step).",
                f"accuracy after {early} rounds",
                [part for other in (*between, each) for part in parts(shared, other, ("accuracy",), early, rule)],
            ),
            Claim(
                f"Sharing below 1 is better late ({rule} step).",
                f"accuracy and ECE after {late} rounds",
                [part for other in between or [each] for part in parts(other, shared, both, late, rule)],
            ),
            Claim(
                f"Sparsification for each particle alone is suboptimal ({rule} step).",
                f"accuracy after {late} rounds",
                [part for other in (shared, *between) for part in parts(other, each, ("accuracy",), late, rule)],
            ),
        ]
    letter = [name for name in names if name != OURS]
    claims.append(
        Claim(
            "Ours is better than every scheme of the letter.",
            f"accuracy, NLL and ECE after {late} rounds",
            [
                Part(f"over {name}, {metric}", gain(OURS, name, metric, late))
                for name, metric in product(letter, ("accuracy", "nll", "ece"))
            ],
        )
    )
    table = [
        {"setting": _words(name), "rounds": at, "runs": runs}
        | {metric: mean_text([curve[at][metric] for curve in curves[name]]) for metric in ("accuracy", "ece", "nll")}
        for at in (early, late)
        for name in names
    ]
    points = []
    for name, at in product(names, rounds):
        row: dict[str, Any] = {"setting": name, "round": at}
        for metric in ("accuracy", "ece", "nll"):
            mean, low, high = interval([curve[at][metric] for curve in curves[name]])
            row |= {metric: mean, f"{metric}_low": low, f"{metric}_high": high}
        points.append(row)

    def draw(figure: Figure) -> None:
        rules = list(dict.fromkeys(name.split(",")[0] for name in letter))
        axes = figure.subplots(2, len(rules), sharex=True, sharey="row", squeeze=False)
        for column, rule in enumerate(rules):
            shown = [name for name in letter if name.startswith(f"{rule},")] + [OURS]
            for row, (metric, word) in enumerate((("accuracy", "accuracy"), ("ece", "ECE (15 bins)"))):
                panel = axes[row][column]
                for number, name in enumerate(shown):
                    here = [point for point in points if point["setting"] == name]
                    colour = COLOURS[6] if name == OURS else COLOURS[number]
                    x, y = [point["round"] for point in here], [point[metric] for point in here]
                    panel.plot(x, y, "--" if name == OURS else "-", color=colour, label=_words(name).split(", ")[-1])
                    if runs > 1:
                        ends = [[point[f"{metric}_{end}"] for point in here] for end in ("low", "high")]
                        panel.fill_between(x, *ends, color=colour, alpha=0.15, linewidth=0)
                if column == 0:
                    panel.set_ylabel(word)
            axes[0][column].set_title(f"{_RULE_WORDS[rule]} step", fontsize=10, loc="left")
            axes[0][column].set_ylim(bottom=0.5)
            axes[1][column].set_ylim(0, 0.2)
            axes[1][column].set_xlabel("rounds")
        handles, labels = axes[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, ncols=5, fontsize=8, loc="outside lower center")

    size = (4.6 * len({name.split(",")[0] for name in letter}) + 0.6, 5.6)
    return Findings(claims, table, points, draw, size)


_RULE_WORDS = {"adagrad": "AdaGrad (the letter's)", "plain": "plain gradient"}


def _name(rule: str, sharing: Fraction) -> str:
    return f"{rule},sharing={sharing.numerator}-{sharing.denominator}"


def _words(name: str) -> str:
    if name == OURS:
        return "ours, sharing 1"
    rule, _, sharing = name.partition(",sharing=")
    return f"{_RULE_WORDS[rule]} step, sharing {sharing.replace('-', '/').removesuffix('/1')}"


FIG2 = Study("fig2", "Accuracy and ECE over rounds, R_u = d", 3, 3, jobs, find)
