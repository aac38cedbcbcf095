"""What likelihoods of numbers share: settings that are one number or one for each target, and targets as a table."""

from __future__ import annotations

import math
from typing import Annotated, Any

import torch
from pydantic import BeforeValidator
from torch import Tensor

from fedstein.errors import UserError

__all__ = ["Number", "Positive", "as_table", "check_targets", "per_target"]


def _finite(value: Any) -> Any:
    """One finite number, or several."""
    several = list(value) if isinstance(value, list | tuple) else [value]
    fits = bool(several) and all(
        isinstance(one, int | float) and not isinstance(one, bool) and math.isfinite(one) for one in several
    )
    if not fits:
        raise ValueError(f"must be a finite number, or a list of one for each target. Got {value!r} instead.")
    return tuple(float(one) for one in several) if isinstance(value, list | tuple) else float(value)


def _positive(value: Any) -> Any:
    number = _finite(value)
    for one in number if isinstance(number, tuple) else [number]:
        if not 1e-30 <= one <= 1e30:
            raise ValueError(f"must be a number from 1e-30 to 1e30, or a list of them. Got {value!r} instead.")
    return number


Number = Annotated[float | tuple[float, ...], BeforeValidator(_finite)]
Positive = Annotated[float | tuple[float, ...], BeforeValidator(_positive)]


def check_targets(targets: int, **settings: float | tuple[float, ...] | None) -> None:
    """Refuse settings that were made for another number of targets.

    Args:
        targets: how many there are.
        settings: by their names.
    """
    for name, value in settings.items():
        if isinstance(value, tuple) and len(value) not in (1, targets):
            raise UserError(
                f"The likelihood's '{name}' must be one number, or one for each of {targets} targets. "
                f"Got {len(value)} instead."
            )


def per_target(value: float | tuple[float, ...], like: Tensor) -> Tensor:
    """A setting as a tensor () or (targets,), of the type and on the device of another."""
    return torch.tensor(value, dtype=like.dtype, device=like.device)


def as_table(y: Tensor, what: str, targets: int) -> Tensor:
    """Numbers (n,) or (n, targets) as a table (n, targets) of float64, in which the values can be looked at.

    Args:
        y: what somebody gave.
        what: whose it is, for messages.
        targets: how many columns there must be.

    Raises:
        UserError: another shape, no numbers, NaN or infinity (also what float32 would make one).
    """
    if y.is_complex():
        raise UserError(f"{what}: y must be real numbers. Got {y.dtype} instead.")
    table = y[:, None] if y.dim() == 1 else y
    if table.dim() != 2 or table.shape[1] != targets:
        one = "(n,) or (n, 1)" if targets == 1 else f"(n, {targets})"
        raise UserError(f"{what}: y must be of shape {one}, as many as the module speaks of. Got {tuple(y.shape)}.")
    table = table.double()
    bad = ~torch.isfinite(table.float())
    if bad.any():
        row = int(bad.any(1).nonzero()[0])
        raise UserError(f"{what}: y has NaN or infinity, first in row {row}. Clean or impute it first.")
    return table
