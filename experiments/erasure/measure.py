"""Erasure over seeds, on the test set: `python experiments/erasure/measure.py PART`.

Prints a table and writes all numbers to numbers-PART.csv beside this file. The settings are those of the preset
`unlearning`; README.md tells how they were chosen.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from torch import Tensor

from fedstein.engines import Local
from fedstein.errors import DivergedError, FedsteinError
from fedstein.metrics import kl
from fedstein.protocol.state import State
from fedstein.runs.forget.plan import plan_erasure
from fedstein.runs.forget.rounds import erasure_rounds, first_state
from fedstein.runs.judge import predict
from fedstein.runs.problem import Problem, build_problem
from fedstein.runs.training import Trained
from fedstein.runs.verbs import fit_config
from fedstein.settings import Config, load_preset, make_config
from fedstein.store import Forgetting, Lineage

LEAVING = (2, 3)
FIELDS = ("part", "budget", "setting", "seed", "rounds", "bits", "forgotten", "retained", "nll", "ece", "kl",
          "kl_between", "retrained_forgotten", "retrained_retained", "retrained_bits")  # fmt: skip


class Study:
    """One seed: the trained model, and two retrained without the agents, all on the same data and features."""

    def __init__(self, config: Config) -> None:
        self.config = config
        problem = build_problem(self.config)
        self.trained = fit_config(self.config, problem=problem)
        self.retrain = plan_erasure(self.config, Lineage(), problem, self.trained.state, LEAVING, "retrain")
        self.problem = replace(problem, holdings=replace(problem.holdings, erased=LEAVING))
        self.whole = problem
        self.retrained = fit_config(*self.retrain, problem=self.problem)
        self.reference = self.predict(self.retrained.particles)

    def other(self, seed: int) -> Trained:
        """Retrained with another seed, on the same data."""
        config, lineage = self.retrain
        return fit_config(config.model_copy(update={"seed": seed}), lineage, problem=self.problem)

    def predict(self, particles: Tensor) -> Tensor:
        test = self.problem.judge.test
        assert test is not None
        return predict(self.problem.task.model, particles, test.x).probabilities

    def distance(self, particles: Tensor) -> float:
        """Mean KL(retrained || these) on the test set."""
        return float(kl(self.reference, self.predict(particles)).mean())

    def erase(self, method: Forgetting, **options: Any) -> Iterator[State]:
        """The states of an erasure, its first one included."""
        planned = plan_erasure(self.config, Lineage(), self.whole, self.trained.state, LEAVING, method, **options)
        return states(self.problem, *planned, self.trained.state)

    def against(self, seed: int) -> dict[str, object]:
        """What retraining reaches, and how far apart two retrained models are."""
        theirs = self.problem.evaluate(self.retrained.particles)
        return {
            "kl_between": self.distance(self.other(seed).particles),
            "retrained_forgotten": theirs["forgotten_label_accuracy"],
            "retrained_retained": theirs["retained_label_accuracy"],
            "retrained_bits": self.retrained.totals.upload_bits,
        }

    def row(self, state: State) -> dict[str, object]:
        metrics = self.problem.evaluate(state.particles)
        return {
            "rounds": state.round - self.trained.state.round,
            "bits": state.totals.upload_bits - self.trained.totals.upload_bits,
            "forgotten": metrics["forgotten_label_accuracy"],
            "retained": metrics["retained_label_accuracy"],
            "nll": metrics["nll"],
            "ece": metrics["ece"],
            "kl": self.distance(state.particles),
        }


def states(problem: Problem, config: Config, lineage: Lineage, before: State) -> Iterator[State]:
    """An erasure, state by state; the first one is that before its first round."""
    state = first_state(before, problem, config.method, lineage)
    yield state
    engine = Local(problem.task, problem.holdings)
    for now, _ in islice(erasure_rounds(problem, config, lineage, state, engine), config.rounds - state.round):
        yield now


def letter(seed: int, budget: str) -> Config:
    """The letter's setting."""
    return load_preset("unlearning", [f"seed={seed}", f"uplink.budget={budget}", "evaluation.every=1000000"])


def take_back(seeds: int, rows: list[dict[str, object]]) -> None:
    """Take-back and repair against retraining."""
    ways: dict[str, dict[str, Any]] = {
        "hand over, by server": {"by": "server"},
        "hand over, by agent": {"by": "agent"},
        "subtract, by server": {"by": "server", "handover": False},
    }
    for budget in ("1.0d", "0.5d"):
        for seed in range(seeds):
            study = Study(letter(seed, budget))
            reference = study.against(1000 + seed)
            same = {"part": "take-back", "budget": budget, "seed": seed}
            rows.append(same | {"setting": "before"} | study.row(study.trained.state) | reference)
            for name, options in ways.items():
                *_, last = study.erase("take-back", **options)
                rows.append(same | {"setting": name} | study.row(last) | reference)
                print(rows[-1], flush=True)


def forget_svgd(seeds: int, rows: list[dict[str, object]]) -> None:
    """The trade-off in `sharing`, guarded; as the letter writes it, it is in experiments/fig4."""
    for budget in ("1.0d", "0.5d"):
        for seed in range(seeds):
            study = Study(letter(seed, budget))
            for sharing in (1.0, 0.5, 0.25, 0.1):
                uplink = study.config.uplink.model_copy(update={"sharing": sharing, "common": False})
                study.config = study.config.model_copy(update={"uplink": uplink})
                same = {"part": "forget-svgd", "budget": budget, "setting": f"sharing {sharing:g}", "seed": seed}
                try:
                    for state in study.erase("forget-svgd", rounds=40):
                        if state.round - study.trained.state.round in (4, 10, 20, 40):
                            rows.append(same | study.row(state))
                except FedsteinError as error:
                    print(f"{same}: {error}", flush=True)
                print(rows[-1], flush=True)


def whole_network(seeds: int, rows: list[dict[str, object]]) -> None:
    """A small network as a whole (digits, 64-32-10, ten particles, no budget), where nothing is convex."""
    digits = ["data.name=digits", "data.partition=class-pairs", "data.agents=10", "model.hidden=[32]", "rounds=600",
              "method.factor=linear", "method.particles=10", "method.likelihood=mean", "method.temperature=0.1",
              "method.stiffness=10", "recording.escrow=true", "evaluation.every=1000000",
              "posterior.from=last"]  # fmt: skip
    for seed in range(seeds):
        study = Study(make_config(overrides=[*digits, f"seed={seed}"]))
        reference = study.against(1000 + seed)
        same = {"part": "whole network", "budget": "none", "seed": seed}
        rows.append(same | {"setting": "before"} | study.row(study.trained.state) | reference)
        for name, handover in {"hand over": True, "subtract": False}.items():
            *_, last = study.erase("take-back", handover=handover)
            rows.append(same | {"setting": name} | study.row(last) | reference)
        *_, last = study.erase("forget-svgd")
        rows.append(same | {"setting": "forget-svgd, guarded"} | study.row(last) | reference)


def mixture() -> None:
    """Forget-SVGD in one dimension, where the posterior without the agent is known: total variation to it."""
    overrides = ["data.name=synthetic-mixture", "method.factor=kde", "method.particles=50", "method.local_steps=200",
                 "rounds=20", "evaluation.every=1000", "posterior.from=last"]  # fmt: skip
    config = make_config(overrides=overrides)
    problem = build_problem(config)
    state = fit_config(config, problem=problem).state
    print("| agent | guarded | before | after 1 | 2 | 3 | 5 | 10 | 20 | 40 rounds |")
    print("|---" * 10 + "|")
    for agent, guarded in product((0, 1), (True, False)):
        planned = plan_erasure(config, Lineage(), problem, state, [agent], "forget-svgd", rounds=40, guarded=guarded)
        without = build_problem(*planned)
        distances = []
        try:
            for now in states(without, *planned, state):
                if now.round - state.round in (0, 1, 2, 3, 5, 10, 20, 40):
                    distances.append(without.evaluate(now.particles)["total_variation"])
        except DivergedError:
            distances.append(float("nan"))
        print(f"| {agent} | {'yes' if guarded else 'no'} | " + " | ".join(f"{tv:.3f}" for tv in distances) + " |")


def summary(rows: list[dict[str, str]]) -> None:
    """Means and standard deviations over seeds, as Markdown."""
    print("| R_u | | rounds | bits | forgotten labels | retained labels | KL to the retrained model |")
    print("|---" * 7 + "|")
    for budget in dict.fromkeys(row["budget"] for row in rows):
        here = [row for row in rows if row["budget"] == budget]
        for setting, part, rounds in dict.fromkeys((row["setting"], row["part"], row["rounds"]) for row in here):
            some = [row for row in here if (row["setting"], row["part"], row["rounds"]) == (setting, part, rounds)]
            bits = f"{fmean(int(row['bits']) for row in some):,.0f}"
            if some[0]["retrained_bits"]:
                bits = f"{fmean(int(row['bits']) / int(row['retrained_bits']) for row in some):.1%} of retraining's"
            name = setting if not part.startswith("forget") else f"{part}, {setting}"
            cells = [spread(some, "forgotten", 3), spread(some, "retained", 3), spread(some, "kl", 5)]
            print(f"| {budget} | {name} | {rounds} | {bits} | " + " | ".join(cells) + " |")
        if here[0]["retrained_bits"]:
            once = [row for row in here if row["setting"] == "before"]
            cells = [spread(once, "retrained_forgotten", 3), spread(once, "retrained_retained", 3)]
            between = spread(once, "kl_between", 5)
            print(f"| {budget} | retrained | all | 100 % | " + " | ".join(cells) + f" | {between}, between two seeds |")
    print()
    for budget, setting in dict.fromkeys((row["budget"], row["setting"]) for row in rows if row["retrained_bits"]):
        some = [row for row in rows if (row["budget"], row["setting"]) == (budget, setting)]
        gap = max(abs(float(row["retained"]) - float(row["retrained_retained"])) for row in some)
        ratio = max(float(row["kl"]) / float(row["kl_between"]) for row in some)
        print(
            f"{budget}, {setting}: at most {gap:.4f} off in retained labels, and {ratio:.2f} times the KL of two seeds"
        )


def spread(rows: list[dict[str, str]], name: str, digits: int) -> str:
    values = [float(row[name]) for row in rows]
    return f"{fmean(values):.{digits}f} ± {stdev(values):.{digits}f}"


PARTS = {"take-back": take_back, "forget-svgd": forget_svgd, "whole-network": whole_network}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=[*PARTS, "mixture"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--table", action="store_true", help="print the table of the numbers that are there")
    arguments = parser.parse_args()
    if arguments.part == "mixture":
        mixture()
    else:
        numbers = Path(__file__).parent / f"numbers-{arguments.part}.csv"
        if not arguments.table:
            measured: list[dict[str, object]] = []
            PARTS[arguments.part](arguments.seeds, measured)
            with numbers.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, FIELDS)
                writer.writeheader()
                writer.writerows(measured)
        with numbers.open(encoding="utf-8") as file:
            summary(list(csv.DictReader(file)))
