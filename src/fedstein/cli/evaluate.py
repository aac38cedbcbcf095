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
    ood: Annotated[
        Path | None,
        typer.Option(help="Inputs from elsewhere, as for 'predict': adds their AUROC."),
    ] = None,
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
    asked = None if split is None else split.value
    metrics = opened.evaluate(asked, shifts=shifts, ood=ood, ood_name=f"The array in {ood}")
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


_SHOWN = 20  # classes that are told to people
_MEANS = ("confidence", "std", "aleatoric", "epistemic")
_ARRAYS = ("probabilities", "label", "confidence", "mean", "std", "aleatoric", "epistemic")


def predict(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    input: Annotated[
        list[Path],
        typer.Option(
            help="An .npy of inputs, scaled like the training data; a table with the run's columns; or, for a run of "
            "images, a folder of them or one (repeat for more)."
        ),
    ],
    output: Annotated[Path, typer.Option(help="The .npz to write.")],
    json: JsonOption = False,
) -> None:
    """Predict with uncertainty: probabilities, label, confidence; or mean, std and 90 % interval of numbers."""
    import numpy as np

    from fedstein import api
    from fedstein.data import class_names
    from fedstein.errors import UserError
    from fedstein.runs.inputs import files_of_images

    ready()
    opened = api.open(run, careful=False)
    files = files_of_images(input)
    prediction = opened.predict(files or input, f"The inputs in {input[0]}")
    arrays = {name: getattr(prediction, name).numpy() for name in _ARRAYS if hasattr(prediction, name)}
    if hasattr(prediction, "interval"):
        arrays["low_90"], arrays["high_90"] = (end.numpy() for end in prediction.interval(0.9))
    summary: dict[str, Any] = {"output": str(output), "inputs": len(prediction)}
    summary |= {name: float(arrays[name].mean()) for name in _MEANS if name in arrays}
    if "label" in arrays:
        names = class_names(opened.config.data, arrays["probabilities"].shape[1])
        counts = np.bincount(arrays["label"], minlength=len(names)).tolist()
        summary["labels"] = {name: count for name, count in zip(names, counts, strict=True) if count}
        arrays["class_names"] = np.array(names)
    if files:
        arrays["files"] = np.array([str(file) for file in files])
    try:
        with output.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
    except OSError as error:
        raise UserError(f"Cannot write '--output' {output}: {error.strerror}.") from error
    if json:
        print_json(summary)
        return
    told = next(name for name in ("confidence", "std", "epistemic") if name in summary)
    say(f"{summary['inputs']} predictions in {output} ({', '.join(arrays)}); mean {told} {summary[told]:.3f}")
    if most := sorted(summary.get("labels", {}).items(), key=lambda one: -one[1])[:_SHOWN]:
        say("Labels:     " + ", ".join(f"{count} {name}" for name, count in most))
