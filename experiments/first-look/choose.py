"""Choose the step rule of both methods on the validation split, with the same number of tries.

    python experiments/first-look/choose.py

10,000 training examples are held out from all agents; the test set is not looked at. One seed, 600 rounds.
"""

from __future__ import annotations

import argparse

from fedstein.runs.verbs import fit_config
from fedstein.settings import make_config

TRIES = {
    "fedavg": [("ema-adagrad", 1e-3), ("ema-adagrad", 3e-4), ("gradient", 0.05), ("gradient", 0.1), ("gradient", 0.3)],
    "dsvgd": [("ema-adagrad", 1e-3), ("ema-adagrad", 3e-4), ("gradient", 1.0), ("gradient", 2.0), ("gradient", 4.0)],
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=600)
    options = parser.parse_args()
    print("| method | step | size | accuracy | NLL | ECE (15 bins) |")
    print("|---|---|---|---|---|---|")
    for name, tries in TRIES.items():
        for step, size in tries:
            config = make_config(
                {
                    "rounds": options.rounds,
                    "data": {"validation": 10_000},
                    "evaluation": {"split": "validation", "every": options.rounds},
                    "method": {"name": name, "step": step, "step_size": size},
                    "posterior": {"from": "last"},
                }
            )
            metrics = fit_config(config).metrics
            cells = " | ".join(f"{metrics[key]:.4f}" for key in ("accuracy", "nll", "ece"))
            print(f"| {name} | {step} | {size:g} | {cells} |", flush=True)
