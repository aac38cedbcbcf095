r"""What every prediction is: for each input, the mixture of what the particles say, and how uncertain it is.

The classes are frozen dataclasses of tensors with a row for each input, so that predictions of chunks of inputs can be
joined, and some rows be looked at alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

import torch
from torch import Tensor

from fedstein.errors import UserError

__all__ = ["Numbers", "Predicted", "Rows", "join"]


@runtime_checkable
class Predicted(Protocol):
    """What may be asked of a prediction, whatever was predicted."""

    @property
    def aleatoric(self) -> Tensor:
        """(n,) or (n, targets) uncertainty that more data would not remove."""
        ...

    @property
    def epistemic(self) -> Tensor:
        """(n,) or (n, targets) uncertainty because the particles disagree."""
        ...

    @property
    def doubt(self) -> Tensor:
        """(n,) the epistemic part as one number in nats: how unknown an input is."""
        ...

    def log_density(self, y: Tensor) -> Tensor:
        """(n,) log of the mixture's density (or probability) of the true targets."""
        ...

    def divergence(self, other: Any) -> Tensor:
        """(n,) KL divergence, in nats, of another prediction of the same inputs from this one."""
        ...

    def rows(self, which: Tensor) -> Self:
        """The prediction of some inputs."""
        ...

    def __len__(self) -> int:
        """How many inputs."""
        ...


P = TypeVar("P", bound="Rows")


class Rows:
    """A dataclass whose fields are tensors (n, ...)."""

    def _tensors(self) -> dict[str, Tensor]:
        kind: Any = self
        return {field.name: getattr(self, field.name) for field in fields(kind)}

    def __len__(self) -> int:
        return len(next(iter(self._tensors().values())))

    def rows(self, which: Tensor) -> Self:
        """The prediction of some inputs: their indices, or a mask (n,)."""
        return type(self)(**{name: tensor[which] for name, tensor in self._tensors().items()})


def join(parts: Sequence[P]) -> P:
    """Predictions of one kind, one after the other."""
    first = parts[0]
    return type(first)(**{name: torch.cat([getattr(part, name) for part in parts]) for name in first._tensors()})


class Numbers(Rows, ABC):
    """The prediction of one or several numbers (n, targets): a mixture whose intervals are exact.

    Uncertainty is split by the law of total variance: the mean of the particles' variances, and the variance of their
    means.
    """

    @property
    @abstractmethod
    def mean(self) -> Tensor:
        """(n, targets)."""

    @property
    @abstractmethod
    def aleatoric(self) -> Tensor:
        """(n, targets) mean of the particles' variances."""

    @property
    @abstractmethod
    def epistemic(self) -> Tensor:
        """(n, targets) variance of the particles' means."""

    @property
    def std(self) -> Tensor:
        """(n, targets) standard deviation of the mixture."""
        return (self.aleatoric + self.epistemic).sqrt()

    @property
    def doubt(self) -> Tensor:
        r"""(n,) :math:`\frac12 \sum_t \log(1 + \mathrm{epistemic} / \mathrm{aleatoric})`, in nats, free of units."""
        least = torch.finfo(self.mean.dtype).tiny
        return 0.5 * (self.epistemic / self.aleatoric.clamp_min(least)).log1p().sum(1)

    @abstractmethod
    def cdf(self, y: Tensor) -> Tensor:
        """(n, targets) probability of at most `y` (n, targets), for each target alone."""

    @abstractmethod
    def quantile(self, level: float) -> Tensor:
        """(n, targets) the smallest number with at least this probability below or at it."""

    @abstractmethod
    def log_density(self, y: Tensor) -> Tensor:
        """(n,) log of the mixture's density of all targets of an example together."""

    @abstractmethod
    def marginal_log_density(self, y: Tensor) -> Tensor:
        """(n, targets) log of the mixture's density of each target alone."""

    @abstractmethod
    def crps(self, y: Tensor) -> Tensor:
        """(n, targets) continuous ranked probability score, in the unit of the target; 0 is best."""

    @abstractmethod
    def pit(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """P(Y < y) and P(Y <= y), each (n, targets): the probability integral transform lies between them."""

    def divergence(self, other: Numbers) -> Tensor:
        """(n,) KL divergence, in nats, of the other from this one: of Gaussians with the mixtures' means and variances.

        That of the mixtures themselves has no closed form; this one is 0 only where their first two moments agree.
        """
        least = torch.finfo(self.mean.dtype).tiny
        mine, theirs = self.std.square().clamp_min(least), other.std.square().clamp_min(least)
        ratio = mine / theirs
        return 0.5 * (ratio - 1 - ratio.log() + (self.mean - other.mean).square() / theirs).sum(1)

    def interval(self, level: float) -> tuple[Tensor, Tensor]:
        """Lower and upper end (n, targets) of the central interval that holds the target with this probability.

        >>> from fedstein.metrics import GaussianMixture
        >>> low, high = GaussianMixture(torch.zeros(1, 1, 1), torch.ones(1, 1, 1)).interval(0.95)
        >>> round(float(low), 2), round(float(high), 2)
        (-1.96, 1.96)
        """
        check_level(level)
        return self.quantile((1.0 - level) / 2), self.quantile((1.0 + level) / 2)

    def __repr__(self) -> str:
        n, targets = self.mean.shape
        return (
            f"{type(self).__name__}({n:,} inputs, {targets} target{'s' if targets > 1 else ''}: mean "
            f"{float(self.mean.mean()):.4g}, std {float(self.std.mean()):.4g}, of which epistemic "
            f"{float(self.epistemic.sqrt().mean()):.4g})"
        )

    def _repr_html_(self) -> str:
        """The first few, as a notebook shows them."""
        few = self.rows(torch.arange(min(10, len(self)), device=self.mean.device))
        low, high = few.interval(0.9)
        columns = (few.mean, few.std, few.aleatoric.sqrt(), few.epistemic.sqrt(), low, high)
        rows = "".join(
            f"<tr><td>{i}</td><td>{t}</td>{''.join(f'<td>{float(c[i, t]):.4g}</td>' for c in columns)}</tr>"
            for i in range(len(few))
            for t in range(few.mean.shape[1])
        )
        words = ("input", "target", "mean", "std", "aleatoric std", "epistemic std", "5 %", "95 %")
        return f"<p>{self!r}</p><table><tr>{''.join(f'<th>{word}</th>' for word in words)}</tr>{rows}</table>"


def check_level(level: float) -> None:
    """Refuse what is no probability between 0 and 1."""
    if not 0.0 < level < 1.0:
        raise UserError(f"The 'level' must be above 0 and below 1, for instance 0.9. Got {level!r} instead.")
