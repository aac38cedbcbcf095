"""The lock of a folder: one process writes there, and the lock ends with it, however it ends."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from fedstein.errors import UserError

__all__ = ["in_use", "take_lock"]


def take_lock(path: Path) -> int:
    """The lock of a folder; it ends with the process that holds it, however that ends.

    Raises:
        UserError: another process holds it.
    """
    lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    for wait in (0.0, 0.1, 0.3, None):  # `in_use` holds it for an instant
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if wait is None:
                holder = os.read(lock, 20).decode(errors="replace").strip()
                os.close(lock)
                raise UserError(
                    f"The folder {path} is in use by process {holder}. Wait for it to end, or stop it."
                ) from None
            time.sleep(wait)
    os.truncate(lock, 0)
    os.write(lock, f"{os.getpid()}\n".encode())
    return lock


def in_use(path: Path) -> bool:
    """Whether a process is writing to a run folder now."""
    try:
        lock = os.open(path / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(lock)
