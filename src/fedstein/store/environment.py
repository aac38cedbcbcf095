"""On what a run was made: versions, machine, threads, device."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distributions, version
from typing import Any

import torch

from fedstein.devices import CPU, record_of

__all__ = ["environment", "unlike"]

_PACKAGES = ("fedstein", "torch", "numpy", "constriction", "safetensors", "scipy", "scikit-learn", "pydantic")


def environment(threads: int | None = None, device: torch.device = CPU) -> dict[str, Any]:
    """Of this process, or of one with so many threads, which computes on a device."""
    return {
        **{name: _version(name) for name in _PACKAGES},
        **({"plugins": plugins} if (plugins := _plugins()) else {}),
        "python": platform.python_version(),
        "system": platform.platform(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": threads or torch.get_num_threads(),
        "simd": torch.backends.cpu.get_cpu_capability(),
        **record_of(device),
    }


def _plugins() -> list[str]:
    """The packages that bring parts of their own, with their versions."""
    names = set()
    for distribution in distributions():
        if any(point.group.startswith("fedstein.") for point in distribution.entry_points):
            names.add(f"{distribution.name} {distribution.version}")
    return sorted(names)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def unlike(before: Any, now: dict[str, Any]) -> list[str]:
    """In what of that which decides the last bits two environments differ."""
    if not isinstance(before, dict):
        return []
    lines = [
        f"This run began with {name} {before.get(name)} and goes on with {now[name]}"
        for name in ("fedstein", "torch", "constriction", "machine", "threads", "simd")
        if before.get(name) != now[name]
    ]
    then, here = _kind(before), _kind(now)
    return lines if then == here else [*lines, f"This run began with device {then} and goes on with {here}"]


def _kind(record: Mapping[str, Any]) -> str:
    """The kind of a device, whatever its number; runs from before there were devices were on the CPU."""
    kind = str(record.get("device", "cpu")).partition(":")[0]
    return f"{kind} ({record['accelerator']})" if "accelerator" in record else kind
