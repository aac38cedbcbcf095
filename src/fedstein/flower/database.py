"""The SuperLink's own database: it forgets a message when it is delivered, and its file does not.

SQLite keeps what was deleted in free pages (unless it was built otherwise) and in the write-ahead log, until something
else is written there. So an agent's last frames can outlive its erasure there.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from fedstein.errors import UserError

__all__ = ["purge_database"]


def purge_database(path: Path) -> int:
    """Write a SuperLink's database anew, without anything that was deleted; how many bytes that freed.

    The SuperLink may be running: it waits for a moment.
    """
    if not path.is_file():
        raise UserError(f"The 'DATABASE' must be the file that the SuperLink was started with. Got {str(path)!r}.")
    before = _size(path)
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=rw", timeout=30, uri=True)) as database:
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
            if not {"node", "run", "message_ins"} <= tables:  # nothing is written to what is something else
                raise sqlite3.DatabaseError("it has no tables of Flower's")
            database.execute("VACUUM")
            busy, *_ = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.OperationalError as error:
        raise UserError(f"Cannot write the database {path} anew: {error}. Try again.") from error
    except sqlite3.DatabaseError as error:
        raise UserError(f"The 'DATABASE' must be a SuperLink's. Got {str(path)!r}: {error}.") from error
    if busy:
        raise UserError(f"The database {path} is in use: some of its log could not be let go. Try again.")
    return before - _size(path)


def _size(path: Path) -> int:
    files = (path, path.with_name(f"{path.name}-wal"))
    return sum(file.stat().st_size for file in files if file.exists())
