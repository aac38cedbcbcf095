"""How two tables of settings differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["differences", "flat"]


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """How two tables of settings differ, one line a key.

    >>> differences({"seed": 0, "method": {"batch": 100}}, {"seed": 0, "method": {"batch": 50}})
    ['method.batch: 100 -> 50']
    """
    before, after = flat(old), flat(new)
    return [
        f"{key}: {before.get(key, 'not set')} -> {after.get(key, 'not set')}"
        for key in dict.fromkeys([*before, *after])
        if before.get(key) != after.get(key)
    ]


def flat(table: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by their dotted keys.

    >>> flat({"seed": 0, "method": {"batch": 100}})
    {'seed': 0, 'method.batch': 100}
    """
    keys: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, list) and value and all(isinstance(part, Mapping) for part in value):
            value = {f"{number}.{inner}": deep for number, part in enumerate(value) for inner, deep in part.items()}
        if isinstance(value, Mapping):
            keys |= {f"{key}.{inner}": deep for inner, deep in value.items()}
        else:
            keys[key] = value
    return keys
