"""How much two workers do on two cores: rounds a second of a sweep with one worker and with one a core.

    python benchmarks/workers.py

The same runs (DSVGD, ten particles, Fashion-MNIST, R_u = d), the two kinds interleaved. Start-up of each process and
loading of the data are in it.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from statistics import median

from fedstein.engines import cores
from fedstein.sweeps import plan_sweep, run_jobs

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    count = cores()
    table = {
        "seeds": list(range(2 * count)),
        "base": {
            "rounds": options.rounds,
            "method": {"local_steps": 10},
            "uplink": {"budget": "1.0d"},
            "evaluation": {"every": 50},
        },
    }
    rates: dict[int, list[float]] = {1: [], count: []}
    for _ in range(options.repeats):
        for workers in rates:
            folder = Path(tempfile.mkdtemp())
            jobs = [planned.job(folder) for planned in plan_sweep(table)]
            began = time.perf_counter()
            assert all(outcome.status == "finished" for outcome in run_jobs(jobs, workers))
            rates[workers].append(options.rounds * len(jobs) / (time.perf_counter() - began))
            shutil.rmtree(folder)
            print(f"{workers} workers: {rates[workers][-1]:.2f} rounds a second", flush=True)
    ratio = median(many / one for one, many in zip(rates[1], rates[count], strict=True))
    print(f"{count} workers on {count} cores do {ratio:.2f} times the rounds of one (median of {options.repeats}).")
