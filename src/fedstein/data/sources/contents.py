"""By what a run knows again the files that its data came from: SHA-256, by whose they are.

Agents' own files are known by themselves, so that what is known of an agent can be purged with the agent, and that
somebody else's files may go without a word. Where a table has everybody's rows, it is their rows that are known.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from fedstein.data.examples import Examples
from fedstein.data.rows import loaded
from fedstein.data.sources.fetch import sha256_of
from fedstein.errors import UserError

__all__ = ["EVERYBODYS", "Contents", "Digests", "digests_of", "of_agent", "of_rows"]

EVERYBODYS = ""  # the owner of what is no single agent's

Contents = Mapping[str, Mapping[str, Path | str]]
"""By owner, a folder in a run, and by name for messages: a file, or the SHA-256 of a part of one."""

Digests = Mapping[str, Mapping[str, str]]
"""The same, with the SHA-256 of everything."""


def of_agent(agent: int) -> str:
    """The owner that an agent is: its folder in a run."""
    return f"agents/agent-{agent}"


def of_rows(rows: Examples) -> str:
    """SHA-256 of some rows of a table, whatever else is in it."""
    content = hashlib.sha256(repr((tuple(rows.x.shape), tuple(rows.y.shape))).encode())
    for part in (loaded(rows.x), rows.y):  # as float64: of what type they are hangs on all rows together
        content.update(part.double().contiguous().numpy().tobytes())
    return content.hexdigest()


def digests_of(contents: Contents) -> Digests:
    """Read every file once."""
    return {
        owner: {name: _digest(where) for name, where in parts.items()} for owner, parts in contents.items() if parts
    }


def _digest(where: Path | str) -> str:
    if isinstance(where, str):
        return where
    try:
        return sha256_of(where)
    except OSError as error:
        raise UserError(f"Cannot read the data file {where}: {error.strerror}.") from error
