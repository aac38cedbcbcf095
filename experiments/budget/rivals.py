"""DSVGD beside FedAvg at the same budget of R_u = d bits a round, both tuned alike.

    python experiments/budget/rivals.py

Three plain step sizes for each, with the letter's coding and with ours (adaptive entries, error feedback); 100 rounds,
one seed, metrics on 10,000 held-out training examples as means over the evaluations at rounds 60, 70, ... 100.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

from fedstein.runs.verbs import fit_config
from fedstein.settings import make_config

CODINGS: dict[str, dict[str, Any]] = {
    "the letter's": {"positions": "golomb"},
    "ours": {"entries": "adaptive", "feedback": True},
}
RIVALS: dict[str, tuple[dict[str, Any], tuple[float, ...]]] = {
    "FedAvg": ({"name": "fedavg"}, (0.05, 0.1, 0.3)),
    "DSVGD, 5 particles": ({"name": "dsvgd", "particles": 5}, (0.5, 1.0, 2.0)),
    "DSVGD, 10 particles": ({"name": "dsvgd", "particles": 10}, (1.0, 2.0, 4.0)),
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    options = parser.parse_args()
    print("| method | coding | step size | accuracy | NLL | ECE (15 bins) |")
    print("|---|---|---|---|---|---|")
    for coding, terms in CODINGS.items():
        for name, (method, sizes) in RIVALS.items():
            for size in sizes:
                config = make_config(
                    {
                        "rounds": options.rounds,
                        "data": {"validation": 10_000},
                        "evaluation": {"split": "validation", "every": 10},
                        "method": {**method, "step": "gradient", "step_size": size},
                        "uplink": {"budget": "1.0d", **terms},
                        "posterior": {"from": "last"},
                    }
                )
                last = fit_config(config).history[-5:]
                cells = [f"{statistics.mean(entry[key] for entry in last):.4f}" for key in ("accuracy", "nll", "ece")]
                print(f"| {name} | {coding} | {size:g} | {' | '.join(cells)} |", flush=True)
