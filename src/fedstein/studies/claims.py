"""Claims as tested statements: an effect, its 95 % interval over seeds, and a verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from fedstein.report.extra import report_extra

__all__ = ["Claim", "Part", "interval"]


def interval(values: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Mean and the ends of its 95 % interval by Student's t; no ends with fewer than two values.

    >>> [round(number, 3) for number in interval([1.0, 2.0, 3.0])]
    [2.0, -0.484, 4.484]
    """
    with report_extra():
        from scipy.stats import t

    mean = fmean(values)
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return mean, None, None
    half = float(t.ppf(0.975, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    return mean, mean - half, mean + half


@dataclass(frozen=True)
class Part:
    """A claim under one condition: the differences of runs with the same seed, positive where it is as claimed."""

    where: str
    differences: Sequence[float]

    @property
    def holds(self) -> bool:
        """The whole interval is on the claimed side."""
        return self.outcome == "holds"

    @property
    def outcome(self) -> str:
        """Where the whole interval is."""
        _, low, high = interval(self.differences)
        if low is None or high is None or low <= 0 <= high:
            return "undecided"
        return "holds" if low > 0 else "the opposite holds"

    @property
    def strength(self) -> float:
        """The mean in units of half its interval, by which parts of different measures can be compared."""
        mean, low, _ = interval(self.differences)
        if not math.isfinite(mean):
            return -math.inf
        if low is None or mean == low:
            return math.copysign(math.inf, mean) if mean and low is not None else mean
        return mean / (mean - low)

    def __str__(self) -> str:
        mean, low, high = interval(self.differences)
        ends = "" if low is None else f" [{low:+.4g}, {high:+.4g}]"
        return f"{self.where}: {mean:+.4g}{ends}, {self.outcome}"


@dataclass(frozen=True)
class Claim:
    """A statement, and what came of it under each condition."""

    claim: str
    measure: str  # what the effect is
    parts: Sequence[Part]

    @property
    def runs(self) -> int:
        """Pairs of runs behind the weakest part."""
        return min(len(part.differences) for part in self.parts)

    @property
    def weakest(self) -> Part:
        """The part that speaks least for the claim."""
        return min(self.parts, key=lambda part: part.strength)

    @property
    def status(self) -> str:
        """Reproduced, not reproduced, or reproduced only under the conditions that are named."""
        if self.runs < 2:
            return "undecided: one run has no interval"
        held = [part.where for part in self.parts if part.holds]
        if len(held) == len(self.parts):
            return "reproduced"
        return f"reproduced only for {'; '.join(held)}" if held else "not reproduced"

    @property
    def verdict(self) -> str:
        """The status as a sentence."""
        return f"{self.status[0].upper()}{self.status[1:]}."

    def row(self) -> dict[str, Any]:
        """As `fedstein reproduce --json` prints it: the effect is that of the weakest part."""
        effect, low, high = interval(self.weakest.differences)
        return {
            "claim": self.claim,
            "status": self.status,
            "effect": effect if math.isfinite(effect) else None,
            "low": low,
            "high": high,
            "runs": self.runs,
            "part": self.weakest.where,
            "measure": self.measure,
            "parts": [str(part) for part in self.parts],
        }
