"""What a round costs on each engine: the same run in one process, on Ray, in a Flower simulation and in a deployment.

    python benchmarks/engines.py [--rounds 20]

Ten particles of 79,510 parameters go down (3.2 MB), at most 79,510 bits come up; a visit is one local step, so what is
measured is mostly the engine. The figures are medians of the times between rounds, from the runs' own journals.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from fedstein.deploy.flower.trial import federation
from fedstein.runs.folder import load_particles
from fedstein.store import read_journal

SETTINGS = ("model.hidden=[100]", "threads=1", "method.local_steps=1", "uplink.budget=1.0d", "evaluation.every=1000")
NAMES = ("north", "south", "west")


def seconds(run: Path) -> tuple[float, float, float]:
    """Median, smallest and largest time between rounds, without the first two."""
    times = [datetime.fromisoformat(event["time"]) for event in read_journal(run) if event["event"] == "scheduled"]
    gaps = [(after - before).total_seconds() for before, after in pairwise(times[2:])]
    return statistics.median(gaps), min(gaps), max(gaps)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    runs = {}
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        with federation(place / "deployment") as here:
            split = ("--set", "data.agents=3", "--set", "data.examples=500")
            here.fedstein("data", "split", "data", *split)
            sets = [*SETTINGS, "data.name=folder", f"data.path={here.folder / 'data'}", "data.agents=3"]
            words = [word for setting in (*sets, f"rounds={rounds}") for word in ("--set", setting)]
            for several in (1, 3):
                more = ["--set", f"schedule.agents_per_round={several}"]
                key = f"{several} of 3 agents a round"
                here.fedstein("train", *words, *more, "--out", f"local-{several}")
                here.fedstein("train", *words, *more, "--ray", "local", "--out", f"ray-{several}")
                here.fedstein("flower", "init", f"app-{several}", "--agents", ",".join(NAMES), *words, *more)
                runs["local", key] = here.folder / f"local-{several}"
                runs["Ray, two actors", key] = here.folder / f"ray-{several}"
                runs["Flower deployment", key] = here.folder / f"app-{several}-run"
            here.start_link()
            for number, agent in enumerate(NAMES):
                here.register(agent)
                here.start_node(agent, here.folder / "data" / f"agent-{number}.npz")
            for several in (1, 3):
                here.flwr("run", f"app-{several}", "trial", "--stream")
            with federation(place / "simulation", simulated=True) as there:
                there.start_link()
                for several in (1, 3):
                    more = ["--set", f"schedule.agents_per_round={several}"]
                    there.fedstein("flower", "init", f"app-{several}", *words, *more)
                    nodes = "num-supernodes=3 client-resources-num-cpus=1 init-args-num-cpus=2"
                    there.flwr("run", f"app-{several}", "trial", "--stream", "--federation-config", nodes)
                    runs["Flower simulation", f"{several} of 3 agents a round"] = there.folder / f"app-{several}-run"
                print(f"{'engine':20s} {'agents':24s} seconds a round: median (smallest to largest); particles")
                for (engine, key), run in runs.items():
                    middle, least, most = seconds(run)
                    one = load_particles(runs["local", key])
                    same = "the same" if load_particles(run).equal(one) else "OTHER"
                    print(f"{engine:20s} {key:24s} {middle:.3f} ({least:.3f} to {most:.3f}); {same}")


if __name__ == "__main__":
    main()
