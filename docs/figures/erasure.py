"""Draw what the ways to forget do in the letter's setting.

python docs/figures/erasure.py             about five minutes; keeps the curves in erasure.json
python docs/figures/erasure.py --draw      again from there
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt

HERE = Path(__file__).parent

COLOURS = {"take-back, handed over": "#0072b2", "take-back, subtracted": "#56b4e9", "Forget-SVGD, guarded": "#d55e00",
           "Forget-SVGD, as written": "#cc79a7", "retraining": "#444444"}  # fmt: skip


def measure() -> dict[str, object]:
    """All curves, and what retraining reaches."""
    sys.path.insert(0, str(HERE.parents[1] / "experiments" / "erasure"))
    from measure import Study, letter

    study = Study(letter(0, "1.0d"))
    ways = {
        "take-back, handed over": ("take-back", {}),
        "take-back, subtracted": ("take-back", {"handover": False}),
        "Forget-SVGD, guarded": ("forget-svgd", {"rounds": 40}),
        "Forget-SVGD, as written": ("forget-svgd", {"rounds": 40, "guarded": False}),
    }
    curves = {}
    for name, (method, options) in ways.items():
        rows = [study.row(study.trained.state)]
        for state in study.erase(method, **options):
            if (done := state.round - study.trained.state.round) and (done <= 10 or done % 5 == 0):
                rows.append(study.row(state))
        curves[name] = rows
    theirs = study.problem.evaluate(study.retrained.particles)
    levels = {
        "forgotten": theirs["forgotten_label_accuracy"],
        "retained": theirs["retained_label_accuracy"],
        "kl": study.distance(study.other(1000).particles),
    }
    return {"curves": curves, "levels": levels}


def main() -> None:
    if "--draw" not in sys.argv:
        (HERE / "erasure.json").write_text(json.dumps(measure()), encoding="utf-8")
    numbers = json.loads((HERE / "erasure.json").read_text(encoding="utf-8"))
    titles = {
        "forgotten": "Forgotten labels: test accuracy",
        "retained": "Retained labels: test accuracy",
        "kl": "KL from the retrained model, nats",
    }
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    for axis, (key, title) in zip(axes, titles.items(), strict=True):
        level = numbers["levels"][key]
        for name, rows in numbers["curves"].items():
            x, y = [row["rounds"] for row in rows], [row[key] for row in rows]
            axis.plot(x, y, color=COLOURS[name], label=name, lw=1.8)
        word = "two retrained models" if key == "kl" else "retrained from scratch, 1,200 rounds"
        axis.axhline(level, color=COLOURS["retraining"], ls="--", lw=1.2, label=word)
        axis.set_title(title, fontsize=10, loc="left")
        axis.set_xscale("symlog", linthresh=10, linscale=1)  # the first rounds are what tells the ways apart
        ticks = [0, 2, 4, 6, 8, 10, 20, 50, 100, 240]
        axis.set_xticks(ticks, labels=map(str, ticks), fontsize=8)
        axis.set_xlim(0, 250)
        axis.minorticks_off()
        axis.set_xlabel("rounds of the erasure")
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="y", alpha=0.3)
        if key == "kl":
            axis.set_yscale("log")
            axis.text(0.3, level * 0.8, "two retrained models", va="top", fontsize=8)
        else:
            axis.set_ylim(-0.03, 1)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False, fontsize=8.5)
    figure.savefig(HERE / "erasure.png", dpi=150)


if __name__ == "__main__":
    main()
