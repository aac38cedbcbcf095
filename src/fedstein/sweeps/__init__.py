"""Many runs: a plan of them, and workers that do them on this machine's cores or on a Ray cluster."""

from fedstein.sweeps.jobs import Ending, Job, Kind, Outcome, Status
from fedstein.sweeps.plan import Planned, load_sweep, plan_sweep
from fedstein.sweeps.steps import Forget, Step, result_of
from fedstein.sweeps.sweep import JobWatcher, Row, Stopped, Sweep, do_jobs, run_sweep
from fedstein.sweeps.workers import run_jobs

__all__ = [
    "Ending",
    "Forget",
    "Job",
    "JobWatcher",
    "Kind",
    "Outcome",
    "Planned",
    "Row",
    "Status",
    "Step",
    "Stopped",
    "Sweep",
    "do_jobs",
    "load_sweep",
    "plan_sweep",
    "result_of",
    "run_jobs",
    "run_sweep",
]
