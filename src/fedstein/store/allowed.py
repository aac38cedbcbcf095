"""Which modules by name this user lets run folders use.

A run folder may come from anybody, and the name of its module is code that runs when the folder is opened. So it is run
only if it is allowed: because this user has trained with it here (the list grows by itself), or by the environment
variable FEDSTEIN_MODULES. A name alone is not enough: another project may have a file of the same name.
"""

from __future__ import annotations

import json
import os
from fnmatch import fnmatchcase
from pathlib import Path

from fedstein.errors import UserError
from fedstein.models.named import origin
from fedstein.store.files import write

__all__ = ["allow_module", "check_allowed", "is_allowed"]


def allow_module(name: str) -> None:
    """This user trains with a module by name: its runs may be opened here."""
    if not is_allowed(name):
        path = _file()
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, json.dumps([*_entries(), _entry(name)], indent=2).encode())


def is_allowed(name: str) -> bool:
    """Whether a run folder may use it."""
    patterns = os.environ.get("FEDSTEIN_MODULES", "").split(",")
    return any(fnmatchcase(name, pattern.strip()) for pattern in patterns) or _entry(name) in _entries()


def check_allowed(name: str, run: Path) -> None:
    """Refuse a run folder whose module nobody here has allowed."""
    if is_allowed(name):
        return
    if origin(name).file is None:
        raise UserError(
            f"The model of run '{run}' is made by '{name}', which is not found from here. Install its package, or work "
            "in the folder that it is in."
        )
    raise UserError(
        f"The model of run '{run}' is made by code: '{name}'. Nobody has trained with it here, so it is not run. "
        f"If you trust it, allow it: FEDSTEIN_MODULES='{name}' before the command."
    )


def _entry(name: str) -> list[str | None]:
    return [name, origin(name).file]


def _entries() -> list[list[str | None]]:
    try:
        entries = json.loads(_file().read_bytes())
    except (OSError, ValueError, RecursionError):
        return []
    return [entry for entry in entries if isinstance(entry, list)] if isinstance(entries, list) else []


def _file() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "fedstein" / "modules.json"
