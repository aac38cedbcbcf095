"""The search behind the settings that fedstein chooses (src/fedstein/settings/choosing.py).

    python experiments/defaults/search.py            every case; goes on where it was stopped
    python experiments/defaults/search.py --table    the tables of README.md, from results.jsonl

Every number is of validation data; the test sets are not looked at. One line of results.jsonl is one training: the
accuracy, ECE and NLL of the window (the default posterior) and of the last particles.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch

from fedstein.errors import DivergedError
from fedstein.posterior import Posterior, members
from fedstein.runs.training import fit
from fedstein.runs.verbs import prepare
from fedstein.settings import make_config
from fedstein.store.lineage import Lineage

RESULTS = Path(__file__).with_name("results.jsonl")
ROUNDS = 500

FMNIST = ["data.validation=5000"]
DIGITS = ["data.name=digits", "data.validation=300", "model.hidden=[50]"]
UNLIKE = ["data.partition=dirichlet", "data.concentration=0.1"]
CASES: dict[str, tuple[list[str], tuple[str, ...]]] = {
    "fashion-mnist, iid": (FMNIST, ("0.05d", "0.2d", "1.0d", "5.0d")),
    "fashion-mnist, dirichlet 0.1": ([*FMNIST, *UNLIKE], ("0.2d", "1.0d", "5.0d")),
    "fashion-mnist, dirichlet 0.3": ([*FMNIST, UNLIKE[0], "data.concentration=0.3"], ("1.0d",)),
    "fashion-mnist, class pairs": ([*FMNIST, "data.partition=class-pairs"], ("1.0d",)),
    "fashion-mnist, iid, no hidden layer": ([*FMNIST, "model.hidden=[]"], ("1.0d",)),
    "fashion-mnist, dirichlet 0.1, no hidden layer": ([*FMNIST, *UNLIKE, "model.hidden=[]"], ("1.0d",)),
    "fashion-mnist, iid, two hidden layers": ([*FMNIST, "model.hidden=[200, 100]"], ("0.2d",)),
    "fashion-mnist, iid, 1,000 rounds": (FMNIST, ("0.2d", "1.0d")),
    "fashion-mnist, dirichlet 0.1, 1,000 rounds": ([*FMNIST, *UNLIKE], ("0.2d", "1.0d")),
    "digits, iid": (DIGITS, ("0.2d", "1.0d")),
    "digits, dirichlet 0.1": ([*DIGITS, *UNLIKE], ("1.0d",)),
}

LETTER = ["method.particles=5", "method.local_steps=10"]
ONE = ["method.particles=1", "method.kernel=none", "method.step=gradient", "method.local_steps=10"]
CODING = ["uplink.entries=adaptive", "uplink.feedback=true"]
CANDIDATES: dict[str, list[str]] = {
    "0.1, the letter's: 5 particles, rbf, AdaGrad": LETTER,
    **{f"one chain, step {size}": [*ONE, *CODING, f"method.step_size={size}"] for size in (0.05, 0.1, 0.2, 0.4)},
    **{
        f"one chain, step {size}, 20 local steps": [*ONE, *CODING, "method.local_steps=20", f"method.step_size={size}"]
        for size in (0.05, 0.1, 0.2, 0.4)
    },
    **{
        f"one chain, step {size}, 40 local steps": [*ONE, *CODING, "method.local_steps=40", f"method.step_size={size}"]
        for size in (0.05, 0.1, 0.2)
    },
    "one chain, step 0.2, 5 local steps": [*ONE, *CODING, "method.local_steps=5", "method.step_size=0.2"],
    "one chain, step 0.2, no feedback": [*ONE, "uplink.entries=adaptive", "method.step_size=0.2"],
    "one chain, step 0.2, plain entries": [*ONE, "uplink.feedback=true", "method.step_size=0.2"],
    **{f"one chain, Adam {size}": [*ONE, *CODING, "method.step=adam", f"method.step_size={size}"]
       for size in (3e-4, 1e-3)},
    "one chain, AdaGrad 0.001": [*ONE, *CODING, "method.step=ema-adagrad", "method.step_size=1e-3"],
    "5 particles, no kernel, step 0.2": [*ONE, *CODING, "method.particles=5", "uplink.common=true",
                                         "method.step_size=0.2"],
    "5 particles, no kernel, step 0.1": [*ONE, *CODING, "method.particles=5", "uplink.common=true",
                                         "method.step_size=0.1"],
    **{f"one chain, linear factors, step {size}": [*ONE, "uplink.entries=adaptive", "method.factor=linear",
                                                   f"method.step_size={size}"] for size in (0.1, 0.2)},
}  # fmt: skip
SHRINKING = [f"one chain, step {size}, 20 local steps, shrinking" for size in (0.05, 0.1, 0.2)]
CANDIDATES |= {
    name: [*CANDIDATES[name.removesuffix(", shrinking")], f"method.anneal_over={ROUNDS}"] for name in SHRINKING
}

EVERYWHERE = [
    *(f"one chain, step {size}, 20 local steps" for size in (0.05, 0.1, 0.2)),
    "one chain, step 0.1",
    "0.1, the letter's: 5 particles, rbf, AdaGrad",
]
# All candidates where agents are alike and the link is thin, and where they are unlike; elsewhere those that matter.
ALL = {("fashion-mnist, iid", "0.05d"), ("fashion-mnist, iid", "0.2d"), ("fashion-mnist, dirichlet 0.1", "1.0d")}


def jobs() -> Iterator[tuple[str, str, str]]:
    """Case, budget, candidate."""
    cases = [(case, budget) for case, (_, budgets) in CASES.items() for budget in budgets]
    for case, budget in sorted(cases, key=lambda one: one not in ALL):
        if "1,000" in case:
            candidates = [f"one chain, step {size}, {steps} local steps" for steps in (20, 40) for size in (0.1, 0.2)]
            candidates += SHRINKING
        else:
            candidates = list(CANDIDATES) if (case, budget) in ALL else [*EVERYWHERE, *SHRINKING]
        for candidate in candidates:
            yield case, budget, candidate


def run(job: tuple[str, str, str]) -> dict[str, Any]:
    """One training."""
    case, budget, candidate = job
    rounds = 2 * ROUNDS if "1,000" in case else ROUNDS
    candidates = [line.replace(f"anneal_over={ROUNDS}", f"anneal_over={rounds}") for line in CANDIDATES[candidate]]
    config = make_config(
        overrides=[
            *CASES[case][0], *candidates, f"uplink.budget={budget}", "threads=1",
            "evaluation.split=validation", f"rounds={rounds}",
        ]
    )  # fmt: skip
    problem = prepare(config, Lineage())
    began = time.process_time()
    line: dict[str, Any] = {"case": case, "budget": budget, "candidate": candidate, "rounds": rounds}
    try:
        trained = fit(
            problem.task, problem.holdings, problem.evaluate, config.method, rounds_to_do=rounds,
            schedule=config.schedule, seed=config.seed, evaluate_every=rounds, posterior=config.posterior,
            link=config.uplink.link(config.method, problem.dim),
        )  # fmt: skip
    except DivergedError as error:
        return line | {"diverged": str(error)}
    kinds = {kind: Posterior(kind, scale=1.0) for kind in ("window", "last", "mean", "gaussian")}
    for name, kind in (kinds | {"doubled": Posterior("window"), "gaussian, doubled": Posterior("gaussian")}).items():
        state = trained.state
        metrics = problem.evaluate(members(kind, state.particles, state.turns, state.round, config.seed))
        line[name] = {key: round(metrics[key], 4) for key in ("accuracy", "ece", "nll")}
    return line | {"cpu_seconds": round(time.process_time() - began, 1)}


def table() -> None:
    """Accuracy / NLL of every candidate in every case."""
    lines = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    found = {(line["case"], line["budget"], line["candidate"]): line for line in lines}
    print(f"Accuracy / ECE / NLL, {ROUNDS} rounds where nothing else is said.\n")
    for case, (_, budgets) in CASES.items():
        for budget in budgets:
            print(f"### {case}, R_u = {budget}\n\n| candidate | window | doubled | last |\n|---|---|---|---|")
            for candidate in CANDIDATES:
                line = found.get((case, budget, candidate))
                if line is None:
                    continue
                cells = [_cell(line.get(key)) for key in ("window", "doubled", "last")]
                print(
                    f"| {candidate} | {' | '.join(cells)} |"
                    if "diverged" not in line
                    else f"| {candidate} | diverged |"
                )
            print()


def _cell(metrics: dict[str, float] | None) -> str:
    return "" if metrics is None else f"{metrics['accuracy']:.3f} / {metrics['ece']:.3f} / {metrics['nll']:.3f}"


def main() -> None:
    if "--table" in sys.argv:
        table()
        return
    done = set()
    if RESULTS.is_file():
        lines = [json.loads(line) for line in RESULTS.read_text().splitlines()]
        done = {(line["case"], line["budget"], line["candidate"]) for line in lines}
    todo = [job for job in jobs() if job not in done]
    with ProcessPoolExecutor(1, initializer=torch.set_num_threads, initargs=(1,)) as pool, RESULTS.open("a") as file:
        for number, line in enumerate(pool.map(run, todo), 1):
            file.write(json.dumps(line) + "\n")
            file.flush()
            print(f"{number} of {len(todo)}: {line}", flush=True)


if __name__ == "__main__":
    main()
