"""What the verbs print: one JSON object, or tables for people. Nothing heavy is imported here."""

from __future__ import annotations

import json as json_module
import signal
import sys
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from fedstein.runs.onlooker import Onlooker
    from fedstein.trackers import Watcher

__all__ = [
    "EngineOption",
    "JsonOption",
    "RayOption",
    "SetOption",
    "VisitsOption",
    "engine_name",
    "on_terminal",
    "print_json",
    "print_metrics",
    "ready",
    "say",
    "show",
]

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a config key; repeat as needed.")
]
EngineOption = Annotated[
    str | None,
    typer.Option("--engine", metavar="NAME", help="What carries the messages: local, ray:ADDRESS, or a plugin's."),
]
RayOption = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Run on a Ray cluster: auto, HOST:PORT, or local to start one (needs fedstein\\[ray]).",
    ),
]
VisitsOption = Annotated[
    int | None,
    typer.Option("--workers", min=1, max=4096, help="With --ray: visits side by side; as many as there are cores for."),
]

_ROWS = (
    ("accuracy", "accuracy", "higher is better"),
    ("rmse", "RMSE", "in the target's unit; lower is better"),
    ("mae", "MAE", "in the target's unit"),
    ("nll", "NLL", "nats; lower is better"),
    ("crps", "CRPS", "in the target's unit; lower is better"),
    ("coverage_50", "coverage 50 %", "share of targets in the 50 % intervals"),
    ("coverage_80", "coverage 80 %", "share of targets in the 80 % intervals"),
    ("coverage_90", "coverage 90 %", "share of targets in the 90 % intervals"),
    ("coverage_95", "coverage 95 %", "share of targets in the 95 % intervals"),
    ("width_90", "width 90 %", "mean width of the 90 % intervals"),
    ("calibration_error", "calibration error", "of the quantiles, mean; 0 is calibrated"),
    ("deviance", "deviance", "mean; lower is better"),
    ("macro_f1", "macro F1", "higher is better"),
    ("micro_f1", "micro F1", "higher is better"),
    ("auroc", "AUROC", "mean over labels; 0.5 is chance"),
    ("loss", "loss", "mean over particles"),
    ("ece", "ECE", "{ece_bins} bins of equal width; lower is better"),
    ("adaptive_ece", "adaptive ECE", "{ece_bins} bins of equal count"),
    ("mce", "MCE", "the worst of those {ece_bins} bins of equal width"),
    ("brier", "Brier", "0 to 2; lower is better"),
    ("confidence", "mean confidence", "equals accuracy when calibrated"),
    ("aleatoric", "aleatoric", "{unit}, mean"),
    ("epistemic", "epistemic", "{unit}, mean: how much the particles disagree"),
    ("ood_auroc_epistemic", "OOD AUROC, epistemic", "0.5 is chance"),
    ("ood_auroc_entropy", "OOD AUROC, entropy", "0.5 is chance"),
    ("forgotten_accuracy", "forgotten agents' data", "accuracy on it"),
    ("retained_accuracy", "retained agents' data", "accuracy on it"),
    ("forgotten_rmse", "forgotten agents' data", "RMSE on it"),
    ("retained_rmse", "retained agents' data", "RMSE on it"),
    ("forgotten_label_accuracy", "forgotten labels", "test accuracy on labels that only they had"),
    ("retained_label_accuracy", "retained labels", "test accuracy on the others"),
    ("total_variation", "total variation", "of the particles' KDE to the exact posterior"),
    ("smoothing_floor", "smoothing floor", "what exact samples have under the same KDE"),
    ("posterior_mean_error", "posterior mean error", "relative to the exact posterior"),
    ("posterior_std_ratio", "posterior std ratio", "1 is exact"),
)

_console: Console | None = None


def ready() -> None:
    """What a verb needs is imported: from here on Ctrl-C is Python's own, which the verb handles."""
    from fedstein.__main__ import leave_at_once

    if signal.getsignal(signal.SIGINT) is leave_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def console() -> Console:
    """Standard output, for people."""
    global _console
    if _console is None or _console.file is not sys.stdout:
        from rich.console import Console

        _console = Console(file=sys.stdout, markup=False, highlight=False, soft_wrap=True)
    return _console


def say(text: str) -> None:
    """A line for people."""
    console().print(text)


def warn(text: str) -> None:
    """A line for people that is no part of what was asked for."""
    print(f"fedstein: {text}", file=sys.stderr)


def show(thing: Any) -> None:
    """A table for people."""
    console().print(thing)


def print_json(value: dict[str, Any]) -> None:
    """One object on one line of stdout."""
    try:
        print(json_module.dumps(value, allow_nan=False))
    except ValueError:  # a number that is not finite
        from fedstein.store.files import to_json

        print(to_json(value))


def print_metrics(metrics: dict[str, Any], title: str) -> None:
    """A table of whatever metrics are there."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left", show_header=False)
    unit = "variance" if metrics.get("rmse") is not None else "nats"
    for key, name, note in _ROWS:
        if metrics.get(key) is not None:
            table.add_row(name, f"{metrics[key]:.4f}", note.format(**metrics, unit=unit))
    if classes := metrics.get("class_accuracy"):
        text = " ".join("-" if value is None else f"{value:.2f}" for value in classes)
        table.add_row("by class", "", text)
    show(table)


def engine_name(engine: str | None, ray: str | None) -> str:
    """The engine that options ask for."""
    from fedstein.errors import UserError

    if engine is not None and ray is not None:
        raise UserError("Give '--engine' or '--ray', not both: '--ray ADDRESS' is '--engine ray:ADDRESS'.")
    return f"ray:{ray}" if ray is not None else engine or "local"


def on_terminal(quiet: bool, on_stderr: bool = False) -> Onlooker:
    """Somebody who prints what is about to be done, and shows a bar; only the bar if `quiet`."""
    from fedstein.progress import Bar
    from fedstein.runs.onlooker import Onlooker

    class Terminal(Onlooker):
        def say(self, text: str) -> None:
            if not quiet:
                print(text, file=sys.stderr) if on_stderr else say(text)

        def watching(self, title: str, rounds: int) -> AbstractContextManager[Watcher]:
            return Bar(rounds)

    return Terminal()
