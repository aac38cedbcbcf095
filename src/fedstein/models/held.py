"""A module as we hold it: our own copy in evaluation mode, called with one tensor, from which one tensor must come."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fedstein.devices import CPU
from fedstein.errors import UserError
from fedstein.models.norms import refuse_batch_norm

__all__ = ["Held", "Loss", "device_of", "single_output"]

Loss = Callable[[Tensor, Tensor], Tensor]
"""(outputs of the module (B, ...), targets) -> (B,) losses."""


class Held:
    """A copy of a user's module in evaluation mode, and what is trained in it.

    Whatever comes out of it must be one floating-point tensor (B, ...), of one shape for inputs of one shape.

    Args:
        module: of the user; never changed.
        loss: per-example losses.
        bf16: the forward pass is under autocast to bfloat16.
        device: where the copy is; that of the module's parameters if None.
    """

    def __init__(self, module: nn.Module, loss: Loss, bf16: bool = False, device: torch.device | None = None) -> None:
        refuse_batch_norm(module)
        for name, value in module.named_parameters():
            if isinstance(value, nn.parameter.UninitializedParameter):
                raise UserError(f"The 'module' must know its shapes: '{name}' has none yet. Call it on an input first.")
        try:
            with torch.no_grad():  # else a scripted module's copy is a result of the original
                self.module = copy.deepcopy(module).eval()  # a copy: the user's own keeps its mode and its values
        except Exception as error:  # whatever a user's own class raises
            raise UserError(f"The 'module' must be one that copy.deepcopy can copy: {error}.") from error
        for copied, value in zip(self.module.parameters(), module.parameters(), strict=True):
            copied.requires_grad_(value.requires_grad)
        self.device = device_of(module) if device is None else device
        self._move(module)
        self.loss = loss
        self.bf16 = bf16
        self.parameters = {name: p for name, p in self.module.named_parameters() if p.requires_grad}
        if not self.parameters:
            raise UserError("The 'module' must have parameters that require a gradient. It has none.")
        self.sizes = [p.numel() for p in self.parameters.values()]
        self.dim = sum(self.sizes)
        self._flat: Tensor | None = None
        self._shapes: dict[torch.Size, torch.Size] = {}  # of one output, by that of one input
        self._writes = False  # it changes its inputs in place

    def __getstate__(self) -> dict[str, Any]:
        """Without the flat array: in a copy the parameters are no views of it any more."""
        return self.__dict__ | {"_flat": None}

    def _move(self, module: nn.Module) -> None:
        """Take the copy to its device, wherever the user's own is."""
        own = [*self.module.parameters(), *self.module.buffers()]
        if all(value.device == self.device for value in own):
            return
        try:
            self.module.to(self.device)
        except Exception as error:  # a type that the device has not, a class that moves in a way of its own
            raise UserError(f"The 'module' must be one that can be moved to {self.device}: {error}.") from error

    def put_in(self, particle: Tensor) -> None:
        """Give the module the parameters `particle` (dim,): by a single copy, they are views of one flat array."""
        flat = self._flat
        if flat is None or flat.dtype != particle.dtype:
            flat = self._flat = torch.empty(self.dim, dtype=particle.dtype, device=self.device)
            for parameter, piece in zip(self.parameters.values(), torch.split(flat, self.sizes), strict=True):
                parameter.data = piece.view(parameter.shape)
        flat.copy_(particle.detach())

    def take_gradients(self) -> dict[str, Tensor]:
        """What a backward pass has left, by name; parameters that it did not come to are left out."""
        gradients = {}
        for name, parameter in self.parameters.items():
            if parameter.grad is not None:
                strided = parameter.grad.layout is torch.strided
                gradients[name] = parameter.grad if strided else parameter.grad.to_dense()
                parameter.grad = None
        return gradients

    def outputs(self, call: Callable[[Tensor], Any], x: Tensor) -> Tensor:
        """(B, ...) what `call`, the module with some parameters, makes of `x`: checked, and float32 after bfloat16."""
        first = x.shape[1:] not in self._shapes
        given = x.clone() if first or self._writes else x
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16, cache_enabled=False):
            output = single_output(call(given))
        if first and given._version:
            self._writes = True
        if output.shape[:1] != x.shape[:1]:
            raise UserError(
                f"The 'module' must return (B, ...) outputs for (B, ...) inputs. "
                f"Got {tuple(output.shape)} for {tuple(x.shape)}."
            )
        if not output.is_floating_point():
            raise UserError(f"The 'module' must return floating-point numbers. Got {output.dtype} instead.")
        if self._shapes.setdefault(x.shape[1:], output.shape[1:]) != output.shape[1:]:
            raise UserError(
                f"The 'module' must return outputs of one shape: it gave {tuple(self._shapes[x.shape[1:]])} for an "
                f"input before, and now {tuple(output.shape[1:])}."
            )
        return output.float() if self.bf16 else output


def device_of(module: nn.Module) -> torch.device:
    """Where a module's parameters are, or the first of them."""
    return next((value.device for value in module.parameters()), CPU)


def single_output(output: Any) -> Tensor:
    """The one tensor of what a module returned: itself, its field `logits`, or the only tensor in it.

    >>> single_output({"logits": torch.ones(2), "hidden": torch.zeros(3)})
    tensor([1., 1.])

    Raises:
        UserError: there is none, or which one is meant cannot be known.
    """
    if isinstance(output, Tensor):
        return output
    fields = dict(output) if isinstance(output, Mapping) else {}
    logits = fields.get("logits", getattr(output, "logits", None))
    if isinstance(logits, Tensor):
        return logits
    parts = list(fields.values()) if fields else list(output) if isinstance(output, tuple | list) else []
    tensors = [part for part in parts if isinstance(part, Tensor)]
    if len(tensors) == 1:
        return tensors[0]
    what = f"with the fields {', '.join(map(repr, fields))}" if fields else f"with {len(tensors)} tensors"
    raise UserError(
        f"The 'module' must return one tensor, or something with a field 'logits'. Got a {type(output).__name__} "
        f"{what} instead. Put it into a module of your own that returns the tensor that the loss takes."
    )
