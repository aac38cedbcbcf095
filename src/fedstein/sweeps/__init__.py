"""Many runs: a plan of them, and workers that do them on this machine's cores or on a Ray cluster."""

from fedstein.sweeps.jobs import Job, Outcome, Step, result_of
from fedstein.sweeps.plan import Planned, load_sweep, plan_sweep
from fedstein.sweeps.workers import cores, run_jobs

__all__ = ["Job", "Outcome", "Planned", "Step", "cores", "load_sweep", "plan_sweep", "result_of", "run_jobs"]
