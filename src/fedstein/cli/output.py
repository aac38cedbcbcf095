"""What the verbs print: one JSON object, or tables for people."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedstein.runs import to_json

__all__ = ["JsonOption", "console", "print_json", "print_metrics"]

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]

console = Console(markup=False, highlight=False, soft_wrap=True)

_ROWS = (
    ("accuracy", "accuracy", "higher is better"),
    ("nll", "NLL", "nats; lower is better"),
    ("ece", "ECE", "{ece_bins} bins of equal width; lower is better"),
    ("adaptive_ece", "adaptive ECE", "{ece_bins} bins of equal count"),
    ("mce", "MCE", "the worst of those {ece_bins} bins of equal width"),
    ("brier", "Brier", "0 to 2; lower is better"),
    ("confidence", "mean confidence", "equals accuracy when calibrated"),
    ("aleatoric", "aleatoric", "nats, mean"),
    ("epistemic", "epistemic", "nats, mean: how much the particles disagree"),
    ("ood_auroc_epistemic", "OOD AUROC, epistemic", "0.5 is chance"),
    ("ood_auroc_entropy", "OOD AUROC, entropy", "0.5 is chance"),
    ("forgotten_accuracy", "forgotten agents' data", "accuracy on it"),
    ("retained_accuracy", "retained agents' data", "accuracy on it"),
    ("forgotten_label_accuracy", "forgotten labels", "test accuracy on labels that only they had"),
    ("retained_label_accuracy", "retained labels", "test accuracy on the others"),
    ("total_variation", "total variation", "of the particles' KDE to the exact posterior"),
    ("smoothing_floor", "smoothing floor", "what exact samples have under the same KDE"),
    ("posterior_mean_error", "posterior mean error", "relative to the exact posterior"),
    ("posterior_std_ratio", "posterior std ratio", "1 is exact"),
)


def print_json(value: dict[str, Any]) -> None:
    """One object on one line of stdout."""
    print(to_json(value))


def print_metrics(metrics: dict[str, Any], title: str) -> None:
    """A table of whatever metrics are there."""
    table = Table(title=Text(title), title_justify="left", show_header=False)
    for key, name, note in _ROWS:
        if metrics.get(key) is not None:
            table.add_row(name, f"{metrics[key]:.4f}", note.format(**metrics))
    if classes := metrics.get("class_accuracy"):
        text = " ".join("-" if value is None else f"{value:.2f}" for value in classes)
        table.add_row("by class", "", text)
    console.print(table)
