"""The verbs that train: begin a run, go on with one, forget. Every one of them fills a run folder in the same way.

Nothing here prints or exits. A mistake is a `UserError`, particles that are no longer finite a `DivergedError`, a disk
that is full a `RunError`; a training that was interrupted says so in what it returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fedstein.data import loaded
from fedstein.data.sources.table import agent_id
from fedstein.devices import device_here
from fedstein.engines import Local, open_engine
from fedstein.errors import UserError
from fedstein.models import TorchModule, fingerprint
from fedstein.protocol.messages import Engine, Note, no_note
from fedstein.protocol.patience import Patience
from fedstein.protocol.server import start
from fedstein.protocol.state import State, Told
from fedstein.runs.data_record import check_data, hashed
from fedstein.runs.folder import check_particles, edits, is_remote, load_run_config
from fedstein.runs.forget.complete import complete, describe
from fedstein.runs.forget.request import Request, begin, network_files_of, open_run
from fedstein.runs.forget.rounds import erasure_rounds
from fedstein.runs.given import Given, check_given
from fedstein.runs.network_files import NetworkFiles, load_network_files
from fedstein.runs.onlooker import Onlooker
from fedstein.runs.problem import MADE_IN_PYTHON, Problem, build_problem, crew_of
from fedstein.runs.recorder import Recorder
from fedstein.runs.training import Trained, fit
from fedstein.runs.trying import try_network
from fedstein.settings import Config, flat, to_table
from fedstein.store.allowed import allow_module
from fedstein.store.features import let_go
from fedstein.store.journal import erasures_of
from fedstein.store.lineage import Erasure, Lineage, load_lineage
from fedstein.streams import stream
from fedstein.trackers import Watcher, check_trackers, open_trackers

__all__ = [
    "Filled",
    "How",
    "allow_code",
    "check",
    "fill",
    "fit_config",
    "forget",
    "headline",
    "leaving_out",
    "prepare",
    "resume",
    "train",
    "with_whole_paths",
    "written_down",
]


@dataclass(frozen=True)
class How:
    """How a verb works: on which engine, and with whom looking on.

    Args:
        engine: its name, ``local`` or ``ray:ADDRESS`` for instance.
        workers: visits side by side, where the engine can.
        onlooker: is told what is done.
        watchers: are told of every round, after all others.
        device: on which it is computed, where that is another one than the config's: to go on with a run elsewhere.
    """

    engine: str = "local"
    workers: int | None = None
    onlooker: Onlooker = Onlooker()  # noqa: RUF009  (it keeps nothing)
    watchers: Sequence[Watcher] = ()
    device: str | None = None


@dataclass(frozen=True, repr=False)
class Filled:
    """A run folder, and what its training has come to."""

    path: Path
    config: Config
    lineage: Lineage
    problem: Problem
    trained: Trained
    result: dict[str, Any]  # as `--json` prints it


def train(
    config: Config,
    out: Path,
    given: Given | None = None,
    how: How = How(),  # noqa: B008
    without: Sequence[int] = (),
) -> Filled:
    """Train a new model in a new run folder.

    Args:
        config: every setting.
        out: the folder to make.
        given: what was given in Python, for a run of it.
        how: engine and onlookers.
        without: agents that take no part; they keep their numbers.

    Raises:
        UserError: settings that do not fit each other, or a folder that is there; nothing was made then.
    """
    lineage = leaving_out(without)
    problem = prepare(config, lineage, given=given, onlooker=how.onlooker)  # refused before there is a run folder
    allow_code(config)
    config, data = written_down(config, problem), hashed(problem, how.onlooker)
    with (
        open_engine(how.engine, crew_of(config, lineage, problem, given), how.workers) as engine,
        Recorder.create(out, config, lineage, problem.network_files, given, problem.device, data) as run,
    ):
        return fill(run, problem, None, engine, how)


def allow_code(config: Config) -> None:
    """Who trains with code by name lets the run folder use it."""
    for name in (config.model.module, config.data.source):
        if name is not None:
            allow_module(name)


def written_down(config: Config, problem: Problem) -> Config:
    """The settings with what was only known when data and network were there, so that they stay what they are.

    A network by name is tried before: this is the last that happens before there is a run folder.
    """
    try_network(problem)
    network, model = problem.network, problem.task.model
    known: dict[str, Any] = {}
    if network is not None and network.parameters is not None:
        known["fingerprint"] = fingerprint(network.parameters)
    if isinstance(model, TorchModule) and not config.data.synthetic:
        some = next((data for data in problem.holdings.agents if len(data)), problem.judge.test)
        if some is not None:
            batch = some.take(torch.arange(min(len(some), config.method.batch)))
            known["way"] = model.choose(loaded(batch.x), batch.y, model.draw(config.method.particles, stream(0, "way")))
    names = {"agent_ids": tuple(map(agent_id, problem.holdings.names))}  # so that each can be asked for by name
    data, model_section = (
        config.data.model_copy(update=names | dict(problem.data)),
        config.model.model_copy(update=known),
    )
    posterior = config.posterior.whole(config.method.particles)
    return config.model_copy(update={"data": data, "model": model_section, "posterior": posterior})


def leaving_out(agents: Sequence[int]) -> Lineage:
    """The lineage of a model that never had some of the agents."""
    return Lineage(erasures=(Erasure(agents=tuple(sorted(agents)), method="retrain"),)) if agents else Lineage()


def resume(path: Path, rounds: int | None = None, given: Given | None = None, how: How = How()) -> Filled:  # noqa: B008
    """Go on with a run after any stop; the result is bit for bit that of an uninterrupted run.

    Args:
        path: the run folder.
        rounds: extend the run to so many.
        given: what the run was given in Python, the same again.
        how: engine and onlookers.
    """
    if is_remote(path):
        raise UserError(
            f"The agents of run '{path}' are on machines of their own: go on with 'flwr run APP SUPERLINK --run-config "
            f"\\'run=\"{path.resolve()}\" set=\"rounds=N\"\\'', or with the same 'fedstein forget' if it is an erasure."
        )
    config = load_run_config(path, careful=False)
    if given is None and config.is_given:
        raise UserError(MADE_IN_PYTHON)
    if given is not None:  # before anything is written: '--rounds' must not be half done
        check_given(path, given, config, load_lineage(path).erased)
    device = device_here(config.device if how.device is None else how.device)

    def problem_of(config: Config, lineage: Lineage) -> Problem:
        files = load_network_files(path)
        problem = prepare(config, lineage, given=given, files=files, onlooker=how.onlooker, device=device)
        check_data(path, hashed(problem, how.onlooker), lineage.erased)
        return problem

    # What is wrong with the run itself is told by the recorder; all else before anything is written.
    ready = None if edits(path) or erasures_of(path) else problem_of(config, load_lineage(path))
    run, state = Recorder.resume(path, rounds, device)
    with run:
        problem = problem_of(run.config, run.lineage) if ready is None else ready
        check_particles(path, run.config, problem.dim, None if state is None else state.particles)
        if state is not None:
            done = state.round >= run.config.rounds
            more = "nothing is left to do; '--rounds N' extends the run" if done else "going on"
            how.onlooker.say(f"{state.round} of {run.config.rounds} rounds are done: {more}.")
        crew = crew_of(run.config, run.lineage, problem, given)
        with open_engine(how.engine, crew, how.workers) as engine:
            filled = fill(run, problem, state, engine, how)
    if run.lineage.asked and not filled.trained.interrupted:
        complete(path)
    return filled


def forget(request: Request, given: Given | None = None, how: How = How()) -> Filled:  # noqa: B008
    """Do what a request asks for, in this process or on an engine of one owner; what was done of it is gone on with.

    Args:
        request: as `ask` has written it down.
        given: what the run was given in Python, the same again.
        how: engine and onlookers.
    """
    problem = prepare(
        request.config, request.lineage, given=given, files=network_files_of(request), onlooker=how.onlooker
    )
    if (request.out / "config.toml").is_file():  # it is gone on with; else it was asked a moment ago
        check_data(request.out, hashed(problem, how.onlooker), request.lineage.erased)
    run, state = open_run(request, problem, given)
    with run:
        crew = crew_of(run.config, run.lineage, problem, given)
        with open_engine(how.engine, crew, how.workers) as engine:
            filled = fill(run, problem, state, engine, how)
    if not filled.trained.interrupted:
        complete(request.out)
        let_go()
    return filled


def prepare(
    config: Config,
    lineage: Lineage,
    *,
    given: Given | None = None,
    files: NetworkFiles = NetworkFiles(),  # noqa: B008
    onlooker: Onlooker = Onlooker(),  # noqa: B008
    device: torch.device | None = None,
) -> Problem:
    """The problem of a config; refuses settings that do not fit each other before any work is done.

    Args:
        config: every setting.
        lineage: who was erased.
        given: what was given in Python.
        files: what a run has kept of the network.
        onlooker: sees the pre-training.
        device: where it is computed, if not where the config says.
    """
    torch.set_num_threads(config.threads)
    check_trackers(config.recording.trackers)
    device = device_here(config.device) if device is None else device  # told before data is read
    with ExitStack() as watching:
        watchers: list[Watcher] = []
        if config.pretrain.rounds and files.frozen is None:
            title = f"Pre-training the whole network: FedAvg, {config.pretrain.rounds} rounds of all agents"
            onlooker.say(title)
            watchers = [watching.enter_context(onlooker.watching(title, config.pretrain.rounds))]
        problem = build_problem(config, lineage, given=given, files=files, watchers=watchers, device=device)
    check(config, problem)
    return problem


def check(config: Config, problem: Problem) -> None:
    """Refuse settings that do not fit each other."""
    config.uplink.link(config.method, problem.dim)
    config.method.check(problem.task.prior)
    config.schedule.pick(0, 1 if config.method.central else len(problem.holdings.present), config.seed)


def fill(
    run: Recorder,
    problem: Problem,
    state: State | None,
    engine: Engine,
    how: How = How(),  # noqa: B008
    patience: Patience = Patience(),  # noqa: B008
    note: Note | None = None,
) -> Filled:
    """Train in a run folder until its rounds are done: begin, go round after round, finish.

    Args:
        run: the folder, open.
        problem: what is learnt, from whom.
        state: where to go on from; None at the very beginning.
        engine: carries the messages.
        how: who looks on.
        patience: how long a round waits.
        note: is told of protocol events instead of the journal alone.
    """
    config, lineage = run.config, run.lineage
    how.onlooker.say(headline(config, lineage, problem))
    for words in problem.notes:
        how.onlooker.say(f"  {words}")
    if state is None and lineage.asked:
        state = begin(run, problem)
    if state is None:
        state = start(problem.task, config.method, config.seed)
        run.save(state)  # so that there is a good state to keep, whatever happens in the first round
    with ExitStack() as watching:
        names, settings = config.recording.trackers, flat(to_table(config))
        trackers = [watching.enter_context(one) for one in open_trackers(names, run.path, settings, state.round)]
        bar = watching.enter_context(how.onlooker.watching("training", config.rounds))
        watchers = [run, bar, *trackers, *how.watchers]
        trained = fit_config(
            config, lineage, problem=problem, state=state, told=run.told, watchers=watchers,
            note=run.note if note is None else note, engine=engine, patience=patience,
        )  # fmt: skip
    result = trained.summary(str(run.path), run.seconds, config.uplink.link(config.method, problem.dim))
    if lineage.asked:
        result = describe(run.path, result)
    run.finish(result, "interrupted" if trained.interrupted else "finished")
    return Filled(run.path, config, lineage, problem, trained, result)


def fit_config(
    config: Config,
    lineage: Lineage = Lineage(),  # noqa: B008
    *,
    problem: Problem | None = None,
    state: State | None = None,
    told: Told = Told(),  # noqa: B008
    watchers: Sequence[Watcher] = (),
    note: Note = no_note,
    engine: Engine | None = None,
    patience: Patience = Patience(),  # noqa: B008
) -> Trained:
    """Train as a config says, in memory.

    Args:
        config: every setting.
        lineage: the erasures behind the model; with a state, the newest of them is what is done.
        problem: if it was built already.
        state: where to go on from.
        told: of the last round that is done.
        watchers: told after every round.
        note: is told of every protocol event.
        engine: carries the messages; every agent is in this process if it is None.
        patience: how long a round waits.
    """
    torch.set_num_threads(config.threads)
    problem = build_problem(config, lineage) if problem is None else problem
    engine = Local(problem.task, problem.holdings, config.method.central) if engine is None else engine
    more = None
    if state is not None and lineage.forgets:
        more = erasure_rounds(problem, config, lineage, state, engine, note, patience)
    return fit(
        problem.task,
        problem.holdings,
        problem.evaluate,
        config.method,
        rounds_to_do=config.rounds,
        schedule=config.schedule,
        seed=config.seed,
        evaluate_every=config.evaluation.every,
        posterior=config.posterior,
        watchers=watchers,
        state=state,
        told=told,
        link=config.uplink.link(config.method, problem.dim),
        note=note,
        escrow=config.recording.escrow,
        more=more,
        engine=engine,
        patience=patience,
    )


def with_whole_paths(config: Config) -> Config:
    """Paths in a run's config lead to the same place wherever it is read from."""
    paths = {"path": _whole(config.data.path), "indices": _whole(config.data.indices)}
    if isinstance(config.data.test, str):
        paths["test"] = _whole(config.data.test)
    data = config.data.model_copy(update=paths)
    model = config.model.model_copy(
        update={"features": _whole(config.model.features), "weights": _whole(config.model.weights)}
    )
    return config.model_copy(update={"data": data, "model": model})


def _whole(path: str | None) -> str | None:
    return None if path is None else str(Path(path).resolve())


def headline(config: Config, lineage: Lineage, problem: Problem) -> str:
    """What a run is about, in a line."""
    method, data, agents = config.method, config.data, len(problem.holdings.present)
    if lineage.forgets:
        last = lineage.newest
        return (
            f"{last.method} of agents {', '.join(map(str, last.agents))}: {last.rounds} rounds of forgetting, "
            f"{last.repair} of repair by the {agents} agents that stay"
            + ("; the last particles predict" if config.posterior.from_ == "last" else "")
        )
    partition = "" if data.synthetic or config.is_given or problem.holdings.names else f" ({data.partition})"
    return (
        f"{method.name} on {'given data' if config.is_given else data.name}: {agents} agents{partition}, "
        f"{method.particles} particles of {problem.dim:,} parameters, {config.rounds} rounds of "
        f"{method.local_steps} steps{'' if problem.device.type == 'cpu' else f', on {problem.device}'}"
    )
