"""Which modules by name this user lets run folders use.

A run folder may come from anybody, and the name of its module is code that runs when the folder is opened. So it is run
only if it is allowed: because this user has trained with it here (the list grows by itself), or by the environment
variable FEDSTEIN_MODULES. A name alone is not enough: another project may have a file of the same name.
"""

from __future__ import annotations

import json
import os
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path

from fedstein.by_name import origin
from fedstein.errors import UserError
from fedstein.store.files import write

__all__ = ["allow_module", "check_allowed", "is_allowed"]


def allow_module(name: str) -> None:
    """This user trains with a module by name: its runs may be opened here."""
    if not is_allowed(name):
        path = _file(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, _entry(name))


def is_allowed(name: str) -> bool:
    """Whether a run folder may use it."""
    patterns = os.environ.get("FEDSTEIN_MODULES", "").split(",")
    return any(fnmatchcase(name, pattern.strip()) for pattern in patterns) or _is_listed(name)


def check_allowed(name: str, run: Path, what: str = "model") -> None:
    """Refuse a run folder whose code, which makes its model or its data, nobody here has allowed."""
    if is_allowed(name):
        return
    if origin(name).file is None:
        raise UserError(
            f"The {what} of run '{run}' is made by '{name}', which is not found from here. Install its package, or "
            "work in the folder that it is in."
        )
    raise UserError(
        f"The {what} of run '{run}' is made by code: '{name}'. Nobody has trained with it here, so it is not run. "
        f"If you trust it, allow it: FEDSTEIN_MODULES='{name}' before the command."
    )


def _is_listed(name: str) -> bool:
    try:
        return _file(name).read_bytes() == _entry(name)
    except OSError:
        return False


def _entry(name: str) -> bytes:
    return json.dumps([name, origin(name).file]).encode()


def _file(name: str) -> Path:
    """A file for each: two trainings that begin at once must not lose each other's."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "fedstein" / "modules" / f"{sha256(_entry(name)).hexdigest()}.json"
