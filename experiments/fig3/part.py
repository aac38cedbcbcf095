"""Some settings of the study alone: their runs, their rows of the table, and the differences of each pair.

    python experiments/fig3/part.py runs/fig3 --runs 5 ours-5,0.5d fedavg-scaled,0.5d

The folder is that of `fedstein reproduce fig3`: runs that are there are not done again.
"""

from __future__ import annotations

import argparse
from itertools import combinations
from pathlib import Path

from fedstein.engines import cores
from fedstein.runs.evaluation import CLEAN
from fedstein.studies import Part
from fedstein.studies.fig3 import METRICS, jobs, to_judge
from fedstein.studies.judge import judge_all
from fedstein.studies.study import mean_text
from fedstein.sweeps import do_jobs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("settings", nargs="+", help="method,budget as in the folder's names")
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    wanted = [
        job for job in jobs(given.out.resolve(), given.runs, quick=False) if job.folder.parent.name in given.settings
    ]
    for outcome in do_jobs(wanted, given.out):
        if outcome.status != "finished":
            raise SystemExit(f"{outcome.job.name}: {outcome.reason or outcome.status}")
    todo = to_judge(job.folder for job in wanted)
    judged = list(zip(todo, judge_all(todo, cores(), lambda done, of: None), strict=True))
    scores = {
        name: [one.scores[CLEAN] for (run, _), one in judged if run.parent.name == name] for name in given.settings
    }
    for name, runs in scores.items():
        cells = [f"{metric} {mean_text([run[metric] for run in runs])}" for metric in (*METRICS, "ece_floor")]
        print(f"{name}: {', '.join(cells)} ({len(runs)} seeds)")
    for one, other in combinations(given.settings, 2):
        if one.partition(",")[2] == other.partition(",")[2]:
            for metric in METRICS:
                sign = 1 if metric == "accuracy" else -1
                pairs = zip(scores[one], scores[other], strict=True)
                print(Part(f"{one} over {other}, {metric}", [sign * (a[metric] - b[metric]) for a, b in pairs]))


if __name__ == "__main__":  # judging starts processes that import this file
    main()
