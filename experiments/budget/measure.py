"""What the uplink's coders buy at R_u = d: kept entries, accuracy and NLL at equal bits.

    python experiments/budget/measure.py

Fashion-MNIST, ten agents, IID, one seed; evaluated on 10,000 held-out training examples, every ten rounds; metrics are
means over the last five evaluations, because a single round depends on who came last. "letter" is the letter's coding
(Golomb positions, fixed entries); "ours" has informed positions and adaptive entries.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

from fedstein.protocol.state import State, Told
from fedstein.runs.verbs import fit_config
from fedstein.settings import make_config

CODINGS: dict[str, dict[str, Any]] = {
    "letter": {"positions": "golomb", "entries": "fixed"},
    "informed positions": {"positions": "informed", "entries": "fixed"},
    "adaptive entries": {"positions": "auto", "entries": "adaptive"},
    "ours": {"positions": "informed", "entries": "adaptive"},
}


class Bills:
    """Collects the kept entries and the captured energy of every upload."""

    def __init__(self) -> None:
        self.kept: list[int] = []
        self.captured: list[float] = []
        self.fill: list[float] = []

    def after_round(self, state: State, told: Told) -> None:
        for upload in told.uploads:
            assert upload.budget_bits is not None
            assert upload.bits <= upload.budget_bits
            self.kept.append(upload.kept)
            self.captured.append(upload.captured)
            self.fill.append(upload.bits / upload.budget_bits)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--particles", type=int, nargs="+", default=[5, 10])
    parser.add_argument("--step", default="gradient")
    parser.add_argument("--step-size", type=float, default=2.0)
    options = parser.parse_args()
    print("| particles | feedback | coding | kept, mean | more than the letter | captured | accuracy | NLL | ECE |")
    print("|---|---|---|---|---|---|---|---|---|")
    for particles in options.particles:
        for feedback in (False, True):
            base = 0.0
            for name, coding in CODINGS.items():
                config = make_config(
                    {
                        "rounds": options.rounds,
                        "data": {"validation": 10_000},
                        "evaluation": {"split": "validation", "every": 10},
                        "method": {"particles": particles, "step": options.step, "step_size": options.step_size},
                        "uplink": {"budget": "1.0d", "feedback": feedback, **coding},
                        "posterior": {"from": "last"},
                    }
                )
                bills = Bills()
                last = fit_config(config, watchers=[bills]).history[-5:]
                means = {key: statistics.mean(entry[key] for entry in last) for key in ("accuracy", "nll", "ece")}
                kept = statistics.mean(bills.kept)
                base = base or kept
                print(
                    f"| {particles} | {'yes' if feedback else 'no'} | {name} | {kept:,.0f} | {kept / base - 1:+.0%} | "
                    f"{statistics.mean(bills.captured):.2f} | {means['accuracy']:.4f} | {means['nll']:.4f} | "
                    f"{means['ece']:.4f} |",
                    flush=True,
                )
