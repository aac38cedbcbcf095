"""What an audit has found: lines with a value, a threshold, a status and a note."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from fedstein.protocol.state import State, Totals
from fedstein.runs.problem import Problem
from fedstein.settings import Config
from fedstein.store.lineage import Lineage

__all__ = ["Audit", "Check", "Model", "Status", "graded"]

Status = Literal["pass", "warn", "fail"]


@dataclass(frozen=True)
class Check:
    """One line of the verdict."""

    name: str
    value: float | None
    threshold: float | None
    status: Status
    note: str


@dataclass(repr=False)
class Audit:
    """All that the audit has found; `table` is the JSON report."""

    run: Path
    tier: str
    config: Config
    lineage: Lineage
    problem: Problem
    round: int  # of the model that is audited
    checks: list[Check] = field(default_factory=list)
    table: dict[str, Any] = field(default_factory=dict)
    losses: dict[str, Tensor] = field(default_factory=dict)  # true-class probabilities, for the histogram

    def check(self, name: str, value: float | None, threshold: float | None, status: Status, note: str) -> None:
        """Add a line."""
        value = None if value is None else round(value, 12)  # no -1.1e-16
        self.checks.append(Check(name, value, threshold, status, note))

    @property
    def verdict(self) -> Status:
        """The worst of all lines."""
        statuses = {check.status for check in self.checks}
        return "fail" if "fail" in statuses else "warn" if "warn" in statuses else "pass"

    def __repr__(self) -> str:
        passed = sum(check.status == "pass" for check in self.checks)
        return f"Audit({self.run.name}: {self.verdict}, {passed} of {len(self.checks)} checks passed)"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{check.status}</td><td>{escape(check.name)}</td><td>{escape(check.note)}</td></tr>"
            for check in self.checks
        )
        return f"<p><b>{escape(repr(self))}</b></p><table>{rows}</table>"


@dataclass(frozen=True, repr=False)
class Model:
    """The model under audit, or a retrained one to compare it with."""

    seed: int
    state: State
    totals: Totals
    seconds: float
    sha256: str
    members: Tensor  # (M, d), what predicts


def graded(distance: float, tolerance: float) -> Status:
    """Pass within the tolerance, warn within three times it, fail beyond."""
    return "pass" if distance <= tolerance else "warn" if distance <= 3 * tolerance else "fail"
