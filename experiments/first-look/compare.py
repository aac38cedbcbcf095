"""DSVGD beside FedAvg on Fashion-MNIST, ten agents, no bit budget yet: metrics over rounds, and a figure.

    python experiments/first-look/compare.py --rounds 600 --seeds 3 --out docs/figures

Both methods have the step rule with the best validation NLL of five tries each (choose.py). The curves are of the
test set, which nothing was chosen on.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

from fedstein.runs.verbs import fit_config
from fedstein.settings import make_config

CHOSEN = {
    "dsvgd": {"name": "dsvgd", "step": "gradient", "step_size": 2.0},
    "fedavg": {"name": "fedavg", "step": "gradient", "step_size": 0.1},
}
METHODS = {"dsvgd": "DSVGD, 10 particles", "fedavg": "FedAvg"}
COLOURS = {"dsvgd": "#0072B2", "fedavg": "#D55E00"}
METRICS = {"accuracy": "test accuracy", "nll": "NLL (nats)", "ece": "ECE (15 bins)"}


def measure(rounds: int, seeds: int) -> dict[str, list[list[dict[str, float]]]]:
    """histories[method][seed] is the list of evaluated rounds."""
    histories: dict[str, list[list[dict[str, float]]]] = {}
    for name in METHODS:
        histories[name] = []
        for seed in range(seeds):
            config = make_config(
                {"seed": seed, "rounds": rounds, "method": CHOSEN[name], "posterior": {"from": "last"}}
            )
            histories[name].append(fit_config(config).history)
            last = histories[name][-1][-1]
            print(name, "seed", seed, {key: round(last[key], 4) for key in ("round", *METRICS)}, flush=True)
    return histories


def table(histories: dict[str, list[list[dict[str, float]]]], at: list[int]) -> str:
    lines = ["| | rounds | accuracy | NLL | ECE (15 bins) |", "|---|---|---|---|---|"]
    for name, title in METHODS.items():
        for round_ in at:
            cells = []
            for key in METRICS:
                values = [entry[key] for history in histories[name] for entry in history if entry["round"] == round_]
                spread = statistics.stdev(values) if len(values) > 1 else 0.0
                cells.append(f"{statistics.mean(values):.4f} ± {spread:.4f}")
            lines.append(f"| {title} | {round_} | {' | '.join(cells)} |")
    return "\n".join(lines)


def figure(histories: dict[str, list[list[dict[str, float]]]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(1, 3, figsize=(10.5, 3.2), layout="constrained")
    for axis, (key, title) in zip(axes, METRICS.items(), strict=True):
        for name, label in METHODS.items():
            rounds = [entry["round"] for entry in histories[name][0]]
            values = [[history[i][key] for history in histories[name]] for i in range(len(rounds))]
            mean = [statistics.mean(v) for v in values]
            axis.plot(rounds, mean, color=COLOURS[name], label=label, lw=2, ls="-" if name == "dsvgd" else "--")
            axis.fill_between(
                rounds, [min(v) for v in values], [max(v) for v in values], color=COLOURS[name], alpha=0.2, lw=0
            )
        axis.set_xlabel("rounds")
        axis.set_title(title, loc="left", fontsize=11)
        axis.grid(alpha=0.25)
    axes[0].legend(frameon=False, loc="lower right")
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=600)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("docs/figures"))
    options = parser.parse_args()
    histories = measure(options.rounds, options.seeds)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "first-look.json").write_text(json.dumps(histories))
    figure(histories, options.out / "first-look.png")
    print(table(histories, sorted({min(200, options.rounds), options.rounds})))
