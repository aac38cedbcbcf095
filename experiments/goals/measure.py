"""One default configuration against every rival, at equal upload bits: the goals of fedstein's posterior.

    python experiments/goals/measure.py --tune     the rivals' settings, on validation data (tuning.jsonl)
    python experiments/goals/measure.py            the test set, once for each seed and budget (results.jsonl)
    python experiments/goals/measure.py --table    README.md's tables, from both files

Both files are gone on with where they were left. Fashion-MNIST, ten agents, 1,000 uploads of at most R_u bits each. In
all trainings 5,000 examples are held out from the agents: for temperature scaling, which needs them, and for tuning.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from scipy.stats import t as student
from torch import Tensor

from fedstein.errors import DivergedError
from fedstein.metrics import Prediction, accuracy, ece, fit_scaling, nll, scaled
from fedstein.posterior import Posterior, members
from fedstein.runs.evaluation import ELSEWHERE, under_shifts
from fedstein.runs.judge import predict
from fedstein.runs.problem import Problem
from fedstein.runs.training import Trained, fit
from fedstein.runs.verbs import prepare
from fedstein.settings import choose_config
from fedstein.store.lineage import Lineage

TUNING, RESULTS = (Path(__file__).with_name(name) for name in ("tuning.jsonl", "results.jsonl"))
UPLOADS = 1000
SPLITS = {"iid": [], "dirichlet 0.1": ["data.partition=dirichlet", "data.concentration=0.1"]}
BUDGETS = ("0.01d", "0.05d", "0.2d", "0.5d", "1.0d", "5.0d", "10.0d")
METRICS = ("accuracy", "nll", "ece")

PLAIN = ["method.step=gradient", "method.local_steps=20"]
FEDAVG = ["method.name=fedavg", *PLAIN]
CHAIN = "the chain of the default"
LETTERS = ["uplink.entries=fixed", "uplink.feedback=false", "uplink.common=false"]
EVERYBODY = ["schedule.agents_per_round=10"]

# What each rival may be tuned over; where agents are unlike, plain steps shrink for them as they do for the default.
# FedAvg with our coding is the chain of the default itself: one chain with flat factors does what FedAvg does, and the
# step that is best for its last iterate is the same (experiments/defaults).
TUNED = {
    "FedAvg, the letter's coding": [[*FEDAVG, *LETTERS, f"method.step_size={size}"] for size in (0.1, 0.2)],
    "FedAvg, all agents a round": [
        [*FEDAVG, *EVERYBODY, f"method.local_steps={steps}", f"method.step_size={size}"]
        for steps in (20, 40)
        for size in (0.2, 0.4)
    ],
    "ensemble of 5": [[*FEDAVG, "method.particles=5", f"method.step_size={size}"] for size in (0.2, 0.4)],
    "the letter's DSVGD, 5": [
        ["method.particles=5", "method.kernel=rbf", "method.local_steps=20", *LETTERS, *step]
        for step in (
            ["method.step=ema-adagrad", "method.step_size=0.001"],
            ["method.step=gradient", "method.step_size=1.0"],
        )
    ],
}
TUNED_AT = {"iid": "0.2d", "dirichlet 0.1": "1.0d"}

# Who is measured where: everybody, with few seeds, would take days.
SEEDS = {budget: range(10 if budget in ("0.2d", "1.0d") else 5) for budget in BUDGETS}
COSTLY = ("ensemble of 5", "the letter's DSVGD, 5")  # five times the work
COSTLY_SEEDS = {"0.2d": range(1), "1.0d": range(1)}

Line = dict[str, Any]


def train(split: str, overrides: Sequence[str], seed: int) -> tuple[Problem, Problem, Trained]:
    """One training; its problem as the test set judges it, and as validation data does."""
    rounds = UPLOADS // 10 if EVERYBODY[0] in overrides else UPLOADS
    given = [*SPLITS[split], *overrides, "data.validation=5000", "threads=1", f"seed={seed}", f"rounds={rounds}"]
    config = choose_config({}, given)[0]
    test, held_out = (
        prepare(choose_config({}, [*given, f"evaluation.split={name}"])[0], Lineage())
        for name in ("test", "validation")
    )
    run = fit(
        test.task, test.holdings, test.evaluate, config.method, rounds_to_do=rounds, schedule=config.schedule,
        seed=seed, evaluate_every=rounds, posterior=config.posterior, link=config.uplink.link(config.method, test.dim),
    )  # fmt: skip
    return test, held_out, run


def predictors(run: Trained, seed: int) -> dict[str, Tensor]:
    """What may predict after one training."""
    state = run.state
    return {
        kind: members(Posterior(kind), state.particles, state.turns, state.round, seed)
        for kind in ("window", "last", "mean")
    }


def score(prediction: Prediction, labels: Tensor, scale: float = 1.0) -> dict[str, float]:
    """Accuracy, NLL and ECE, with temperature scaling or without."""
    probabilities = prediction.probabilities if scale == 1.0 else scaled(prediction.probabilities, scale)
    values = (accuracy(probabilities, labels), nll(probabilities, labels), ece(probabilities, labels))
    return {name: round(value, 5) for name, value in zip(METRICS, values, strict=True)}


def on(problem: Problem, particles: Tensor) -> tuple[Prediction, Tensor]:
    """The prediction for what a problem is judged on, and the labels."""
    judged = problem.judge.test
    assert judged is not None
    return predict(problem.task.model, particles, judged.x), judged.y


def tune(split: str, name: str, number: int) -> Line:
    """One setting of a rival, on validation data."""
    overrides = [*TUNED[name][number], f"uplink.budget={TUNED_AT[split]}"]
    line: Line = {"split": split, "name": name, "setting": number}
    try:
        _, held_out, run = train(split, overrides, 0)
    except DivergedError as error:
        return line | {"diverged": str(error)}
    return line | {kind: score(*on(held_out, made)) for kind, made in predictors(run, 0).items()}


def chosen(split: str, name: str) -> list[str]:
    """A rival's best setting by the NLL of its last particles on validation data."""
    lines = [line for line in read(TUNING) if (line["split"], line["name"]) == (split, name) and "last" in line]
    return TUNED[name][min(lines, key=lambda line: line["last"]["nll"])["setting"]]


def measure(split: str, budget: str, seed: int, name: str) -> Line:
    """One training, judged on the test set."""
    overrides = [] if name == CHAIN else chosen(split, name)
    line: Line = {"split": split, "budget": budget, "seed": seed, "name": name}
    began = time.process_time()
    try:
        test, held_out, run = train(split, [*overrides, f"uplink.budget={budget}"], seed)
    except DivergedError as error:
        return line | {"diverged": str(error)}
    line["bits"] = run.state.totals.upload_bits
    for kind, made in predictors(run, seed).items():
        prediction, labels = on(test, made)
        line[kind] = score(prediction, labels)
        seen, known = on(held_out, made)
        line[f"{kind}, validation"] = score(seen, known)
        scale = fit_scaling(seen.probabilities, known)
        line[f"{kind}, scaled"] = score(prediction, labels, scale)
        if name == CHAIN and seed < 2:
            line[f"{kind}, shifted"] = moved(test, made, 1.0)
            line[f"{kind}, scaled, shifted"] = moved(test, made, scale)
    return line | {"cpu_seconds": round(time.process_time() - began, 1)}


def moved(problem: Problem, particles: Tensor, scale: float) -> dict[str, float]:
    """Means over all shifts of the inputs, and how well entropy tells handwritten digits."""
    scores = under_shifts(problem, particles, scale)
    shifts = [one for name, one in scores.items() if name not in (ELSEWHERE, "clean")]
    means = {name: round(fmean(one[name] for one in shifts), 5) for name in METRICS}
    return means | {name: round(value, 4) for name, value in scores[ELSEWHERE].items()}


def jobs() -> Iterator[tuple[str, str, int, str]]:
    """Split, budget, seed and name: what says most comes first."""
    for seed in range(10):
        for split in SPLITS:
            for budget in ("0.2d", "1.0d", "0.05d", "5.0d", "0.5d", "0.01d", "10.0d"):
                if seed not in SEEDS[budget]:
                    continue
                for name in (CHAIN, *TUNED):
                    if name not in COSTLY or seed in COSTLY_SEEDS.get(budget, ()):
                        yield split, budget, seed, name


def read(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def add(path: Path, line: Line) -> None:
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
    print(line, flush=True)


OURS = ("default", CHAIN, "window")
RIVALS = (
    ("FedAvg, our coding", CHAIN, "last"),
    ("FedAvg, our coding, temperature scaling", CHAIN, "last, scaled"),
    ("FedAvg, our coding, averaged, temperature scaling", CHAIN, "mean, scaled"),
    *((name, name, "last") for name in TUNED),
)
"""The words, the training, and what predicts after it."""


def table() -> None:
    """Means over seeds, and the verdicts on paired differences."""
    lines = read(RESULTS)
    by_seed: dict[tuple[str, str, str, str], dict[int, Line]] = {}
    for line in lines:
        for what in ("window", "last", "last, scaled", "mean, scaled"):
            if what in line:
                key = (line["split"], line["budget"], line["name"], what)
                by_seed.setdefault(key, {})[line["seed"]] = line[what]
    for split in SPLITS:
        print(f"### {split}\n")
        print("| R_u | " + " | ".join(("default (window)", *(words for words, _, _ in RIVALS))) + " |")
        print("|---|" + "---|" * (1 + len(RIVALS)))
        for budget in BUDGETS:
            cells = [by_seed.get((split, budget, name, what), {}) for _, name, what in (OURS, *RIVALS)]
            if cells[0]:
                print(f"| {budget} | " + " | ".join(map(_means, cells)) + " |")
        print("\n| R_u | default against | accuracy | NLL | ECE |\n|---|---|---|---|---|")
        for budget in BUDGETS:
            ours = by_seed.get((split, budget, *OURS[1:]), {})
            for words, name, what in RIVALS:
                theirs = by_seed.get((split, budget, name, what), {})
                if shared := sorted(ours.keys() & theirs.keys()):
                    pairs = [(ours[seed], theirs[seed]) for seed in shared]
                    print(f"| {budget} | {words} | " + " | ".join(_verdict(pairs, key) for key in METRICS) + " |")
        print()
    _print_shifts(lines)


def _means(by_seed: dict[int, Line]) -> str:
    if not by_seed:
        return ""
    means = " / ".join(f"{fmean(one[key] for one in by_seed.values()):.3f}" for key in METRICS)
    return f"{means} ({len(by_seed)})"


def _verdict(pairs: list[tuple[Line, Line]], key: str) -> str:
    """Ahead or behind where the 95 % interval of the mean of paired differences leaves zero out; else level."""
    differences = [ours[key] - theirs[key] for ours, theirs in pairs]
    mean = fmean(differences)
    if len(pairs) == 1:
        return f"{mean:+.4f}, one seed"
    half = float(student.ppf(0.975, len(pairs) - 1)) * stdev(differences) / len(pairs) ** 0.5
    better = mean > 0 if key == "accuracy" else mean < 0
    word = "level" if abs(mean) <= half else "**ahead**" if better else "*behind*"
    return f"{word} {mean:+.4f} ± {half:.4f}"


def _print_shifts(lines: list[Line]) -> None:
    """The means over shifted inputs, and AUROC of entropy for handwritten digits."""
    kinds = {"default (window)": "window, shifted", "FedAvg": "last, shifted",
             "FedAvg, temperature scaling": "last, scaled, shifted",
             "FedAvg, averaged, temperature scaling": "mean, scaled, shifted"}  # fmt: skip
    print("### Shifted inputs, and inputs from elsewhere\n")
    print("| split | R_u | seeds | " + " | ".join(kinds) + " |\n|---|---|---|" + "---|" * len(kinds))
    for split in SPLITS:
        for budget in BUDGETS:
            here = [one for one in lines if (one["split"], one["budget"]) == (split, budget) and "last, shifted" in one]
            if here:
                cells = [
                    " / ".join(f"{fmean(one[kind][key] for one in here):.3f}" for key in (*METRICS, "digits_entropy"))
                    for kind in kinds.values()
                ]
                print(f"| {split} | {budget} | {len(here)} | " + " | ".join(cells) + " |")


def main() -> None:
    torch.set_num_threads(1)
    if "--table" in sys.argv:
        table()
        return
    known = {(line["split"], line["name"], line["setting"]) for line in read(TUNING)}
    for split in SPLITS:
        for name, settings in TUNED.items():
            for number in range(len(settings)):
                if (split, name, number) not in known:
                    add(TUNING, tune(split, name, number))
    if "--tune" in sys.argv:
        return
    done = {(line["split"], line["budget"], line["seed"], line["name"]) for line in read(RESULTS)}
    for job in jobs():
        if job not in done:
            add(RESULTS, measure(*job))


if __name__ == "__main__":
    main()
