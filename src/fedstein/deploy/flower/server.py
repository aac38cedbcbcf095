"""The server's end: a ServerApp that trains in a run folder, or goes on with what is there."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, RecordDict
from flwr.app.user_config import UserConfig
from flwr.serverapp import Grid, ServerApp

from fedstein.deploy.flower.identity import (
    Identity,
    confirmed,
    load_identity,
    names_of,
    new_identity,
    save_identity,
)
from fedstein.engines.flower import Flower
from fedstein.errors import FedsteinError, UserError
from fedstein.metrics.names import in_words
from fedstein.models import digest
from fedstein.protocol.messages import Note, Order
from fedstein.protocol.patience import Patience
from fedstein.protocol.state import State, Told
from fedstein.protocol.wire import About, Head, head_of
from fedstein.runs.data_record import check_data, hashed
from fedstein.runs.folder import check_particles, load_run_config
from fedstein.runs.forget.complete import complete, unforgotten
from fedstein.runs.network_files import NetworkFiles, load_network_files
from fedstein.runs.problem import Problem, build_problem
from fedstein.runs.recorder import Recorder, hold
from fedstein.runs.verbs import How, allow_code, check, fill, written_down
from fedstein.settings import Config, load_config
from fedstein.store.checkpoints import checkpoint_rounds
from fedstein.store.lineage import Lineage, load_lineage

__all__ = ["serve", "server_app"]

TOLD = ("waiting", "refused", "missed", "failed", "ignored", "forgot", "confirmed", "unconfirmed", "damaged")


def server_app(folder: Path) -> ServerApp:
    """The ServerApp of the app in `folder`."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        try:
            serve(grid, context.run_config, folder)
        except FedsteinError as error:
            _say(f"the run has ended: {error}")  # and Flower says that it has failed
            raise error.with_traceback(None) from None

    return app


def serve(grid: Grid, settings: UserConfig, folder: Path) -> None:
    """Train in the run folder `run` until its rounds are done; go on if it is there already.

    Every round is on disk before the next one begins: an agent that was told that its answer was applied must never
    meet a server that does not know of it.
    """
    path = Path(str(settings["run"]))
    patience = _patience(settings)
    if not str(settings["agents"]) and (names := sorted(node.name for node in grid.get_nodes() if node.name)):
        raise UserError(
            f"The app has no 'agents': it is for a simulation. The nodes of this SuperLink are {', '.join(names)}; "
            "'fedstein flower init --agents' names them."
        )
    config = load_config(folder / "config.toml", str(settings["set"]).split())
    if (path / "config.toml").is_file():
        old, lineage, identity = load_run_config(path, careful=False), load_lineage(path), load_identity(path)
        if identity is None and not checkpoint_rounds(path):  # it was stopped before it had asked anybody
            identity = new_identity(_names(str(settings["agents"]), old))
            save_identity(path, identity)
        if identity is None:
            raise UserError(f"The run folder {path} is not of a Flower federation. Choose another 'run'.")
        problem = _problem(old, lineage, path)
        check_data(path, hashed(problem), lineage.erased)
        # The app's own rounds are those of the training; what forgets goes on only if it is told to.
        told = not lineage or "rounds=" in str(settings["set"])
        more = config.rounds if config.rounds > old.rounds and told else None
        run, state = Recorder.resume(path, more, problem.device)
    else:
        config = config.model_copy(update={"recording": config.recording.model_copy(update={"checkpoint_every": 1})})
        identity = new_identity(_names(str(settings["agents"]), config))
        allow_code(config)
        problem, state = _problem(config, Lineage(), None), None
        run = Recorder.create(
            path, written_down(config, problem), files=problem.network_files, device=problem.device,
            data=hashed(problem),
        )  # fmt: skip
        save_identity(path, identity)
    with run:
        check_particles(path, run.config, problem.dim, None if state is None else state.particles)
        heads = _heads(identity, run.config, problem)
        engine = Flower(grid, identity.names, identity.run, heads, problem.network_files.frozen, patience.seconds)
        _work(run, problem, state, engine, patience)
    if run.lineage:
        _forgotten(path, identity, engine, patience.seconds)


def _patience(settings: UserConfig) -> Patience:
    try:
        seconds, retries = float(settings["deadline"]), int(settings["retries"])
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"The 'deadline' and 'retries' of the app must be numbers: {error}.") from None
    if not 0 < seconds < 1e7 or not 0 <= retries <= 1000:
        raise UserError(f"The 'deadline' must be seconds above 0, 'retries' at least 0. Got {seconds:g} and {retries}.")
    return Patience(seconds, retries)


def _problem(config: Config, lineage: Lineage, run: Path | None) -> Problem:
    if config.method.central or config.data.synthetic or config.is_given:
        raise UserError(
            "Between machines, the method must be federated, and the data no problem with a known posterior."
        )
    if config.pretrain.rounds:
        raise UserError(
            "Between machines 'pretrain.rounds' must be 0: train the whole network in a run of its own "
            "(method.name = 'fedavg'), and name that run in 'model.features' of the next."
        )
    files = NetworkFiles() if run is None else load_network_files(run)
    problem = build_problem(config, lineage, files=files, remote=True)
    check(config, problem)
    if config.schedule.weights == "examples":
        raise UserError(
            "Between machines, 'schedule.weights' must be equal: the server does not know who has how much."
        )
    return problem


def _names(given: str, config: Config) -> tuple[str, ...]:
    names = names_of(given, config.data.agents)
    if len(names) != config.data.agents or len(set(names)) != len(names):
        raise UserError(f"The 'agents' must be {config.data.agents} different names (data.agents). Got {given!r}.")
    return names


def _heads(identity: Identity, config: Config, problem: Problem) -> Callable[[Order], Head]:
    inputs, frozen = problem.inputs, problem.network_files.frozen
    assert inputs is not None
    about = About(
        config.uplink, config.model, config.prior, config.likelihood, config.threads, inputs.shape, inputs.outputs,
        None if frozen is None else digest(frozen),
    )  # fmt: skip

    def head(order: Order) -> Head:
        return head_of(order, about, identity.run, identity.model_id, identity.names[order.agent])

    return head


def _work(run: Recorder, problem: Problem, state: State | None, engine: Flower, patience: Patience) -> None:
    config = run.config
    done = f"{0 if state is None else state.round} of {config.rounds} rounds are done"
    _say(f"{config.method.name}, {len(problem.holdings.present)} agents: {done}, in {run.path}")
    fill(run, problem, state, engine, How(watchers=[_Tell()]), patience, _telling(run, engine))


def _telling(run: Recorder, engine: Flower) -> Note:
    """A journal that also says what an operator wants to see."""
    away: set[Any] = set()

    def note(event: str, **about: Any) -> None:
        run.note(event, **about)
        agent = about.get("agent")
        again = event == "missed" and agent in away  # it was said already; the journal has every one
        if event == "missed":
            away.add(agent)
        elif event == "applied":
            away.discard(agent)
        if "agent" in about:
            about["agent"] = engine.names[about["agent"]]
        if event in TOLD and not again:
            _say(f"{event}: " + ", ".join(f"{key} {value}" for key, value in about.items() if value != {}))

    return note


class _Tell:
    """A line for every evaluation."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def after_round(self, state: State, told: Told) -> None:
        metrics = told.metrics
        if metrics is not None and (words := in_words(metrics)):
            _say(f"round {state.round}: {words}, {time.monotonic() - self._began:.1f} s")


def _forgotten(path: Path, identity: Identity, engine: Flower, seconds: float) -> None:
    """The model has forgotten: purge what the server has, and ask the agents to delete what they have.

    An agent that cannot be reached blocks nobody: it is asked again whenever this run is gone on with.
    """
    complete(path)
    # A model that is trained anew has another id: of the old one nobody needs anything any more.
    model_id = identity.before or identity.model_id
    history = load_lineage(path)
    leaving = set(history.erased) if identity.before is None else set(range(len(identity.names)))
    done = confirmed(path).union(*(confirmed(Path(one.parent)) for one in history.erasures if identity.before is None))
    for agent in unforgotten(path):
        _say(
            f"unforgotten: agent {identity.names[agent]} has not forgotten; it is not asked to delete what it will need"
        )
    for agent in sorted(leaving - done - set(unforgotten(path))):
        name, node = identity.names[agent], engine.node_of(agent)
        answer: dict[str, Any] = {"error": "it could not be reached"}
        if node is not None:
            asked = RecordDict({"purge": ConfigRecord({"agent": name, "model_id": model_id})})
            answer = engine.ask("train.purge", {node: asked}, min(seconds, 120.0)).get(node, answer)
        with hold(path) as journal:
            if isinstance(answer.get("purged"), int):
                journal.note("confirmed", agent=agent, name=name, files=answer["purged"])
                _say(f"confirmed: agent {name} has deleted what it knew ({answer['purged']} files)")
            else:
                reason = str(answer.get("error"))[:300]
                journal.note("unconfirmed", agent=agent, name=name, reason=reason)
                _say(f"unconfirmed: agent {name} has not said that it deleted what it knew: {reason}")
            journal.sync()


def _say(text: str) -> None:
    print(f"fedstein: {text}", flush=True)
