"""`fedstein predict`: probabilities and uncertainty for a user's inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from torch import Tensor

from fedstein.build import load_run
from fedstein.cli.output import JsonOption, console, print_json
from fedstein.data import as_inputs
from fedstein.errors import UserError
from fedstein.problem import Problem
from fedstein.problem import predict as predict_mixture

__all__ = ["predict", "read_inputs"]


def predict(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    input: Annotated[Path, typer.Option(help="An .npy of inputs, one a row, scaled like the training data.")],
    output: Annotated[Path, typer.Option(help="The .npz to write.")],
    json: JsonOption = False,
) -> None:
    """Predict with uncertainty: probabilities, label, confidence, aleatoric, epistemic."""
    _, problem, particles = load_run(run)
    if problem.raw_shape is None:
        raise UserError(f"Cannot predict with '{run}': it is a problem with a known posterior, not a classifier.")
    found = predict_mixture(problem.model, particles, read_inputs(input, problem))
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
            f"{summary['inputs']} predictions in {output} ({', '.join(arrays)}); "
            f"mean confidence {summary['confidence']:.3f}"
        )


def read_inputs(path: Path, problem: Problem) -> Tensor:
    """Raw inputs from an .npy, made into what the model of `problem` takes."""
    assert problem.raw_shape is not None
    try:
        array = np.load(path, allow_pickle=False)
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub":
            raise TypeError("not one array of real numbers")
    except Exception as error:  # a hostile file can make numpy raise nearly anything
        raise UserError(f"Cannot read {path} as an .npy of numbers: {error}.") from error
    x = as_inputs(array, f"The array in {path}", problem.raw_shape)
    return x if problem.prepare is None else problem.prepare(x)
