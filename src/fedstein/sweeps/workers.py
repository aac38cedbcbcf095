"""Workers: jobs side by side on this machine's cores."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from fedstein.sweeps.jobs import Job, Outcome, do_job

__all__ = ["run_jobs"]


class _Crew:
    """The processes under way, so that all can be told to stop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._processes: list[subprocess.Popen[str]] = []
        self._stopping = False

    def start(self, *arguments: Any, **options: Any) -> subprocess.Popen[str]:
        with self._lock:
            if self._stopping:
                raise InterruptedError
            # In a session of its own, so that Ctrl-C reaches it once, through `stop`: twice would end it at once.
            process = subprocess.Popen(*arguments, **options, start_new_session=True)
            self._processes = [other for other in self._processes if other.poll() is None] + [process]
            return process

    def stop(self) -> None:
        """Each ends after the round that is under way and keeps what it has."""
        with self._lock:
            self._stopping = True
            for process in self._processes:
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)


def run_jobs(
    jobs: Sequence[Job], workers: int, tick: Callable[[], None] = lambda: None, seconds: float = 1.0
) -> Generator[Outcome, None, None]:
    """Do all jobs with so many workers; yields outcomes as they come, and calls `tick` in between.

    After Ctrl-C, all processes are asked to stop, the outcomes so far are yielded, and KeyboardInterrupt goes on.
    """
    crew = _Crew()
    with ThreadPoolExecutor(workers) as pool:
        left: set[Future[Outcome]] = {pool.submit(do_job, job, crew.start) for job in jobs}
        try:
            while left:
                done, left = wait(left, timeout=seconds, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
                tick()
        finally:
            crew.stop()
            for future in left:
                future.cancel()
