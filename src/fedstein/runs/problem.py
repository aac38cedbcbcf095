"""A problem: what is to be learnt, who holds what, how to judge it, and what goes in. And how a config becomes one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedstein.data import Examples, Holdings, Rows, Takes, chunks, fit_inputs, fit_targets, who_has_what
from fedstein.data.rows import CHUNK
from fedstein.data.sources.contents import Contents, of_agent
from fedstein.data.synthetic import GaussianMean, MixtureAgents, negative
from fedstein.devices import device_here
from fedstein.engines import Crew
from fedstein.errors import UserError
from fedstein.inference import GaussianPrior
from fedstein.methods import BayesianMethod, FedAvg
from fedstein.models import FEATURES, Network, ParticleModel, Prepare, Task, TorchModule, network
from fedstein.protocol.schedule import Schedule
from fedstein.protocol.state import Metrics
from fedstein.runs.folder import load_particles, load_run_config
from fedstein.runs.given import Given
from fedstein.runs.judge import Judge
from fedstein.runs.network_files import TEST, NetworkFiles
from fedstein.runs.training import fit
from fedstein.settings import Config
from fedstein.store.features import Features
from fedstein.store.lineage import Lineage
from fedstein.streams import stream
from fedstein.trackers import Watcher

__all__ = ["MADE_IN_PYTHON", "Inputs", "Problem", "build_problem", "crew_of"]


MADE_IN_PYTHON = (
    "This run was made in Python, with a module and data that were given there: open it in Python and give them again, "
    "fedstein.open(RUN, module=..., agents=..., test=...)."
)


@dataclass(frozen=True, repr=False)
class Inputs:
    """What goes in: the shape of one raw input, and how it becomes what the model takes."""

    shape: torch.Size
    outputs: int  # of the network, for one input
    network: Network | None = None  # None: it was given in Python
    prepare: Prepare | None = None  # what is frozen before the model; None: nothing is
    takes: Takes = "numbers"

    def ready(self, raw: Tensor) -> Tensor:
        """Raw inputs (n, ...) as the model takes them."""
        return raw if self.prepare is None else self.prepare(raw)

    def ready_rows(self, raw: Rows) -> Rows:
        """The same where they may have to be read: some at a time."""
        if isinstance(raw, Tensor):
            return self.ready(raw)
        return raw if self.prepare is None else torch.cat([self.prepare(part) for part in chunks(raw, CHUNK)])


@dataclass(frozen=True, repr=False)
class Problem:
    """Everything about a federation but the method."""

    task: Task
    holdings: Holdings
    judge: Judge = Judge()  # noqa: RUF009  (frozen)
    inputs: Inputs | None = None  # None: a problem with a known posterior has none to predict on
    data: Mapping[str, Any] = field(default_factory=dict)  # settings that were found when the data was read
    notes: tuple[str, ...] = ()  # what was made of the data, for people
    features: Mapping[str, Features] = field(default_factory=dict)  # of those who take part, by their folder
    contents: Contents = field(default_factory=dict)  # the files of the data, by whose they are

    def __repr__(self) -> str:
        return f"Problem({self.task.model.dim:,} parameters, {self.holdings!r})"

    @property
    def dim(self) -> int:
        """Parameters of a particle."""
        return self.task.model.dim

    @property
    def device(self) -> torch.device:
        """Where models compute."""
        return self.task.model.device

    @property
    def network(self) -> Network | None:
        """The network that settings mean; None where it was given in Python, or there is none."""
        return None if self.inputs is None else self.inputs.network

    @property
    def network_files(self) -> NetworkFiles:
        """What a run keeps of the network beside its particles."""
        net = self.network
        if net is None:
            return NetworkFiles(features=self.features)
        return NetworkFiles(net.frozen, net.parameters, net.knows, self.features)

    def evaluate(self, particles: Tensor) -> Metrics:
        """Metrics of the particles."""
        return self.judge.evaluate(self.task.model, self.holdings, particles)


def build_problem(
    config: Config,
    lineage: Lineage = Lineage(),  # noqa: B008  (frozen)
    *,
    given: Given | None = None,
    files: NetworkFiles = NetworkFiles(),  # noqa: B008  (frozen)
    split: str | None = None,
    watchers: Sequence[Watcher] = (),
    remote: bool = False,
    device: torch.device | None = None,
) -> Problem:
    """The problem that a config describes.

    Args:
        config: of the run.
        lineage: who was erased.
        given: what was given in Python, for a run of it.
        files: what a run has kept of the network; else it is made, pre-trained, or read from the run `model.features`.
        split: what to evaluate on, if not what the config says.
        watchers: of the pre-training.
        remote: the agents keep their data elsewhere; here it is empty.
        device: where models compute, if not where the config says.

    Raises:
        UserError: settings do not fit each other or the data, or the config's device is not here.
    """
    device = device_here(config.device) if device is None else device
    if config.is_given:
        return _given(config, lineage, given if given is None else given.on(device), files)
    if config.data.synthetic:
        problem = _synthetic(config, lineage, device)
        problem.holdings.check()
        return problem
    held = who_has_what(config.data, config.seed, split or config.evaluation.split, remote)
    held, outputs = fit_targets(held, config.likelihood)
    shape = held.test.x.shape[1:]
    if config.model.module is None:
        held = fit_inputs(held, "numbers")
        _refuse_giants(config, [shape.numel(), *config.model.hidden, outputs])
    make = partial(
        network,
        config.model,
        config.prior,
        config.likelihood,
        shape,
        outputs,
        config.seed,
        parameters=files.parameters,
        knows=files.knows,
        device=device,
    )
    holdings = Holdings(held.agents, lineage.erased, remote, held.agent_names)
    holdings.check()
    frozen = files.frozen
    if frozen is None and config.pretrain.rounds:
        frozen = {FEATURES: _pretrained(config, Problem(Task(make().model), holdings), watchers)}
    elif frozen is None and config.model.features is not None:
        frozen = {FEATURES: _frozen_of_another(config, make().model)}
    made = make(frozen)
    if config.model.module is not None:
        held = fit_inputs(held, made.takes)
        holdings = replace(holdings, agents=held.agents)
    holdings, judged, features = _with_features(holdings, held.test, made.prepare, files)
    return Problem(
        config.prior.task(made),
        holdings,
        Judge(judged, config.evaluation.ece_bins, raw_test=held.test.x),
        Inputs(shape, outputs, made, made.prepare, made.takes),
        held.settings,
        (*held.notes, *getattr(made.model, "notes", ())),
        features,
        held.contents,
    )


def _with_features(
    holdings: Holdings, test: Examples | None, prepare: Prepare | None, files: NetworkFiles
) -> tuple[Holdings, Examples | None, dict[str, Features]]:
    """Everybody's examples as the model takes them, and the features of those who take part, by their folder."""
    owners = {of_agent(agent): data for agent, data in enumerate(holdings.agents)}
    owners |= {} if test is None else {TEST: test}
    features = {owner: files.prepared(owner, prepare, data.x) for owner, data in owners.items()}
    ready = {owner: Examples(features[owner].rows, data.y) for owner, data in owners.items()}
    agents = [ready[of_agent(agent)] for agent in range(len(holdings.agents))]
    stay = {of_agent(agent) for agent in holdings.present}
    if not holdings.erased:  # the test set may have been drawn from everybody's examples
        stay.add(TEST)
    some = {owner: one for owner, one in features.items() if owner in stay}
    return replace(holdings, agents=agents), ready.get(TEST), some


def crew_of(config: Config, lineage: Lineage, problem: Problem, given: Given | None) -> Crew:
    """What an engine needs to know of the agents."""
    build = partial(_build_again, config, lineage, given, problem.network_files, str(problem.device))
    return Crew(problem.task, problem.holdings, config.method.central, config.threads, build)


def _build_again(
    config: Config, lineage: Lineage, given: Given | None, files: NetworkFiles, device: str
) -> tuple[Task, Holdings]:
    problem = build_problem(config, lineage, given=given, files=files, device=device_here(device))
    return problem.task, problem.holdings


def _frozen_of_another(config: Config, whole: ParticleModel) -> Tensor:
    """The first particle of the run `model.features`, which must be of the same network."""
    assert config.model.features is not None
    run = Path(config.model.features)
    other, particles = load_run_config(run), load_particles(run)
    same = (other.model.hidden, other.model.activation) == (config.model.hidden, config.model.activation)
    if not same or particles.shape[1] != whole.dim or not config.model.hidden:
        raise UserError(
            f"The run 'model.features' {run} must be of the same network, with a hidden layer: model.hidden = "
            f"{list(config.model.hidden)}, '{config.model.activation}'. It has {list(other.model.hidden)}, "
            f"'{other.model.activation}', and {particles.shape[1]} parameters."
        )
    return particles[0]


def _pretrained(config: Config, whole: Problem, watchers: Sequence[Watcher]) -> Tensor:
    """The first stage of the letter's last study: FedAvg of the whole network, by all agents that take part."""
    first_stage = config.pretrain
    trained = fit(
        whole.task,
        whole.holdings,
        whole.evaluate,
        FedAvg(step="gradient", step_size=first_stage.step_size, local_steps=first_stage.local_steps),
        rounds_to_do=first_stage.rounds,
        schedule=Schedule(agents_per_round=len(whole.holdings.present)),
        seed=config.seed,
        evaluate_every=first_stage.rounds,
        watchers=watchers,
    )
    if trained.interrupted:
        raise KeyboardInterrupt
    return trained.state.particles[0]


def _refuse_giants(config: Config, sizes: list[int]) -> None:
    """Say so before anything is made if the particles cannot fit into this machine's memory."""
    parameters = sum((below + 1) * above for below, above in pairwise(sizes))
    need = 4 * parameters * config.method.particles * 6  # particles, scores, steps, scratch
    have = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if need > have:
        raise UserError(
            f"The 'method.particles' times the parameters of 'model.hidden' must fit into memory: "
            f"{config.method.particles:,} x {parameters:,} need about {need / 2**30:,.0f} GiB, "
            f"this machine has {have / 2**30:,.0f}."
        )


def _given(config: Config, lineage: Lineage, given: Given | None, files: NetworkFiles) -> Problem:
    if given is None:
        raise UserError(MADE_IN_PYTHON)
    if len(given.agents) != config.data.agents:
        raise UserError(f"The 'agents' must be {config.data.agents} data sets. Got {len(given.agents)}.")
    prior = GaussianPrior(config.prior.std) if given.prior is None else given.prior
    holdings = Holdings(given.agents, lineage.erased, names=given.names)
    holdings.check()
    raw = None if given.test is None else given.test.x
    holdings, test, features = _with_features(holdings, given.test, given.before, files)
    return Problem(
        Task(given.model, prior, config.prior.init, given.start(), config.prior.spread),
        holdings,
        Judge(test, config.evaluation.ece_bins, raw_test=raw),
        Inputs(next(data.x.shape[1:] for data in given.agents), given.outputs, prepare=given.before, takes=given.takes),
        features=features,
    )


def _synthetic(config: Config, lineage: Lineage, device: torch.device) -> Problem:
    """A problem with a known posterior; particles start as draws of the prior."""
    if config.data.name == "synthetic-mixture":
        mixture = MixtureAgents.two()
        holdings = Holdings(list(mixture.agents), lineage.erased)
        mixture = replace(mixture, agents=_staying(holdings))
        bandwidth: float = getattr(config.method, "kde_bandwidth", 0.55)

        def distance(particles: Tensor) -> Metrics:
            return {
                "total_variation": mixture.total_variation(particles, bandwidth),
                "smoothing_floor": mixture.smoothing_floor(len(particles), bandwidth),
            }

        task = Task(TorchModule(mixture.module(), negative, device=device), mixture.prior, "prior")
        return Problem(task, holdings, Judge(exact=distance))
    seed = config.seed if config.data.seed is None else config.data.seed
    gaussian = GaussianMean.draw(
        config.data.agents, config.data.examples or 20, 3, stream(seed, "synthetic"), std=config.prior.std
    )
    holdings = Holdings(list(gaussian.agents), lineage.erased)
    gaussian = replace(gaussian, agents=_staying(holdings))
    counted, temperature = "mean", 1.0
    if isinstance(config.method, BayesianMethod):
        counted, temperature = config.method.likelihood, config.method.temperature
    exact = partial(gaussian.errors, counted=counted, temperature=temperature)
    task = Task(TorchModule(gaussian.module(), negative, device=device), gaussian.prior, "prior")
    return Problem(task, holdings, Judge(exact=exact))


def _staying(holdings: Holdings) -> tuple[Examples, ...]:
    """Those that were not forgotten: the exact posterior is theirs."""
    return tuple(holdings.agents[agent] for agent in holdings.present) or tuple(holdings.agents)
