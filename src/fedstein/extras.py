"""Packages that not everybody needs: one that is missing is named by the extra that brings it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from fedstein.errors import UserError

__all__ = ["needs_extra"]


@contextmanager
def needs_extra(extra: str, what: str) -> Iterator[None]:
    """Around the imports of such packages.

    Args:
        extra: the name in ``fedstein[...]``.
        what: who needs it, as the beginning of a sentence in the plural.

    >>> with needs_extra("report", "Reports"):
    ...     import no_such_package
    Traceback (most recent call last):
    fedstein.errors.UserError: Reports need an extra: pip install 'fedstein[report]'.
    """
    try:
        with _in_peace():
            yield
    except ImportError as error:
        raise UserError(f"{what} need an extra: pip install 'fedstein[{extra}]'.") from error


@contextmanager
def _in_peace() -> Iterator[None]:
    """Ctrl-C waits until an import is over: inside one it would come out as an ImportError."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda *_: pressed.append(1))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        signal.raise_signal(signal.SIGINT)
