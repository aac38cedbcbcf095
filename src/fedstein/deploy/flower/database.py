"""The SuperLink's own database: it forgets a message when it is delivered, and its file does not.

SQLite keeps what was deleted in free pages (unless it was built otherwise) and in the write-ahead log, until something
else is written there. So an agent's last frames can outlive its erasure there.
"""

from __future__ import annotations

import sqlite3
import time
import warnings
from contextlib import closing
from pathlib import Path

from fedstein.errors import UserError

__all__ = ["purge_database"]


HOLDS = ("objects", "message", "message_ins", "message_res", "task_message")  # what is on its way, or was
PATIENCE = 20.0  # seconds: a SuperLink tidies up a moment after a run has ended


def purge_database(path: Path, seconds: float | None = None) -> int:
    """Write a SuperLink's database anew, without anything that was deleted; how many bytes that freed.

    The SuperLink may be running: it waits for a moment. What it has not deleted itself yet is waited for.

    Args:
        path: the database.
        seconds: how long to wait for what is left of a run that has just ended; `PATIENCE` if None.
    """
    if not path.is_file():
        raise UserError(f"The 'DATABASE' must be the file that the SuperLink was started with. Got {str(path)!r}.")
    before = _size(path)
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=rw", timeout=30, uri=True)) as database:
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
            if not {"node", "run", "message_ins"} <= tables:  # nothing is written to what is something else
                raise sqlite3.DatabaseError("it has no tables of Flower's")
            held = [name for name in HOLDS if name in tables]
            end = time.monotonic() + (PATIENCE if seconds is None else seconds)
            while (left := _rows(database, held)) and time.monotonic() < end:
                time.sleep(0.2)
            if left:
                warnings.warn(
                    f"The SuperLink still holds {left} messages or parts of them: of a run that is under way, or that "
                    "nobody has fetched. Purge again when it has ended.",
                    stacklevel=2,
                )
            database.execute("VACUUM")
            busy, *_ = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.OperationalError as error:
        raise UserError(f"Cannot write the database {path} anew: {error}. Try again.") from error
    except sqlite3.DatabaseError as error:
        raise UserError(f"The 'DATABASE' must be a SuperLink's. Got {str(path)!r}: {error}.") from error
    if busy:
        raise UserError(f"The database {path} is in use: some of its log could not be let go. Try again.")
    return before - _size(path)


def _rows(database: sqlite3.Connection, tables: list[str]) -> int:
    return sum(int(database.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0]) for table in tables)


def _size(path: Path) -> int:
    files = (path, path.with_name(f"{path.name}-wal"))
    return sum(file.stat().st_size for file in files if file.exists())
