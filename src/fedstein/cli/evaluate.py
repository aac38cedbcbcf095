"""`fedstein evaluate`: the metrics of a run's particles on its test set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedstein.build import build_problem
from fedstein.cli.output import JsonOption, print_json, print_metrics
from fedstein.cli.predict import read_inputs
from fedstein.errors import UserError
from fedstein.metrics import ood_auroc
from fedstein.problem import predict
from fedstein.runs import load_particles, load_run_config

__all__ = ["evaluate"]


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    ood: Annotated[Path | None, typer.Option(help="An .npy of inputs from elsewhere: adds their AUROC.")] = None,
    json: JsonOption = False,
) -> None:
    """Evaluate a run on its test set."""
    problem = build_problem(load_run_config(run))
    particles = load_particles(run)
    if particles.shape[1] != problem.model.dim:
        raise UserError(f"The particles of '{run}' do not fit its config.toml: {particles.shape[1]} parameters.")
    metrics = problem.evaluate(particles)
    if ood is not None:
        if problem.test is None:
            raise UserError(f"The '--ood' needs a classifier; '{run}' is a problem with a known posterior.")
        inside = predict(problem.model, particles, problem.test.x)
        outside = predict(problem.model, particles, read_inputs(ood, problem))
        metrics["ood_auroc_epistemic"] = ood_auroc(inside.epistemic, outside.epistemic)
        metrics["ood_auroc_entropy"] = ood_auroc(inside.entropy, outside.entropy)
    if json:
        print_json({"run": str(run)} | dict.fromkeys(("accuracy", "ece", "ece_bins", "nll", "brier")) | metrics)
    else:
        print_metrics(metrics, str(run))
