"""`fedstein evaluate` and `fedstein predict`: what a run has learnt, on its test set and on a user's inputs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from fedstein.cli.output import JsonOption, print_json, print_metrics, ready, say, show

__all__ = ["evaluate", "predict"]


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
    from fedstein import api

    ready()
    opened = api.open(run, careful=False)
    inputs = None if ood is None else _read_inputs(ood)
    asked = None if split is None else split.value
    metrics = opened.evaluate(asked, shifts=shifts, ood=inputs, ood_name=f"The array in {ood}")
    moved = metrics.pop("shifts", {})
    where = {"run": str(run), "rounds": opened.rounds, "split": asked or opened.config.evaluation.split}
    if json:
        more = {"shifts": moved} if shifts else {}
        print_json(where | dict.fromkeys(("accuracy", "ece", "ece_bins", "nll", "brier")) | metrics | more)
    else:
        print_metrics(metrics, f"{run}, after {where['rounds']} rounds, on the {where['split']} split")
        if shifts:
            _print_shifts(moved)


def _print_shifts(moved: dict[str, dict[str, float]]) -> None:
    from rich.table import Table

    from fedstein.runs.evaluation import ELSEWHERE

    table = Table("inputs", "accuracy", "NLL", "ECE", "mean confidence", box=None)
    for name, scores in moved.items():
        if name != ELSEWHERE:
            table.add_row(name, *(f"{scores[key]:.4f}" for key in ("accuracy", "nll", "ece", "confidence")))
    show(table)
    for name, auroc in moved[ELSEWHERE].items():
        source, score = name.split("_")
        say(f"AUROC of {score} between test images and {source}: {auroc:.3f} (0.5 is chance)")


_ARRAYS = ("probabilities", "label", "confidence", "mean", "std", "aleatoric", "epistemic")


def predict(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    input: Annotated[
        Path,
        typer.Option(help="An .npy of inputs, scaled like the training data; or a table with the run's columns."),
    ],
    output: Annotated[Path, typer.Option(help="The .npz to write.")],
    json: JsonOption = False,
) -> None:
    """Predict with uncertainty: probabilities, label, confidence; or mean, std and 90 % interval of numbers."""
    import numpy as np

    from fedstein import api
    from fedstein.data.sources.table import schema_of
    from fedstein.data.tables import TABLES, read_table
    from fedstein.errors import UserError

    ready()
    opened = api.open(run, careful=False)
    schema = schema_of(opened.config.data) if input.suffix.lower() in TABLES else None
    given = _read_inputs(input) if schema is None else schema.inputs(read_table(input)).numpy()
    prediction = opened.predict(given, f"The inputs in {input}")
    arrays = {name: getattr(prediction, name) for name in _ARRAYS if hasattr(prediction, name)}
    if hasattr(prediction, "interval"):
        arrays["low_90"], arrays["high_90"] = prediction.interval(0.9)
    try:
        with output.open("wb") as file:
            np.savez(file, allow_pickle=False, **{name: value.numpy() for name, value in arrays.items()})
    except OSError as error:
        raise UserError(f"Cannot write '--output' {output}: {error.strerror}.") from error
    summary: dict[str, Any] = {
        "output": str(output),
        "inputs": len(prediction),
        **{
            name: float(arrays[name].mean())
            for name in ("confidence", "std", "aleatoric", "epistemic")
            if name in arrays
        },
    }
    if json:
        print_json(summary)
    else:
        told = next(name for name in ("confidence", "std", "epistemic") if name in summary)
        say(f"{summary['inputs']} predictions in {output} ({', '.join(arrays)}); mean {told} {summary[told]:.3f}")


def _read_inputs(path: Path) -> Any:
    """The one array of numbers in an .npy."""
    import numpy as np

    from fedstein.errors import UserError

    try:
        array = np.load(path, allow_pickle=False)
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub":
            raise TypeError("not one array of real numbers")
    except Exception as error:  # a hostile file can make numpy raise nearly anything
        if "pickle" in str(error):  # numpy would have it unpickled, which runs whatever the file says
            raise UserError(
                f"Cannot read {path} as an .npy of numbers: it is none, or has objects in it, which are never loaded. "
                "Save numbers: np.save(file, np.array(x, dtype=np.float32))."
            ) from error
        raise UserError(f"Cannot read {path} as an .npy of numbers: {error}.") from error
    return array
