"""A network by name is tried on a few examples, and on the test set, before there is a run folder.

What would go wrong in the first round or at the first evaluation is told here, in words. (A module that is given in
Python is looked at when it is given.)
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedstein.data import Examples, loaded
from fedstein.errors import FedsteinError, UserError
from fedstein.likelihoods import Categorical
from fedstein.models import ParticleModel, TorchModule
from fedstein.runs.problem import Problem
from fedstein.streams import stream

__all__ = ["try_network"]

_SOME = 2


def try_network(problem: Problem) -> None:
    """Refuse what cannot be trained on the data that is here, or judged on the test set.

    Args:
        problem: with the agents' data, or with the test set alone where that is elsewhere.

    Raises:
        UserError: the module does not run on the inputs, gives too few or too many numbers, NaN, or cannot be trained.
    """
    model, inputs, test = problem.task.model, problem.inputs, problem.judge.test
    holders = [data for data in problem.holdings.agents if len(data)] + ([] if test is None else [test])
    if inputs is None or inputs.network is None or inputs.network.parameters is None or not holders:
        return  # nothing by name
    few = holders[0].take(torch.arange(min(_SOME, len(holders[0]))))
    x = loaded(few.x)
    _check_count(model, x, inputs.outputs)
    if isinstance(model, TorchModule):
        model.check(x, few.y)
    if test is not None:
        _check_test(problem, test)


def _check_count(model: ParticleModel, x: Tensor, wanted: int) -> None:
    """As many numbers for an input as the likelihood needs; a classifier may know of classes that nobody has."""
    try:
        shape = model.outputs(_particle(model), x.to(model.device)).shape
    except FedsteinError:
        raise
    except Exception as error:  # whatever a user's own class raises
        raise UserError(
            f"The 'model.module' does not run on inputs of shape {tuple(x.shape)} and type {x.dtype}: {error}. "
            "It is given one tensor (B, ...)."
        ) from error
    classes = isinstance(model.likelihood, Categorical)
    fits = len(shape) == 3 and (shape[2] >= wanted if classes else shape[2] == wanted)
    if not fits:
        got = f"(B, {shape[2]})" if len(shape) == 3 else f"(B{''.join(f', {size}' for size in shape[2:])})"
        raise UserError(
            f"The 'model.module' must return (B, {wanted}) for these targets and the likelihood "
            f"'{model.likelihood.name}'. Got {got}."
        )


def _check_test(problem: Problem, test: Examples) -> None:
    """One particle sees all of it, as in an evaluation."""
    try:
        problem.judge.evaluate(problem.task.model, problem.holdings, _particle(problem.task.model).cpu())
    except Exception as error:  # a user's own class, on inputs that no agent may have
        why = str(error).rstrip(".")
        raise UserError(
            f"The test examples cannot be evaluated by the 'model.module' as it starts: {why}. There are {len(test):,} "
            f"of shape {tuple(test.x.shape[1:])}."
        ) from error


def _particle(model: ParticleModel) -> Tensor:
    return model.draw(1, stream(0, "trying")).to(model.device)
