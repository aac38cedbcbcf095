"""`fedstein evaluate`: the metrics of a run's particles on its test set."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from fedstein.build import load_run
from fedstein.cli.output import JsonOption, console, print_json, print_metrics
from fedstein.cli.predict import read_inputs
from fedstein.errors import UserError
from fedstein.metrics import ood_auroc
from fedstein.problem import predict
from fedstein.runs import load_checkpoint
from fedstein.studies.judge import ELSEWHERE, under_shifts

__all__ = ["evaluate"]


class Split(StrEnum):
    """What a run can be evaluated on."""

    test = "test"
    validation = "validation"


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    ood: Annotated[Path | None, typer.Option(help="An .npy of inputs from elsewhere: adds their AUROC.")] = None,
    split: Annotated[
        Split | None, typer.Option(help="Which examples; those of the run's evaluation.split if left out.")
    ] = None,
    shifts: Annotated[
        bool,
        typer.Option(
            "--shifts", help="Grey images: also under noise, rotation and occlusion, and inputs from elsewhere."
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Evaluate a run's particles, on its test set unless the run or you say otherwise."""
    config, problem, particles = load_run(run, None if split is None else split.value)
    metrics = problem.evaluate(particles)
    if ood is not None:
        if problem.test is None or problem.raw_shape is None:
            raise UserError(f"The '--ood' needs a classifier; '{run}' is a problem with a known posterior.")
        inside = predict(problem.model, particles, problem.test.x)
        outside = predict(problem.model, particles, read_inputs(ood, problem))
        metrics["ood_auroc_epistemic"] = ood_auroc(inside.epistemic, outside.epistemic)
        metrics["ood_auroc_entropy"] = ood_auroc(inside.entropy, outside.entropy)
    moved = under_shifts(problem, particles) if shifts else {}
    where = {
        "run": str(run),
        "rounds": load_checkpoint(run)[0].round,
        "split": config.evaluation.split if split is None else split.value,
    }
    if json:
        more = {"shifts": moved} if shifts else {}
        print_json(where | dict.fromkeys(("accuracy", "ece", "ece_bins", "nll", "brier")) | metrics | more)
    else:
        print_metrics(metrics, f"{run}, after {where['rounds']} rounds, on the {where['split']} split")
        if shifts:
            _print_shifts(moved)


def _print_shifts(found: dict[str, dict[str, float]]) -> None:
    table = Table("inputs", "accuracy", "NLL", "ECE", "mean confidence", box=None)
    for name, scores in found.items():
        if name != ELSEWHERE:
            table.add_row(name, *(f"{scores[key]:.4f}" for key in ("accuracy", "nll", "ece", "confidence")))
    console.print(table)
    for name, auroc in found[ELSEWHERE].items():
        source, score = name.split("_")
        console.print(f"AUROC of {score} between test images and {source}: {auroc:.3f} (0.5 is chance)")
