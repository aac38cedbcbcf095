"""What checkpoints, journal and metrics cost, as a share of a training run.

Two measures: the time inside the run folder's own calls against the rest of the same run, and the same training with
and without a run folder, in turns (on a busy machine much noisier than what it measures).

    python benchmarks/recording.py              the default cadence, with the first and the last checkpoint
    python benchmarks/recording.py --report     also: a report of 10,000 rounds, its size, its first paint in Chromium

Evaluations belong to the rest. The digits problem is as small as problems get, so its share is the worst.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from fedstein.protocol.server import start
from fedstein.report import write_report
from fedstein.runs.problem import build_problem
from fedstein.runs.recorder import Recorder
from fedstein.runs.verbs import fit_config
from fedstein.settings import make_config

PAINTED = """() => new Promise(done => new PerformanceObserver(list => {
    for (const entry of list.getEntriesByName("first-contentful-paint")) done(entry.startTime);
}).observe({ type: "paint", buffered: true }))"""

SETTINGS = {
    "the default run": [],
    "linear factors, budget 1.0d, feedback": [
        "method.factor=linear", "uplink.budget=1.0d", "uplink.feedback=true",
    ],
    "digits, 3 particles": ["data.name=digits", "method.particles=3"],
}  # fmt: skip


class Timed(Recorder):
    """A recorder that counts the seconds it takes."""

    spent = 0.0


def timed(name: str) -> None:
    real = getattr(Recorder, name)

    def call(self, *arguments, **options):
        began = time.perf_counter()
        try:
            return real(self, *arguments, **options)
        finally:
            Timed.spent += time.perf_counter() - began

    setattr(Timed, name, call)


for name in ("after_round", "note", "save"):
    timed(name)


def train(config, problem, folder: Path | None) -> float:
    state = start(problem.task, config.method, config.seed)
    began = time.perf_counter()
    if folder is None:
        fit_config(config, problem=problem, state=state)
    else:
        with Timed.create(folder / "run", config) as run:
            run.save(state)
            trained = fit_config(config, problem=problem, state=state, watchers=[run], note=run.note)
            run.save(trained.state)
    return time.perf_counter() - began


def compare(name: str, overrides: list[str], rounds: int, turns: int) -> None:
    config = make_config(overrides=[*overrides, f"rounds={rounds}"])
    problem = build_problem(config)
    shares, ratios, size = [], [], 0
    for turn in range(turns):
        with tempfile.TemporaryDirectory() as folder:
            Timed.spent = 0.0
            order = [None, Path(folder)] if turn % 2 else [Path(folder), None]
            seconds = {place: train(config, problem, place) for place in order}
            shares.append(Timed.spent / (seconds[Path(folder)] - Timed.spent))
            ratios.append(seconds[Path(folder)] / seconds[None] - 1)
            size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    print(
        f"| {name} | {seconds[None] / rounds * 1e3:.1f} ms | {statistics.median(shares):.1%} | {max(shares):.1%} | "
        f"{statistics.median(ratios):+.1%} ({min(ratios):+.1%} to {max(ratios):+.1%}) | {size / 1e6:.1f} MB |"
    )


def paint() -> None:
    """A real run of 10,000 rounds, its report, and when Chromium shows it first."""
    from playwright.sync_api import sync_playwright

    overrides = ["data.name=digits", "data.examples=20", "model.hidden=[]", "method.particles=2", "rounds=10000",
                 "method.local_steps=1", "evaluation.every=5", "uplink.budget=1d"]  # fmt: skip
    config = make_config(overrides=overrides)
    with tempfile.TemporaryDirectory() as folder:
        train(config, build_problem(config), Path(folder))
        began = time.perf_counter()
        page = write_report(Path(folder) / "run").page
        seconds = time.perf_counter() - began
        print(f"\n10,000 rounds: report written in {seconds:.1f} s, {page.stat().st_size / 1e3:.0f} kB")
        times = []
        with sync_playwright() as play:
            flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
            browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
            for _ in range(5):
                opened = browser.new_page()
                opened.goto(page.as_uri())
                times.append(opened.evaluate(PAINTED))
                opened.close()
            browser.close()
        print(f"first contentful paint: {', '.join(f'{value:.0f}' for value in times)} ms (five openings)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    head = ["run", "a round", "recording, median", "the worst", "with against without", "folder"]
    print(f"| {' | '.join(head)} |\n{'|---' * len(head)}|")
    for name, overrides in SETTINGS.items():
        compare(name, overrides, options.rounds, options.turns)
    if options.report:
        paint()
