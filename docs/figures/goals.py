"""Draw experiments/goals/results.jsonl: test NLL over the bit budget, the default beside its rivals.

python docs/figures/goals.py
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean

import matplotlib.pyplot as plt

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "experiments" / "goals" / "results.jsonl"
CHAIN = "the chain of the default"
LINES = {
    "FedAvg, the letter's coding": ("FedAvg, the letter's coding", "last", "#999999", "o-"),
    "the letter's DSVGD, 5 particles": ("the letter's DSVGD, 5", "last", "#cc79a7", "o-"),
    "ensemble of 5, our coding": ("ensemble of 5", "last", "#e69f00", "o-"),
    "FedAvg of all agents a round, our coding": ("FedAvg, all agents a round", "last", "#009e73", "o-"),
    "FedAvg, our coding": (CHAIN, "last", "#d55e00", "o-"),
    "FedAvg, our coding, averaged and scaled": (CHAIN, "mean, scaled", "#000000", ":"),
    "the default: the window": (CHAIN, "window", "#0072b2", "o-"),
}
SPLITS = {"iid": "Agents with alike data", "dirichlet 0.1": "Agents with unlike data (Dirichlet 0.1)"}


def main() -> None:
    lines = [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()]
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    for axis, (split, title) in zip(axes, SPLITS.items(), strict=True):
        for label, (name, what, colour, style) in LINES.items():
            found: dict[float, list[float]] = {}
            for line in lines:
                if (line["split"], line["name"]) == (split, name) and what in line:
                    found.setdefault(float(line["budget"].removesuffix("d")), []).append(line[what]["nll"])
            x = sorted(found)
            wide = 2.6 if what == "window" else 1.4
            axis.plot(x, [fmean(found[budget]) for budget in x], style, color=colour, lw=wide, ms=4, label=label)
        axis.set_xscale("log")
        axis.set_xticks([0.01, 0.05, 0.2, 0.5, 1, 5, 10], labels=["0.01", "0.05", "0.2", "0.5", "1", "5", "10"])
        axis.minorticks_off()
        axis.set_yscale("log")
        axis.set_yticks([0.3, 0.4, 0.5, 0.7, 1, 2], labels=["0.3", "0.4", "0.5", "0.7", "1", "2"])
        axis.set_ylim(0.28 if split == "iid" else 0.35, 0.8 if split == "iid" else 2.2)
        axis.minorticks_off()
        axis.set_xlabel("R_u, bits a parameter in an upload")
        axis.set_title(f"{title}: test NLL", fontsize=10, loc="left")
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.3)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=8.5)
    figure.savefig(HERE / "goals.png", dpi=150)


if __name__ == "__main__":
    main()
