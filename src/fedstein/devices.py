"""Devices: where particles, a model and a batch are while something is computed with them.

Only that is on a device. Random draws, data, frames, files, what the server keeps and what agents remember are the
CPU's, so that a run means the same wherever it is computed; only its last bits may differ.
"""

from __future__ import annotations

import re
import time
import warnings
from typing import Any

import torch

from fedstein.errors import UserError

__all__ = ["CPU", "check_device", "clock", "device_here", "device_or_cpu", "devices_here", "record_of", "with_number"]

CPU = torch.device("cpu")
_AUTO = ("cuda", "mps")  # what `auto` looks for, in this order, before it takes the CPU
_NOWHERE = ("meta", "fake")  # kinds of torch on which nothing is computed


def check_device(name: str) -> str:
    """For settings: a name that torch knows, whether or not there is such a device here.

    Raises:
        ValueError: there is no such kind.
    """
    try:
        fits = name == "auto" or (
            isinstance(name, str)
            and re.fullmatch(r"[a-z][a-z0-9_]*(:\d{1,2})?", name) is not None
            and torch.device(name).type not in _NOWHERE
        )
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(f"must be auto, cpu, cuda, cuda:1 or mps. Got {name!r} instead.")
    return name


def device_here(name: str) -> torch.device:
    """The device of that name, with its number where it has one; `auto` is the first of cuda, mps and cpu.

    >>> device_here("cpu")
    device(type='cpu')

    Raises:
        UserError: it is not here; the message says what is.
    """
    try:
        check_device(name)
    except ValueError as error:
        raise UserError(f"The 'device' {error}") from None
    if name == "auto":
        name = next((kind for kind in _AUTO if _count(kind)), "cpu")
    device = torch.device(name)
    if device.type == "cpu":
        return CPU
    count = _count(device.type)
    if device.index is not None and device.index >= count > 0:
        why = f"there {'is' if count == 1 else 'are'} {count} of {device.type} here, numbered from 0"
    elif count == 0:
        why = _why_not(device.type)
    else:
        return with_number(device)
    raise UserError(f"The 'device' must be one that is here: {', '.join(devices_here())}. Got {name!r}: {why}.")


def with_number(device: torch.device) -> torch.device:
    """As tensors there say it: `cuda` is the one that torch would take. No work is begun on it to find out."""
    if device.type == "cpu":
        return CPU
    if device.index is not None:
        return device
    module = torch.get_device_module(device)
    begun = getattr(module, "is_initialized", None)
    return torch.device(device.type, int(module.current_device()) if begun is not None and begun() else 0)


def device_or_cpu(name: str, say: bool = True) -> torch.device:
    """The device of that name, or the CPU where there is none: for looking at what was learnt.

    Args:
        name: of a run's settings.
        say: with a warning.
    """
    try:
        return device_here(name)
    except UserError as error:
        if say:
            warnings.warn(
                f"{error} Computed on the CPU instead: numbers may differ in their last digits.", stacklevel=3
            )
        return CPU


def devices_here() -> list[str]:
    """All of them, by name."""
    names = ["cpu"]
    for kind in dict.fromkeys((*_AUTO, _current())):
        count = 0 if kind is None else _count(kind)
        names += [kind] if count == 1 and kind is not None else [f"{kind}:{number}" for number in range(count)]
    return names


def record_of(device: torch.device) -> dict[str, str]:
    """For the record of a run: which device it was, and what its maker calls it."""
    if device.type == "cpu":
        return {"device": "cpu"}
    name = getattr(torch.get_device_module(device), "get_device_name", None)
    return {"device": str(device)} | ({} if name is None else {"accelerator": str(name(device))})


def clock(device: torch.device) -> float:
    """Seconds, to take differences of: of this process's work, or of a device once it has done what it was asked."""
    if device.type == "cpu":
        return time.process_time()
    torch.get_device_module(device).synchronize()
    return time.perf_counter()


def _count(kind: str) -> int:
    """How many there are."""
    if kind == "mps":
        return int(torch.backends.mps.is_available())
    module: Any = getattr(torch, kind, None)
    available, count = getattr(module, "is_available", None), getattr(module, "device_count", None)
    return int(count()) if available is not None and available() and count is not None else 0


def _current() -> str | None:
    """The kind of accelerator that torch itself would take."""
    accelerator: Any = getattr(torch, "accelerator", None)  # of newer versions
    if accelerator is None or not accelerator.is_available():
        return None
    current = accelerator.current_accelerator()
    return None if current is None else str(current.type)


def _why_not(kind: str) -> str:
    if kind == "cuda" and torch.version.cuda is None and torch.version.hip is None:
        return "this torch was built without CUDA"
    if kind == "cuda":
        return "this torch was built with CUDA, and sees no GPU with a driver that fits"
    if kind == "mps" and not torch.backends.mps.is_built():
        return "this torch was built without MPS, which is for Apple's machines"
    return f"this torch sees no {kind} device"
