"""The letter's Fig. 4: accuracy of forgotten and retained labels over rounds, for Forget-SVGD and from scratch.

For each seed and R_u one model is trained (the preset `unlearning`), and then made to forget agents 2 and 3, who alone
hold the labels 2 and 9, in several ways: Forget-SVGD as the letter writes it and guarded, for several `sharing`; ours,
taking sites back; and training from scratch without them. What the letter leaves open: experiments/fig4/README.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from fedstein.report.figures import COLOURS
from fedstein.settings import load_preset
from fedstein.studies.claims import Claim, Part, interval
from fedstein.studies.study import Findings, Study, Tell, evaluations, mean_text
from fedstein.sweeps import Forget, Job, Step

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["FIG4"]

BUDGETS = ("1.0d", "0.5d")
SHARINGS = (Fraction(1), Fraction(1, 2), Fraction(1, 4), Fraction(1, 10))
LEAVING, LABELS = (2, 3), (2, 9)
ROUNDS = 40  # of Forget-SVGD
EARLY = 10  # of them, where forgetting happens
LOW = 0.05  # the accuracy below which labels count as forgotten
GUARDS = {"as-written": False, "guarded": True}
TAKE_BACK, SCRATCH = "take-back", "from-scratch"

Curve = list[tuple[int, float, float]]  # rounds since the request, accuracy of forgotten and of retained labels


def jobs(out: Path, runs: int, quick: bool) -> list[Job]:
    """One job a seed and R_u: the training, and everything that begins from it."""
    return [_job(out / "runs", budget, seed, quick) for seed in range(runs) for budget in BUDGETS]


def _job(out: Path, budget: str, seed: int, quick: bool) -> Job:
    place = out / budget / f"seed-{seed}"
    parent = place / "trained"
    sets = [f"seed={seed}", f"uplink.budget={budget}", "evaluation.every=100", "recording.keep_checkpoints=1"]
    config = load_preset("unlearning", [*sets, *(["rounds=300"] if quick else [])])
    ask = partial(Forget, parent, LEAVING, keep_parent=True)
    steps = [Step(parent, config, rounds=config.rounds)]
    for name, sharing, guard in _ways(quick):
        fine = (f"uplink.sharing={float(sharing)}", "uplink.common=false", "evaluation.every=1")
        forget = ask("forget-svgd", rounds=ROUNDS, guarded=GUARDS[guard], overrides=fine)
        steps.append(Step(place / name, forget, rounds=ROUNDS, inherited=config.rounds, may_diverge=True))
    repair = config.rounds // 5
    taking = ask("take-back", repair=repair, overrides=("evaluation.every=4",))
    steps.append(Step(place / TAKE_BACK, taking, rounds=repair, inherited=config.rounds))
    again = ask("retrain", overrides=("evaluation.every=10",))
    steps.append(Step(place / SCRATCH, again, rounds=config.rounds))
    return Job(f"{budget}/seed-{seed}", tuple(steps), seed, {"uplink.budget": budget})


def _ways(quick: bool) -> list[tuple[str, Fraction, str]]:
    sharings = (SHARINGS[0], SHARINGS[-1]) if quick else SHARINGS
    return [
        (f"{guard},sharing={sharing.numerator}-{sharing.denominator}", sharing, guard)
        for guard, sharing in product(GUARDS, sharings)
    ]


def find(out: Path, runs: int, quick: bool, workers: int, tell: Tell) -> Findings:
    """Curves, and the letter's claims about forgetting."""
    ways = _ways(quick)
    names = [*(name for name, _, _ in ways), TAKE_BACK, SCRATCH]
    read = {
        (budget, name): [_read(out / "runs" / budget / f"seed-{seed}", name) for seed in range(runs)]
        for budget, name in product(BUDGETS, names)
    }
    curves = {key: [curve for curve, _ in several] for key, several in read.items()}
    bits = {key: [sent for _, sent in several] for key, several in read.items()}
    shared, each = ways[0][1], ways[-1][1]

    def name_of(guard: str, sharing: Fraction) -> str:
        return next(name for name, other, word in ways if (word, other) == (guard, sharing))

    def sooner(budget: str, guard: str) -> list[float]:
        """How many times (log10) the rounds of forgetting training from scratch needs to be as good."""
        times = []
        for curve, scratch in zip(curves[budget, name_of(guard, shared)], curves[budget, SCRATCH], strict=True):
            done = _forgotten(curve)
            needed = 1 if done is None else _until_as_good(scratch, done[1])
            times.append(math.log10(needed / (ROUNDS if done is None else max(1, done[0]))))
        return times

    def more(budget: str, guard: str, part: int, rounds: int) -> list[float]:
        """How much higher an accuracy is with the smallest sharing than with 1, on average over the first rounds."""
        small, large = (curves[budget, name_of(guard, sharing)] for sharing in (each, shared))
        return [_mean(one, part, rounds) - _mean(other, part, rounds) for one, other in zip(small, large, strict=True)]

    conditions = list(product(BUDGETS, GUARDS))
    claims = [
        Claim(
            "Forget-SVGD is far faster than training from scratch.",
            f"log10 of the ratio of rounds until forgotten labels are below {LOW:.0%} and retained ones as good",
            [Part(f"R_u = {budget}, {guard}", sooner(budget, guard)) for budget, guard in conditions],
        ),
        Claim(
            "Larger sharing forgets more.",
            f"accuracy of forgotten labels over {EARLY} rounds, sharing {each} minus 1",
            [Part(f"R_u = {budget}, {guard}", more(budget, guard, 1, EARLY)) for budget, guard in conditions],
        ),
        Claim(
            "Larger sharing costs more of what is to be retained.",
            f"accuracy of retained labels over {ROUNDS} rounds, sharing {each} minus 1",
            [Part(f"R_u = {budget}, {guard}", more(budget, guard, 2, ROUNDS)) for budget, guard in conditions],
        ),
        Claim(
            "Ours (take-back) forgets all and keeps what training from scratch reaches, within a point.",
            "0.01 minus the distance in retained labels; 0.01 minus the accuracy of forgotten ones",
            [
                Part(f"R_u = {budget}, {word}", [0.01 - abs(gap) for gap in gaps])
                for budget in BUDGETS
                for word, gaps in _ours(curves[budget, TAKE_BACK], curves[budget, SCRATCH])
            ],
        ),
    ]
    table = [
        {
            "R_u": budget,
            "how": _words(name),
            "rounds": curves[budget, name][0][-1][0],
            "bits": f"{fmean(bits[budget, name]):,.0f}",
            "runs": runs,
            f"rounds until below {LOW:.0%}": "-" if name == SCRATCH else _until_low(curves[budget, name]),
            "forgotten labels": mean_text([curve[-1][1] for curve in curves[budget, name]]),
            "retained labels": mean_text([curve[-1][2] for curve in curves[budget, name]]),
        }
        for budget, name in product(BUDGETS, names)
    ]
    points = [
        {"R_u": budget, "how": name, "seed": seed, "round": at, "forgotten": forgotten, "retained": retained}
        for (budget, name), several in curves.items()
        for seed, curve in enumerate(several)
        for at, forgotten, retained in curve
    ]

    def draw(figure: Figure) -> None:
        panels = figure.subplots(
            len(BUDGETS), 4, sharey=True, sharex="col", squeeze=False, width_ratios=[1, 1, 0.8, 0.8]
        )
        for row, budget in enumerate(BUDGETS):
            for column, guard in enumerate(GUARDS):
                for number, (name, sharing, word) in enumerate(ways):
                    if word == guard:
                        colour = COLOURS[number % (len(ways) // 2)]
                        _lines(panels[row][column], curves[budget, name], colour, f"sharing {sharing}")
            _lines(panels[row][2], curves[budget, TAKE_BACK], COLOURS[6], "ours")
            _lines(panels[row][3], curves[budget, SCRATCH], COLOURS[6], "from scratch")
            panels[row][0].set_ylabel(f"R_u = {budget.replace('1.0', '').replace('0.5', '0.5 ')}\naccuracy")
        titles = ("Forget-SVGD, as written", "Forget-SVGD, guarded", "ours: take-back", "from scratch")
        for column, title in enumerate(titles):
            panels[0][column].set_title(title, fontsize=10, loc="left")
            panels[-1][column].set_xlabel("rounds")
        handles, _ = panels[0][0].get_legend_handles_labels()
        styles = [
            panels[0][0].plot([], [], style, color="#444444", label=word)[0]
            for style, word in (("-", "retained labels"), ("--", "forgotten labels"))
        ]
        figure.legend(handles=[*styles, *handles], ncols=len(handles) + 2, fontsize=8, loc="outside lower center")

    return Findings(claims, table, points, draw, (11.0, 5.2))


def _read(place: Path, name: str) -> tuple[Curve, int]:
    """The curve from the request on, its first point the model before anything was forgotten, and the bits sent."""
    before = {} if name == SCRATCH else evaluations(place / "trained")
    start = max(before, default=0)
    lines = evaluations(place / name)
    curve = []
    for round, line in sorted(lines.items()):
        if round >= start:
            classes = line["class_accuracy"]
            kept = [value for label, value in enumerate(classes) if label not in LABELS]
            curve.append((round - start, fmean(classes[label] for label in LABELS), fmean(kept)))
    sent = lines[max(lines)]["total_upload_bits"] - (before[start]["total_upload_bits"] if before else 0)
    return curve, int(sent)


def _forgotten(curve: Curve) -> tuple[int, float] | None:
    """The first round with the forgotten labels below LOW, and the retained ones there; None if there is none."""
    return next(((at, kept) for at, gone, kept in curve if gone <= LOW), None)


def _until_low(several: Sequence[Curve]) -> str:
    there = [done[0] for curve in several if (done := _forgotten(curve)) is not None]
    never = f"; never in {len(several) - len(there)}" if len(there) < len(several) else ""
    return (f"{fmean(there):.1f}" if there else "-") + never


def _until_as_good(curve: Curve, retained: float) -> int:
    """The round after the last evaluation that was not yet as good: what lies between speaks for this curve."""
    below = 0
    for at, _, kept in curve:
        if kept >= retained:
            return below + 1
        below = at
    return below


def _mean(curve: Curve, part: int, rounds: int) -> float:
    """Of the first rounds; a curve that was cut short (particles no longer finite) goes on as it ended."""
    values = [point[part] for point in curve if 1 <= point[0] <= rounds] or [curve[0][part]]
    return fmean([*values, *[values[-1]] * (rounds - len(values))])


def _ours(taken: Sequence[Curve], scratch: Sequence[Curve]) -> list[tuple[str, list[float]]]:
    pairs = list(zip(taken, scratch, strict=True))
    return [
        ("retained labels", [one[-1][2] - other[-1][2] for one, other in pairs]),
        ("forgotten labels", [one[-1][1] for one, _ in pairs]),
    ]


def _lines(axes: Axes, several: Sequence[Curve], colour: str, label: str) -> None:
    rounds = [at for at, _, _ in min(several, key=len)]
    for part, style in ((1, "--"), (2, "-")):
        spread = [interval([curve[place][part] for curve in several]) for place in range(len(rounds))]
        axes.plot(rounds, [mean for mean, _, _ in spread], style, color=colour, label=label if part == 2 else None)
        if len(several) > 1:
            low, high = [low or 0.0 for _, low, _ in spread], [high or 0.0 for *_, high in spread]
            axes.fill_between(rounds, low, high, color=colour, alpha=0.12, linewidth=0)
    axes.set_ylim(0, 1)


def _words(name: str) -> str:
    if name in (TAKE_BACK, SCRATCH):
        return {TAKE_BACK: "ours, take-back by the server", SCRATCH: "from scratch"}[name]
    guard, _, sharing = name.partition(",sharing=")
    return f"Forget-SVGD {guard.replace('-', ' ')}, sharing {sharing.replace('-', '/').removesuffix('/1')}"


FIG4 = Study("fig4", "Forgetting over rounds, beside training from scratch", 3, 3, jobs, find)
