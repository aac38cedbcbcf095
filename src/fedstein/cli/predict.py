"""`fedstein predict`: probabilities and uncertainty for a user's inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from torch import Tensor

from fedstein.build import build_problem
from fedstein.cli.output import JsonOption, console, print_json
from fedstein.errors import UserError
from fedstein.problem import Problem
from fedstein.problem import predict as predict_mixture
from fedstein.runs import load_particles, load_run_config

__all__ = ["predict", "read_inputs"]


def predict(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    input: Annotated[Path, typer.Option(help="An .npy of inputs, one a row, scaled like the training data.")],
    output: Annotated[Path, typer.Option(help="The .npz to write.")],
    json: JsonOption = False,
) -> None:
    """Predict with uncertainty: probabilities, label, confidence, aleatoric, epistemic."""
    problem = build_problem(load_run_config(run))
    if problem.test is None:
        raise UserError(f"Cannot predict with '{run}': it is a problem with a known posterior, not a classifier.")
    found = predict_mixture(problem.model, load_particles(run), read_inputs(input, problem))
    arrays = {
        "probabilities": found.probabilities,
        "label": found.label,
        "confidence": found.confidence,
        "aleatoric": found.aleatoric,
        "epistemic": found.epistemic,
    }
    try:
        with output.open("wb") as file:
            np.savez(file, allow_pickle=False, **{name: value.numpy() for name, value in arrays.items()})
    except OSError as error:
        raise UserError(f"Cannot write '--output' {output}: {error.strerror}.") from error
    summary = {
        "output": str(output),
        "inputs": len(found.probabilities),
        "confidence": float(found.confidence.mean()),
        "aleatoric": float(found.aleatoric.mean()),
        "epistemic": float(found.epistemic.mean()),
    }
    if json:
        print_json(summary)
    else:
        console.print(
            f"{summary['inputs']} predictions in [bold]{output}[/] ({', '.join(arrays)}); "
            f"mean confidence {summary['confidence']:.3f}"
        )


def read_inputs(path: Path, problem: Problem) -> Tensor:
    """Inputs from an .npy, as the model of `problem` takes them."""
    assert problem.test is not None
    try:
        array = np.load(path, allow_pickle=False)
        x = torch.from_numpy(np.asarray(array, dtype=np.float32))
    except (OSError, EOFError, ValueError, TypeError) as error:
        raise UserError(f"Cannot read {path} as an .npy of numbers: {error}.") from error
    shape = problem.test.x.shape[1:]
    if x.dim() < 2 or len(x) == 0 or x[0].numel() != shape.numel():
        raise UserError(
            f"The inputs in {path} must be (n, ...) with {shape.numel()} numbers a row. Got {tuple(x.shape)}."
        )
    if not torch.isfinite(x).all():
        raise UserError(f"The inputs in {path} have NaN or infinity. Clean or impute them first.")
    return x.reshape(len(x), *shape)
