"""Erasure in the letter's setting, over seeds, on the test set: `python experiments/erasure/measure.py`.

Prints a table for each part and writes all numbers to numbers.csv beside this file. The settings are those of the
preset `unlearning`; what it leaves open was chosen on validation data (`--choose`).
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import fmean, stdev

from torch import Tensor

from fedstein.build import build_problem, fit_config
from fedstein.config import load_preset
from fedstein.engines import State, Totals
from fedstein.erasure.rounds import erasure_rounds, first_state, plan_erasure
from fedstein.errors import DivergedError
from fedstein.metrics import kl
from fedstein.problem import predict
from fedstein.training import Trained

LEAVING = (2, 3)
FIELDS = ("part", "budget", "setting", "seed", "rounds", "bits", "forgotten", "retained", "nll", "ece", "kl",
          "kl_between", "retrained_forgotten", "retrained_retained", "retrained_bits")  # fmt: skip


class Study:
    """One seed: the trained model, and two retrained without the agents, all on the same data and features."""

    def __init__(self, seed: int, overrides: list[str]) -> None:
        self.config = load_preset("unlearning", [f"seed={seed}", "evaluation.every=1000000", *overrides])
        problem = build_problem(self.config)
        self.trained = fit_config(self.config, problem=problem)
        self.retrain_config = plan_erasure(self.config, problem, self.trained.state, LEAVING, "retrain")
        self.problem = replace(problem, erased=LEAVING)
        self.whole = problem
        self.retrained = fit_config(self.retrain_config, problem=self.problem)
        self.reference = self.predict(self.retrained.particles)

    def other(self, seed: int) -> Trained:
        """Retrained with another seed, on the same data."""
        config = self.retrain_config.model_copy(update={"seed": seed})
        return fit_config(config, problem=self.problem)

    def predict(self, particles: Tensor) -> Tensor:
        assert self.problem.test is not None
        return predict(self.problem.model, particles, self.problem.test.x).probabilities

    def distance(self, particles: Tensor) -> float:
        """Mean KL(retrained || these) on the test set."""
        return float(kl(self.reference, self.predict(particles)).mean())

    def erase(self, method: str, **options: object) -> Iterator[State]:
        """The states of an erasure, its first one included."""
        config = plan_erasure(self.config, self.whole, self.trained.state, LEAVING, method, **options)
        state = first_state(self.trained.state, self.problem, config)
        yield state
        yield from islice(erasure_rounds(self.problem, config, state), config.rounds - state.round)

    def row(self, state: State, before: Totals) -> dict[str, object]:
        found = self.problem.evaluate(state.particles)
        return {
            "rounds": state.round - self.trained.state.round,
            "bits": state.totals.upload_bits - before.upload_bits,
            "forgotten": found["forgotten_label_accuracy"],
            "retained": found["retained_label_accuracy"],
            "nll": found["nll"],
            "ece": found["ece"],
            "kl": self.distance(state.particles),
        }


def take_back(seeds: int, rows: list[dict[str, object]]) -> None:
    """Take-back and repair against retraining."""
    ways = {
        "hand over, by server": {"by": "server"},
        "hand over, by agent": {"by": "agent"},
        "subtract, by server": {"by": "server", "handover": False},
    }
    for budget in ("1.0d", "0.5d"):
        for seed in range(seeds):
            study = Study(seed, [f"uplink.budget={budget}"])
            theirs = study.problem.evaluate(study.retrained.particles)
            reference = {
                "kl_between": study.distance(study.other(1000 + seed).particles),
                "retrained_forgotten": theirs["forgotten_label_accuracy"],
                "retrained_retained": theirs["retained_label_accuracy"],
                "retrained_bits": study.retrained.totals.upload_bits,
            }
            same = {"part": "take-back", "budget": budget, "seed": seed}
            before = study.trained.totals
            rows.append(same | {"setting": "before"} | study.row(study.trained.state, before) | reference)
            for name, options in ways.items():
                *_, last = study.erase("take-back", **options)
                rows.append(same | {"setting": name} | study.row(last, before) | reference)
                print(rows[-1], flush=True)


def forget_svgd(seeds: int, rows: list[dict[str, object]]) -> None:
    """The trade-off in `sharing`, guarded and as the letter writes it."""
    for budget in ("1.0d", "0.5d"):
        for sharing in ("1", "0.5", "0.25", "0.1"):
            for seed in range(seeds):
                study = Study(seed, [f"uplink.budget={budget}"])
                uplink = study.config.uplink.model_copy(update={"sharing": float(sharing), "common": False})
                study.config = study.config.model_copy(update={"uplink": uplink})
                for guarded in (True, False):
                    state = study.trained.state
                    try:
                        for state in study.erase("forget-svgd", guarded=guarded, rounds=20):
                            if state.round - study.trained.state.round in (4, 10, 20):
                                same = {"part": "forget-svgd" if guarded else "forget-svgd, unguarded",
                                        "budget": budget, "setting": f"sharing {sharing}", "seed": seed}  # fmt: skip
                                rows.append(same | study.row(state, study.trained.totals))
                    except DivergedError as error:
                        print(f"seed {seed}, sharing {sharing}, guarded {guarded}: {error}")
                print(rows[-1], flush=True)


def summary(rows: list[dict[str, object]]) -> None:
    """Means and standard deviations over seeds, as Markdown."""
    groups: dict[tuple[object, ...], list[dict[str, object]]] = {}
    for row in rows:
        groups.setdefault((row["part"], row["budget"], row["setting"], row["rounds"]), []).append(row)
    names = ("forgotten", "retained", "nll", "ece", "kl", "kl_between", "retrained_retained")
    print("| part | budget | setting | rounds | bits | " + " | ".join(names) + " |")
    print("|---" * (5 + len(names)) + "|")
    for key, some in groups.items():
        cells = []
        for name in names:
            values = [float(row[name]) for row in some if name in row]  # type: ignore[arg-type]
            spread = f" ± {stdev(values):.4f}" if len(values) > 1 else ""
            cells.append(f"{fmean(values):.4f}{spread}" if values else "")
        bits = fmean(int(row["bits"]) for row in some)  # type: ignore[call-overload]
        share = [int(row["bits"]) / int(row["retrained_bits"]) for row in some if "retrained_bits" in row]  # type: ignore[call-overload]
        cost = f"{bits:,.0f}" + (f" ({fmean(share):.1%})" if share else "")
        print("| " + " | ".join([*map(str, key), cost, *cells]) + " |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--part", choices=["take-back", "forget-svgd", "all"], default="all")
    arguments = parser.parse_args()
    found: list[dict[str, object]] = []
    if arguments.part != "forget-svgd":
        take_back(arguments.seeds, found)
    if arguments.part != "take-back":
        forget_svgd(arguments.seeds, found)
    with (Path(__file__).parent / f"numbers-{arguments.part}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows(found)
    summary(found)
