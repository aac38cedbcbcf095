"""Code by name: ``package.nets:make_cnn`` in a config is something to call, which is imported and run.

Who may name it is decided elsewhere: a user who trains, the list of names that this user has trained with
(`store/allowed.py`) for a run folder, the agent's own node for an order.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedstein.errors import UserError, like

__all__ = ["NAME", "Origin", "imported", "origin"]

NAME = r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$"


@dataclass(frozen=True)
class Origin:
    """Where the code of a module by name comes from."""

    package: str
    file: str | None

    @property
    def version(self) -> str | None:
        """Of the distribution that brings it; None for a file of one's own.

        It is looked for when it is wanted: that goes through the metadata of all that is installed.
        """
        brought_by = packages_distributions().get(self.package)
        return version(brought_by[0]) if brought_by else None

    @property
    def sha256(self) -> str | None:
        """Of the file in which the package begins."""
        if self.file is None or not Path(self.file).is_file():
            return None
        return hashlib.sha256(Path(self.file).read_bytes()).hexdigest()


def origin(name: str) -> Origin:
    """Where ``package.nets:make_cnn`` would come from. Nothing of it is run."""
    package = name.partition(":")[0].partition(".")[0]
    _see_working_folder()
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        return Origin(package, None)
    # A package without an __init__.py has no file, but places.
    return Origin(package, spec.origin or ", ".join(spec.submodule_search_locations or ()) or None)


def imported(name: str, key: str) -> Callable[..., Any]:
    """What a name means.

    Args:
        name: ``package.module:callable``.
        key: the setting that names it, for messages.

    Raises:
        UserError: it cannot be imported here, or is nothing to call.
    """
    path, _, attribute = name.partition(":")
    if path == "__main__":
        raise UserError(f"The '{key}' {name!r} must be in a file of its own: another script is another '__main__'.")
    _see_working_folder()
    try:
        made: Any = importlib.import_module(path)
    except ImportError as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        inside = missing is not None and path != missing and not path.startswith(f"{missing}.")
        why = f"it needs '{missing}', which is not installed" if inside else str(error)
        raise UserError(
            f"The '{key}' {name!r} cannot be imported here: {why}. It must be installed, or be a file in the "
            "folder that you work in."
        ) from error
    except Exception as error:  # whatever a user's file raises when it is read
        raise UserError(f"The '{key}' {name!r} cannot be imported: {type(error).__name__}: {error}.") from error
    for part in attribute.split("."):
        if not hasattr(made, part):
            names = [one for one in dir(made) if not one.startswith("_")]
            raise UserError(f"The '{key}' {name!r} has no '{part}'.{like(part, names)}")
        made = getattr(made, part)
    if not callable(made):
        raise UserError(f"The '{key}' {name!r} must be something to call. Got {made!r}.")
    return made  # type: ignore[no-any-return]


def _see_working_folder() -> None:
    """A file beside the config is found by `fedstein` as it is by `python -m fedstein`."""
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
