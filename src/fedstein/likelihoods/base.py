r"""What a likelihood is: the bridge from a module's outputs to losses in training, and to predictions afterwards.

One call of a module gives outputs (B, outputs) for B inputs. In training each example has the loss
:math:`-\log p(y \mid \mathrm{outputs})`, constants included, so that the posterior that particles stand for is the
one that is meant. Afterwards N particles give (N, B, outputs), whose mixture is the prediction:
:math:`\bar p(y) = \frac1N \sum_n p(y \mid \mathrm{outputs}_n)`.

Settings are public: they stand in the config, and every agent gets the same. What of them is derived from data (a
center, a scale) tells that much about it.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from fedstein.checked import Checked
from fedstein.errors import DivergedError, UserError
from fedstein.metrics import Predicted

__all__ = ["Likelihood", "finite", "own"]

P = TypeVar("P")


class Likelihood(Checked):
    """Frozen settings of one likelihood, and pure functions. A subclass says what the outputs mean."""

    name: ClassVar[str]
    summary: ClassVar[str]
    headline: ClassVar[tuple[str, ...]] = ("nll",)  # the metrics that are shown first
    lower: ClassVar[frozenset[str]] = frozenset({"nll"})  # metrics of which less is better
    higher: ClassVar[frozenset[str]] = frozenset()  # and more; of all others neither (a confidence, a coverage)
    predicts: ClassVar[bool] = True  # False: only `losses` works

    def lower_is_better(self, metric: str) -> bool | None:
        """Whether less of a metric is better; None where neither is."""
        metric = metric.removesuffix("_each")
        return True if metric in self.lower else False if metric in self.higher else None

    def outputs(self, targets: int) -> int:
        """How many numbers the module must give for an example with so many targets (classes, of a classifier).

        Raises:
            UserError: the settings are made for another number of targets.
        """
        return targets

    def targets(self, outputs: int) -> int:
        """The other way round: how many targets (classes, of a classifier) a module with so many outputs speaks of."""
        return outputs

    def check(self, y: Tensor, what: str, outputs: int) -> Tensor:
        """Targets as `losses` takes them: int64 labels (n,), or float32 (n, targets).

        Args:
            y: what somebody gave.
            what: whose it is, for messages: "agents[3]".
            outputs: how many numbers the module gives for an example.

        Raises:
            UserError: the targets do not fit: their type, shape or range, NaN.
        """
        raise NotImplementedError

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """(B,) -log p(y | outputs) in nats, constants included; differentiable, also under torch.func.

        Args:
            outputs: (B, outputs) of one module.
            y: targets that were checked.
        """
        raise NotImplementedError

    def draw(self, outputs: Tensor, generator: torch.Generator) -> Tensor:
        """Targets drawn from p(y | outputs), as `losses` takes them.

        Args:
            outputs: (B, outputs) of one module.
            generator: of the draws.
        """
        raise NotImplementedError

    def predict(self, outputs: Tensor) -> Predicted:
        """The mixture over particles of outputs (N, B, outputs)."""
        raise NotImplementedError

    def log_density(self, prediction: Predicted, y: Tensor) -> Tensor:
        """(B,) log of the mixture's density, or probability, of the true targets: what a membership attack sees.

        Args:
            prediction: of B inputs.
            y: their targets, checked.
        """
        return prediction.log_density(y)

    def scores(self, prediction: Predicted, y: Tensor, bins: int = 15) -> dict[str, Any]:
        """All metrics, as plain values: numbers, and lists of numbers.

        Args:
            prediction: of B inputs, from `predict`.
            y: their targets, checked.
            bins: of an ECE, where there is one.

        Raises:
            DivergedError: the predictions are not finite.
        """
        raise NotImplementedError

    def ignorance(self, outputs: int) -> float:
        """What a model that knows only the public settings loses on an example, in nats.

        It is the entropy of the distribution that has the largest one: then the mean loss is the same whatever the
        data is like (Grünwald and Dawid, "Game theory, maximum entropy, minimum discrepancy and robust Bayesian
        decision theory", 2004).
        """
        raise NotImplementedError

    def better_than_a_guess(self, outputs: Tensor, y: Tensor) -> Tensor:
        """(B,) of bool: where the mixture finds the target more likely than a model that knows nothing would.

        Args:
            outputs: (N, B, outputs) of N particles.
            y: targets that were checked.
        """
        return self.log_density(self.predict(outputs), y) > -self.ignorance(outputs.shape[2])


def own(prediction: Predicted, kind: type[P]) -> P:
    """The prediction, if it is of the kind that a likelihood makes itself."""
    if not isinstance(prediction, kind):
        raise UserError(f"The 'prediction' must be a {kind.__name__}. Got a {type(prediction).__name__} instead.")
    return prediction


def finite(*tensors: Tensor) -> None:
    """Refuse to judge what is not finite."""
    if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors):
        raise DivergedError("The predictions are no longer finite: the parameters are too large. Try a smaller step.")
