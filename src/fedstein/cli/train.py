"""`fedstein train` and `fedstein resume`: train in a run folder, and go on where it stopped."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import torch
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch import Tensor

from fedstein.build import build_problem, check_particles, fit_config, load_features_of
from fedstein.cli.output import JsonOption, console, print_json, print_metrics
from fedstein.config import Config, load_config, load_preset
from fedstein.engines import Engine, State, start
from fedstein.erasure.request import begin, complete, describe
from fedstein.errors import UserError
from fedstein.problem import Metrics, Problem
from fedstein.report import write_report
from fedstein.runs import RunFolder, is_remote
from fedstein.sweeps import cores
from fedstein.trackers import check_trackers, open_trackers
from fedstein.training import Watcher

__all__ = ["Bar", "RayOption", "VisitsOption", "engine_on", "prepare", "resume", "train", "with_whole_paths", "work"]


class Bar:
    """A progress bar on stderr; it shows nothing where that is not a terminal."""

    def __init__(self, rounds: int) -> None:
        self._progress = Progress(
            TextColumn("rounds"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[metrics]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=type(console)(stderr=True),
            disable=not sys.stderr.isatty(),
        )
        self._task = self._progress.add_task("", total=rounds, metrics="")

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def after_round(self, state: State, metrics: Metrics | None) -> None:
        """Move on."""
        if metrics is not None and "accuracy" in metrics:
            self._progress.update(self._task, metrics=f"acc {metrics['accuracy']:.3f}  ECE {metrics['ece']:.3f}")
        self._progress.update(self._task, completed=state.round)


class _Stop:
    """The first Ctrl-C (or SIGTERM) ends the training after the round that is under way, the second one at once."""

    def __init__(self) -> None:
        self._asked = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True
        print("fedstein: stopping after this round; once more to stop at once", file=sys.stderr)

    def after_round(self, state: State, metrics: Metrics | None) -> None:
        """The place to stop: the last of the watchers, so all others have seen the round."""
        if self._asked:
            raise KeyboardInterrupt


RayOption = Annotated[
    str | None,
    typer.Option(
        "--ray", metavar="ADDRESS", help="Run on a Ray cluster: auto, HOST:PORT, or local to start one (fedstein[ray])."
    ),
]
VisitsOption = Annotated[
    int | None,
    typer.Option("--workers", min=1, max=4096, help="With --ray: visits side by side; one a core if left out."),
]
Report = Annotated[bool, typer.Option("--report", help="End by writing the report: RUN/report.html.")]


def train(
    config_file: Annotated[Path | None, typer.Argument(metavar="[CONFIG.toml]", help="Defaults if left out.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a config key; repeat as needed.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder to make; runs/<method>-<time> if left out.")] = None,
    preset: Annotated[str | None, typer.Option(help="Settings that come with fedstein: unlearning.")] = None,
    report: Report = False,
    ray: RayOption = None,
    workers: VisitsOption = None,
    json: JsonOption = False,
) -> None:
    """Train a model across agents, and keep the run in a folder."""
    if preset is not None and config_file is not None:
        raise UserError("Give a config file or a '--preset', not both; '--set' changes either.")
    given = load_config(config_file, set_ or []) if preset is None else load_preset(preset, set_ or [])
    config = with_whole_paths(given)
    if any(erasure.start > 0 for erasure in config.erasures):
        raise UserError(
            "The config is of an erasure, which begins where another run has ended. Train that run, then use "
            "'fedstein forget'."
        )
    problem = prepare(config, quiet=json)  # whatever can be refused is refused before there is a run folder
    if out is None:
        out = Path("runs") / f"{config.method.name}-{datetime.now():%Y%m%d-%H%M%S-%f}"
    with engine_on(ray, workers, config, problem) as engine, RunFolder.create(out, config, problem.frozen) as run:
        tell = work(run, problem, None, report, json, engine)
    tell()


def resume(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    rounds: Annotated[int | None, typer.Option(min=1, help="Extend the run to so many rounds.")] = None,
    report: Report = False,
    ray: RayOption = None,
    workers: VisitsOption = None,
    json: JsonOption = False,
) -> None:
    """Go on with a run after any stop; the result is bit for bit that of an uninterrupted run."""
    if is_remote(run):
        raise UserError(
            f"The agents of run '{run}' are on machines of their own: go on with 'flwr run APP SUPERLINK --run-config "
            f"\\'run=\"{run.resolve()}\" set=\"rounds=N\"\\'', or with the same 'fedstein forget' if it is an erasure."
        )
    folder, state = RunFolder.resume(run, rounds)
    with folder:
        problem = prepare(folder.config, load_features_of(run), quiet=json)
        check_particles(run, folder.config, problem, None if state is None else state.particles)
        if not json and state is not None:
            done = state.round >= folder.config.rounds
            more = "nothing is left to do; '--rounds N' extends the run" if done else "going on"
            console.print(f"{state.round} of {folder.config.rounds} rounds are done: {more}.")
        if state is None and folder.config.erasures:
            state = begin(folder, problem)
        with engine_on(ray, workers, folder.config, problem) as engine:
            tell = work(folder, problem, state, report, json, engine)
    if folder.config.erasures:
        complete(run)
    tell()


def prepare(config: Config, features: Tensor | None = None, *, quiet: bool) -> Problem:
    """The problem of a config; refuses settings that do not fit each other before any work is done."""
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    check_trackers(config)
    with ExitStack() as watching:
        watchers: list[Watcher] = []
        if config.pretrain.rounds and features is None:
            if not quiet:
                console.print(f"Pre-training the whole network: FedAvg, {config.pretrain.rounds} rounds of all agents")
            watchers = [watching.enter_context(Bar(config.pretrain.rounds))]
        problem = build_problem(config, features, watchers=watchers)
    config.uplink.terms(config.method, problem.model.dim)
    config.method.check(problem.prior)
    config.schedule.pick(0, 1 if config.method.central else len(problem.present), config.seed)
    return problem


@contextmanager
def engine_on(ray: str | None, workers: int | None, config: Config, problem: Problem) -> Iterator[Engine | None]:
    """The engine that `--ray` asks for; None is this process."""
    if ray is None:
        if workers is not None:
            raise UserError("The '--workers' is for '--ray': in one process one agent visits at a time.")
        yield None
        return
    from fedstein.engines.on_ray import Rays, on_ray

    threads = config.threads or 1
    actors = workers or max(1, cores() // threads)
    with on_ray(ray, actors * threads) as cluster:
        build = partial(build_problem, config, problem.frozen)
        yield Rays(cluster, build, len(problem.agents), actors, threads)


def work(
    run: RunFolder,
    problem: Problem,
    state: State | None,
    report: bool,
    json: bool,
    engine: Engine | None = None,
) -> Callable[[], None]:
    """Train in a run folder until its rounds are done. Returns what says what came of it, for when all is done."""
    config = run.config
    if not json:
        console.print(_headline(config, problem))
    if state is None:
        state = start(problem, config.method, config.seed)
        run.save(state)  # so that there is a good state to keep, whatever happens in the first round
    with ExitStack() as watching:
        trackers = [watching.enter_context(tracker) for tracker in open_trackers(run.path, config, state.round)]
        bar = watching.enter_context(Bar(config.rounds))
        trained = fit_config(config, [run, bar, *trackers, _Stop()], problem, state, run.note, engine)
    result = trained.summary(str(run.path), run.seconds, config.uplink.terms(config.method, problem.model.dim))
    if config.erasures:
        result = describe(run.path, result)
    run.finish(result, "interrupted" if trained.interrupted else "finished")
    page = write_report(run.path)[0] if report and not trained.interrupted else None
    if page is not None:
        result |= {"report": str(page)}

    def tell() -> None:
        if json:
            print_json(result)
        else:
            print_metrics(trained.metrics, f"after {trained.state.round} rounds, {result['seconds']:.1f} s")
            if config.erasures:
                console.print(f"Erasure: {result['rounds']:,} rounds, {result['upload_bits']:,} bits sent up")
            console.print(_bill(result))
            console.print(f"Run folder: {run.path}")
            if trained.interrupted:
                console.print(f"Interrupted: what was learnt so far is kept.\nGo on:      fedstein resume {run.path}")
            elif page is not None:
                console.print(f"Report:     {page}")
            elif config.erasures:
                console.print(f"Next:       fedstein audit {run.path}")
            else:
                console.print(f"Next:       fedstein report {run.path}")

    if trained.interrupted:
        tell()
        raise typer.Exit(130)
    return tell


def with_whole_paths(config: Config) -> Config:
    """Paths in a run's config lead to the same place wherever it is read from."""
    data = config.data.model_copy(update={"path": _whole(config.data.path), "indices": _whole(config.data.indices)})
    model = config.model.model_copy(update={"features": _whole(config.model.features)})
    return config.model_copy(update={"data": data, "model": model})


def _whole(path: str | None) -> str | None:
    return None if path is None else str(Path(path).resolve())


def _bill(result: dict[str, Any]) -> str:
    sent, most, budget = result["total_upload_bits"], result["max_upload_bits"], result["budget_bits"]
    if budget is None:
        return f"Uploads: {sent / 8e6:,.1f} MB in all, as plain float32 (no uplink.budget)"
    return f"Uploads: {sent / 8e6:,.3f} MB in all; the largest {most:,} of {budget:,} bits, {result['kept']:,} kept"


def _headline(config: Config, problem: Problem) -> str:
    method, data = config.method, config.data
    partition = "" if data.name.startswith("synthetic") else f" ({data.partition})"
    if config.erasures and config.erasures[-1].start:
        last = config.erasures[-1]
        return (
            f"{last.method} of agents {', '.join(map(str, last.agents))}: {last.rounds} rounds of forgetting, "
            f"{last.repair} of repair by the {len(problem.present)} agents that stay"
        )
    return (
        f"{method.name} on {data.name}: {len(problem.present)} agents{partition}, {method.particles} particles of "
        f"{problem.model.dim:,} parameters, {config.rounds} rounds of {method.local_steps} steps"
    )
