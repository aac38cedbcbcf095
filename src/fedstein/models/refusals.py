"""What is looked at before a module is trained: that it runs, what it returns, and what a user should know of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from fedstein.errors import UserError
from fedstein.models.held import Held
from fedstein.models.norms import frozen_batch_norms

__all__ = ["Takes", "check_module", "fitting", "notes_on", "takes"]


Takes = Literal["numbers", "ids", "either", "mixed"]
"""What a module takes: float32, int64 alone, either of them, or float32 by some of which it looks something up."""


def notes_on(module: nn.Module, unused: Sequence[str] = ()) -> tuple[str, ...]:
    """What a user should know of how the module is used, in sentences.

    Args:
        module: in question.
        unused: the parameters that the loss does not depend on.
    """
    notes = []
    # Recurrent and attention layers have a probability of their own.
    if dropout := [name for name, part in module.named_modules() if _drops(part)]:
        notes.append(f"Dropout is off, in training as well: {_few(dropout)}.")
    if norms := frozen_batch_norms(module):
        notes.append(f"Batch norm is frozen, and its statistics are constants: {_few(norms)}.")
    if unused:
        notes.append(f"The loss does not depend on these parameters, they follow the prior alone: {_few(unused)}.")
    return tuple(notes)


def check_module(held: Held, particles: Tensor, x: Tensor, y: Tensor, classifies: bool) -> list[str]:
    """Refuse what cannot be trained; returns the names of parameters that the loss does not depend on.

    Args:
        held: the module and the loss.
        particles: where it starts.
        x: some inputs.
        y: their targets.
        classifies: its outputs are logits.
    """
    for name, value in (("x", x), ("y", y)):
        if not isinstance(value, Tensor):
            raise UserError(
                f"The examples' {name} must be one tensor (B, ...). Got a {type(value).__name__} instead. A module "
                "with several inputs must take them as one tensor, and part it itself."
            )
    if x.dim() == 0 or len(x) == 0 or y.shape[:1] != x.shape[:1]:
        raise UserError(f"There must be as many x as y, one or more. Got {tuple(x.shape)} and {tuple(y.shape)}.")
    if len(x) == 1:
        x, y = torch.cat([x, x]), torch.cat([y, y])
    held.put_in(particles[0])
    _check_outputs(held, x, classifies)
    loss = _check_loss(held, x, y)
    return _check_gradient(held, loss)


def fitting(weights: Tensor, shape: tuple[int, int]) -> Tensor:
    """The weights of examples, if there is one for each particle and example."""
    if weights.shape != shape:
        raise UserError(f"The 'weights' must be {shape}: particles, examples. Got {tuple(weights.shape)} instead.")
    return weights


def _check_outputs(held: Held, x: Tensor, classifies: bool) -> None:
    outputs, state = [], []
    try:
        with torch.no_grad():
            for _ in range(2):
                outputs.append(held.outputs(held.module, x))
                state.append({name: value.clone() for name, value in held.module.named_buffers()})
            held.outputs(held.module, x[:1])
    except UserError:
        raise
    except Exception as error:  # whatever a user's own class raises
        raise UserError(
            f"The 'module' does not run on inputs of shape {tuple(x.shape)} and type {x.dtype}: {error}. "
            f"{_what_to_do(held, x)}"
        ) from error
    first, second = outputs
    if classifies and first.dim() != 2:
        raise UserError(f"The 'module' must return (B, classes) logits. Got the shape {tuple(first.shape)} instead.")
    if first.isnan().any():
        raise UserError(
            "The 'module' returns NaN for particles as they start. Scale the inputs, or look for a division by 0."
        )
    same = state[0].keys() == state[1].keys() and all(_same(value, state[1][name]) for name, value in state[0].items())
    if not same or not torch.equal(first, second):
        raise UserError(
            "The 'module' must return the same for the same inputs and parameters. It draws at random in evaluation "
            "mode, or keeps a state from call to call."
        )


def _check_loss(held: Held, x: Tensor, y: Tensor) -> Tensor:
    try:
        with torch.enable_grad():
            outputs = held.outputs(held.module, x)
            losses = held.loss(outputs, y)
    except UserError:
        raise
    except Exception as error:  # whatever a user's own function raises
        raise UserError(
            f"The 'loss' does not take outputs of shape {tuple(outputs.shape)} and type {outputs.dtype} with targets "
            f"of shape {tuple(y.shape)} and type {y.dtype}: {error}."
        ) from error
    if not isinstance(losses, Tensor) or losses.shape[:1] != x.shape[:1]:
        got = f"the shape {tuple(losses.shape)}" if isinstance(losses, Tensor) else f"a {type(losses).__name__}"
        raise UserError(f"The 'loss' must return one loss for each example (reduction='none'). Got {got} instead.")
    if not losses.isfinite().all():
        raise UserError("The 'loss' is NaN or infinite for particles as they start. Scale the inputs or the targets.")
    return losses.mean()


def _check_gradient(held: Held, loss: Tensor) -> list[str]:
    if loss.requires_grad:
        loss.backward()  # type: ignore[no-untyped-call]
    gradients = held.take_gradients()
    if not gradients:
        raise UserError("The 'loss' must depend on the parameters of the module through operations of torch.")
    for name, gradient in gradients.items():
        if not gradient.isfinite().all():
            raise UserError(f"The gradient of '{name}' is NaN or infinite for particles as they start.")
    return [name for name in held.parameters if name not in gradients]


def takes(module: nn.Module, x: Tensor) -> Takes:
    """What the module takes. It is tried. Where both will do and nothing is looked up, numbers are meant.

    Args:
        module: in evaluation mode.
        x: some inputs, which are whole numbers.
    """
    numbers, whole = _runs(module, x.float()), _runs(module, x.long())
    if whole and not numbers:
        return "ids"
    if not numbers or not _looks_up(module, x.float()):
        return "numbers"
    return "either" if whole else "mixed"


def _looks_up(module: nn.Module, x: Tensor) -> bool:
    """Whether what is looked up in an embedding hangs on the inputs, as a position does not."""
    embeddings, indices = _embeddings(module), []

    def note(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        indices.append([value.clone() for value in (*args, *kwargs.values()) if isinstance(value, Tensor)])

    hooks = [part.register_forward_pre_hook(note, with_kwargs=True) for part in embeddings]
    try:
        _runs(module, x)
        before, indices = indices, []
        # One beside a large float may be the same float, and 0 is in every embedding.
        runs = _runs(module, torch.zeros_like(x) if x.any() else x + 1)
    finally:
        for hook in hooks:
            hook.remove()
    same = len(before) == len(indices) and all(
        len(a) == len(b) and all(_same(*pair) for pair in zip(a, b, strict=True))
        for a, b in zip(before, indices, strict=True)
    )
    return bool(embeddings) and not (runs and same)


def _embeddings(module: nn.Module) -> list[nn.Module]:
    return [part for part in module.modules() if isinstance(part, nn.Embedding | nn.EmbeddingBag)]


def _runs(module: nn.Module, x: Tensor) -> bool:
    try:
        with torch.no_grad():
            module(x)
    except Exception:  # whatever a user's own class raises
        return False
    return True


def _what_to_do(held: Held, x: Tensor) -> str:
    if held.device.type != "cpu":
        return (
            f"On {held.device}, what its forward makes must be made where the inputs are (device=x.device), and "
            "tensors of its own must be parameters or buffers. Try device='cpu' to tell this from other mistakes."
        )
    if x.is_floating_point() and _embeddings(held.module):
        return "It has an embedding: if the inputs are token ids, give them as whole numbers (int64)."
    return "Call it on one of the inputs in evaluation mode, and look why."


def _drops(part: nn.Module) -> bool:
    probability = part.p if isinstance(part, nn.modules.dropout._DropoutNd) else getattr(part, "dropout", 0.0)
    return isinstance(probability, float | int) and probability > 0


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num())


def _few(names: Sequence[str]) -> str:
    """The first of them."""
    shown = [f"'{name}'" if name else "the module itself" for name in names[:3]]
    return ", ".join(shown) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
