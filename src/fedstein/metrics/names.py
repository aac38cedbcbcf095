"""What metrics are called wherever people read them, the first ones first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["NAMES", "in_words", "shown"]

NAMES = {
    "accuracy": "accuracy",
    "rmse": "RMSE",
    "nll": "NLL",
    "ece": "ECE",
    "crps": "CRPS",
    "coverage_90": "coverage of 90 % intervals",
    "macro_f1": "macro F1",
    "deviance": "deviance",
    "brier": "Brier score",
    "loss": "loss",
    "total_variation": "total variation to the exact posterior",
    "posterior_mean_error": "error of the posterior mean",
    "posterior_std_ratio": "posterior std, as a ratio to the exact one",
}
_SHORT = {"coverage_90": "cover 90 %", "total_variation": "total variation", "posterior_mean_error": "mean error"}
_NOT_FIRST = ("brier", "posterior_std_ratio", "macro_f1", "deviance")


def shown(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The few that a line has room for, by their short names.

    >>> shown({"accuracy": 0.9, "nll": 0.3, "brier": 0.2, "ece_bins": 15})
    {'accuracy': 0.9, 'NLL': 0.3}
    """
    first = [name for name in NAMES if name not in _NOT_FIRST and isinstance(metrics.get(name), float | int)]
    return {_SHORT.get(name, NAMES[name]): metrics[name] for name in first}


def in_words(metrics: Mapping[str, Any]) -> str:
    """The same as a line.

    >>> in_words({"accuracy": 0.9, "nll": 0.3})
    'accuracy 0.9000, NLL 0.3000'
    """
    return ", ".join(f"{name} {value:.4f}" for name, value in shown(metrics).items())
