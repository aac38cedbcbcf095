"""Modules by name: ``package.nets:make_cnn`` becomes an `nn.Module` whose matching parameters are the particles.

A name in a config is code that will run. Who may name it is decided elsewhere: a user who trains, the list of modules
that this user has trained with (`store/allowed.py`) for a run folder, the agent's own node for an order.
"""

from __future__ import annotations

import copy
import hashlib
import re
import warnings
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from fedstein.by_name import NAME, imported
from fedstein.devices import CPU
from fedstein.errors import UserError, like
from fedstein.streams import seeded

__all__ = [
    "PARTICLES",
    "Values",
    "digest",
    "exported",
    "fingerprint",
    "frozen_values",
    "importable",
    "listing",
    "load_weights",
    "make_module",
    "on_cpu",
    "refuse_other_values",
    "unlike_listing",
]

Values = Mapping[str, Tensor]
"""Values of a network by the names of its parameters and buffers."""

KEY = "model.module"
PARTICLES = "model.particles_sha256"  # the key of an export's header that names what it was made from
_SHOWN = 8  # differences that a message lists


def make_module(
    name: str, args: Mapping[str, Any], seed: int, particles: Sequence[str] = (), values: Values | None = None
) -> nn.Module:
    """The module that ``package.nets:make_cnn`` makes, with its particles' parameters alone requiring a gradient.

    The global random numbers are seeded while it is made, and put back: whoever makes it gets the same.

    Args:
        name: ``package.module:callable``.
        args: what the callable is given, by name.
        seed: of the run.
        particles: patterns of parameter names; all parameters that require a gradient if there are none.
        values: by name, instead of those that it is made with.

    Raises:
        UserError: it cannot be imported, fails, returns no module, or does not fit the patterns or values.
    """
    make = imported(name, KEY)
    try:
        with seeded() as seed_with:
            seed_with(seed)
            module = make(**args)
    except Exception as error:  # whatever a user's code raises
        raise UserError(
            f"The 'model.module' {name!r} failed with model.args = {dict(args)!r}: {type(error).__name__}: {error}."
        ) from error
    if not isinstance(module, nn.Module):
        raise UserError(f"The 'model.module' {name!r} must return a torch.nn.Module. Got {type(module).__name__}.")
    if lazy := [key for key, value in module.named_parameters() if isinstance(value, nn.UninitializedParameter)]:
        raise UserError(
            f"The 'model.module' {name!r} has parameters without a shape yet, for instance '{lazy[0]}'. Run it once on "
            "an example before you return it."
        )
    if particles:
        _choose(module, particles)
    if values:
        _put(module, values)
    return module.eval()


def on_cpu(module: nn.Module, what: str, computes_on: torch.device) -> nn.Module:
    """The module, or a copy of it on the CPU if it is elsewhere: it is moved on from there, and checked here.

    Args:
        module: of a user; never changed.
        what: it is, for the words of a warning.
        computes_on: where the run computes: what is there already is moved without a word.
    """
    places = {value.device for value in (*module.parameters(), *module.buffers())}
    if places <= {CPU}:
        return module
    if not places <= {CPU, computes_on}:
        names = ", ".join(sorted(map(str, places)))
        warnings.warn(
            f"{what} is on {names}, and the run computes on {computes_on}: a copy is moved there. What a run computes "
            "on is its setting 'device'.",
            stacklevel=3,
        )
    try:
        return copy.deepcopy(module).to(CPU)
    except Exception as error:  # whatever a user's own class raises
        raise UserError(f"{what} must be one that copy.deepcopy can copy, and that can be moved: {error}.") from error


def importable(name: str) -> None:
    """Refuse a name that cannot be imported here, or is nothing to call."""
    if not re.fullmatch(NAME, name):
        raise UserError(f"The module must be named like 'package.nets:make_cnn'. Got {name!r}.")
    imported(name, KEY)


def _choose(module: nn.Module, patterns: Sequence[str]) -> None:
    """Only parameters that match a pattern require a gradient."""
    names = [name for name, _ in module.named_parameters()]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise UserError(
                f"The 'model.particles' {pattern!r} matches no parameter. There are {_some(names)}."
                f"{like(pattern, names)}"
            )
    for name, value in module.named_parameters():
        value.requires_grad_(any(fnmatchcase(name, pattern) for pattern in patterns))


def _put(module: nn.Module, values: Values) -> None:
    """Load values by name; each must be there, of its shape."""
    own: dict[str, Tensor] = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    unknown = [name for name in values if name not in own]
    if unknown:
        raise UserError(f"The weights are of another network: this one has no {_some(unknown)}. {_has(own)}")
    for name, value in values.items():
        if value.shape != own[name].shape:
            raise UserError(
                f"The weights are of another network: '{name}' is {tuple(value.shape)}, expected "
                f"{tuple(own[name].shape)}."
            )
    with torch.no_grad():
        for name, value in values.items():
            own[name].copy_(value)


def load_weights(path: str, module: nn.Module) -> dict[str, Tensor]:
    """The values in a safetensors file: all that is not learnt must be in it, and nothing that the module has not.

    Args:
        path: the file.
        module: with its particles chosen.
    """
    try:
        values: dict[str, Tensor] = load_file(path)
    except (SafetensorError, OSError) as error:
        raise UserError(f"Cannot read the 'model.weights' {path} as safetensors: {error}.") from error
    wanted = frozen_values(module)
    missing = [name for name in wanted if name not in values]
    if missing:
        raise UserError(
            f"The 'model.weights' {path} must have all that is not learnt. Missing: {_some(missing)}. It has "
            f"{_some(list(values))}."
        )
    for name, value in values.items():
        if value.is_floating_point() and not torch.isfinite(value).all():
            raise UserError(f"The 'model.weights' {path} must be finite. '{name}' is not.")
    _put(module, values)
    return values


def exported(path: str) -> str | None:
    """The SHA-256 of the particles of which a file is an export of fedstein's, by its header; None: it is of others."""
    try:
        with safe_open(path, framework="pt") as file:
            about = file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise UserError(f"Cannot read the 'model.weights' {path} as safetensors: {error}.") from error
    return about.get(PARTICLES)


def frozen_values(module: nn.Module) -> dict[str, Tensor]:
    """What is not learnt: parameters that require no gradient, and buffers, as far as they are numbers (float32)."""
    fixed: dict[str, Tensor] = {name: value for name, value in module.named_parameters() if not value.requires_grad}
    fixed |= {name: value for name, value in module.named_buffers() if name in module.state_dict()}
    return {name: value.detach().clone() for name, value in fixed.items() if value.dtype == torch.float32}


def refuse_other_values(module: nn.Module, fresh: nn.Module, why: str, kept: bool = True) -> None:
    """Refuse a network that has other values than the same network made anew, where a run would go on with these.

    Args:
        module: the network.
        fresh: the same, made anew.
        why: the beginning of what is said.
        kept: also values that a run keeps, float32 ones; else only the others.
    """
    others = {**dict(fresh.named_parameters()), **dict(fresh.named_buffers())}
    for name, value in (*module.named_parameters(), *module.named_buffers()):
        if name.endswith("num_batches_tracked") or (not kept and value.dtype == torch.float32):
            continue
        if not torch.equal(value.detach().cpu().nan_to_num(), others[name].detach().cpu().nan_to_num()):
            raise UserError(f"{why}. '{name}' ({str(value.dtype).removeprefix('torch.')}) is another one.")


def digest(values: Values) -> str:
    """SHA-256 of values with their names and shapes."""
    content = hashlib.sha256()
    for name, value in sorted(values.items()):
        content.update(repr((name, tuple(value.shape), str(value.dtype))).encode())
        content.update(value.contiguous().numpy().tobytes())
    return content.hexdigest()


def listing(module: nn.Module) -> dict[str, str]:
    """Every parameter and buffer: its shape, type, and whether it is learnt."""
    parameters = {
        name: f"{'x'.join(map(str, value.shape)) or 'scalar'} {str(value.dtype).removeprefix('torch.')} "
        f"{'learnt' if value.requires_grad else 'frozen'}"
        for name, value in module.named_parameters()
    }
    buffers = {
        name: f"{'x'.join(map(str, value.shape)) or 'scalar'} {str(value.dtype).removeprefix('torch.')} buffer"
        for name, value in module.named_buffers()
    }
    return parameters | buffers


def fingerprint(parts: Mapping[str, str]) -> str:
    """Of a listing, in its order: particles are flat vectors in that order."""
    return hashlib.sha256(repr(list(parts.items())).encode()).hexdigest()[:32]


def unlike_listing(then: Mapping[str, str], now: Mapping[str, str]) -> str:
    """In what two listings differ, in a line."""
    lines = [f"'{name}' is gone" for name in then if name not in now]
    lines += [f"'{name}' is new ({now[name]})" for name in now if name not in then]
    lines += [
        f"'{name}' was {then[name]} and is {now[name]}" for name in then if now.get(name, then[name]) != then[name]
    ]
    return "; ".join(lines[:_SHOWN]) + ("; ..." if len(lines) > _SHOWN else "") or "their order is another one"


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:_SHOWN])
    return shown + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _has(own: Mapping[str, Any]) -> str:
    return f"It has {_some(list(own))}."
