"""Jobs on a Ray cluster: the same jobs, the same processes, on more machines.

Every machine needs fedstein, the data, and the folder of the sweep under the same path (a shared file system), as the
run folders are written where the runs are done.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

from fedstein.engines import cores
from fedstein.engines.ray import on_ray
from fedstein.sweeps.jobs import Job, Outcome, do_job

__all__ = ["run_jobs_on_ray"]


def run_jobs_on_ray(
    jobs: Sequence[Job], address: str, workers: int | None, tick: Callable[[], None], seconds: float = 1.0
) -> Generator[Outcome, None, None]:
    """As `run_jobs`, on the cluster at `address`: `auto`, HOST:PORT, or `local` to start one on this machine.

    A job takes as many CPUs of the cluster as its config has threads; `workers` limits how many run side by side.
    """
    with on_ray(address, workers or cores()) as ray:
        yield from _on(ray, jobs, workers, tick, seconds)


def _on(
    ray: Any, jobs: Sequence[Job], workers: int | None, tick: Callable[[], None], seconds: float
) -> Generator[Outcome, None, None]:
    work = ray.remote(max_retries=0)(do_job)
    waiting = list(jobs)
    running: dict[Any, Job] = {}
    try:
        while waiting or running:
            while waiting and (workers is None or len(running) < workers):
                job = waiting.pop(0)
                running[work.options(num_cpus=job.threads, name=job.name).remote(job)] = job
            done, _ = ray.wait(list(running), timeout=seconds)
            for one in done:
                job = running.pop(one)
                try:
                    yield ray.get(one)
                except ray.exceptions.RayError as error:  # the machine or its worker is gone
                    yield Outcome(job, "failed", str(error).strip()[-2000:])
            tick()
    finally:
        for one in running:
            ray.cancel(one)
        ray.wait(list(running), num_returns=len(running), timeout=60) if running else None
