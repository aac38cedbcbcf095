"""From a config to a problem (load, partition, make the model) and on to a trained one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from fedstein.config import Config, DataConfig, ModelConfig
from fedstein.data import (
    Dataset,
    Examples,
    class_pairs,
    dirichlet,
    from_indices,
    iid,
    load_examples,
    load_source,
    load_test,
)
from fedstein.data.synthetic import GaussianMean, MixtureAgents, negative
from fedstein.engines import Engine, Note, Patience, Schedule, State, no_note
from fedstein.erasure.rounds import erasure_rounds
from fedstein.errors import UserError
from fedstein.inference import GaussianPrior
from fedstein.methods import DSVGD, BayesianMethod, FedAvg
from fedstein.models import DenseStack, TorchModule
from fedstein.problem import Metrics, Problem
from fedstein.runs import is_remote, load_particles, load_run_config, load_tensor
from fedstein.streams import stream
from fedstein.training import Trained, Watcher, fit

__all__ = [
    "build_problem",
    "check_particles",
    "fit_config",
    "load_features",
    "load_features_of",
    "load_run",
    "network",
    "who_has_what",
]


def fit_config(
    config: Config,
    watchers: Sequence[Watcher] = (),
    problem: Problem | None = None,
    state: State | None = None,
    note: Note = no_note,
    engine: Engine | None = None,
    patience: Patience = Patience(),  # noqa: B008  (frozen)
) -> Trained:
    """Train as a config says; `problem` if it was built already, `state` to go on from."""
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    problem = build_problem(config) if problem is None else problem
    more = None
    if state is not None and config.erasures and config.erasures[-1].start > 0:
        more = erasure_rounds(problem, config, state, note, engine, patience)
    return fit(
        problem,
        config.method,
        rounds_to_do=config.rounds,
        schedule=config.schedule,
        seed=config.seed,
        evaluate_every=config.evaluation.every,
        watchers=watchers,
        state=state,
        uplink=config.uplink.terms(config.method, problem.model.dim),
        note=note,
        escrow=config.recording.escrow,
        more=more,
        engine=engine,
        patience=patience,
    )


def build_problem(
    config: Config,
    features: Tensor | None = None,
    split: str | None = None,
    watchers: Sequence[Watcher] = (),
    remote: bool = False,
) -> Problem:
    """The problem that a config describes.

    Args:
        config: of the run.
        features: the frozen particle, if it is at hand; else it is pre-trained, or read from the run `model.features`.
        split: what to evaluate on, if not what the config says.
        watchers: of the pre-training.
        remote: the agents keep their data elsewhere; here it is empty.
    """
    if config.data.name.startswith("synthetic"):
        return _checked(_synthetic(config))
    agents, test, classes = who_has_what(config, split, remote)
    raw, raw_test = test.x.shape[1:], test.x
    _refuse_giants(config, [raw.numel(), *config.model.hidden, classes])
    stack, prepare = network(config.model, raw, classes)
    frozen = None
    _checked(Problem(stack, agents, erased=config.erased))
    if config.model.features is not None or config.pretrain.rounds:
        if config.model.features is None and features is None:
            features = _pretrained(config, Problem(stack, agents, erased=config.erased), watchers)
        frozen = load_features(config, stack) if features is None else features
        stack, prepare = network(config.model, raw, classes, frozen)
        assert prepare is not None
        agents = [Examples(prepare(data.x), data.y) for data in agents]
        test = Examples(prepare(test.x), test.y)
    return Problem(
        model=stack,
        agents=agents,
        prior=GaussianPrior(config.prior.std),
        init=config.prior.init,
        test=test,
        ece_bins=config.evaluation.ece_bins,
        prepare=prepare,
        frozen=frozen,
        raw_shape=raw,
        raw_test=raw_test,
        erased=config.erased,
        remote=remote,
    )


def network(
    model: ModelConfig, inputs: torch.Size, classes: int, frozen: Tensor | None = None
) -> tuple[DenseStack, Callable[[Tensor], Tensor] | None]:
    """The network; or with a frozen one, its last layer, and what makes raw inputs into those of the last layer."""
    sizes = [inputs.numel(), *model.hidden, classes]
    whole = DenseStack(sizes, model.activation, model.precision)
    if frozen is None:
        return whole, None
    if len(frozen) != whole.dim:
        raise UserError(f"The frozen network must have {whole.dim:,} parameters. Got {len(frozen):,} instead.")
    return DenseStack(sizes[-2:], model.activation, model.precision), partial(whole.features, frozen)


def who_has_what(
    config: Config, split: str | None = None, remote: bool = False
) -> tuple[list[Examples], Examples, int]:
    """The examples of each agent, what to evaluate on, and how many classes there are."""
    path = Path(config.data.path) if config.data.path else None
    if config.data.name == "folder":
        if path is None:
            raise UserError("The 'data.path' must name your folder when data.name is 'folder'. Got nothing.")
        if config.data.validation or config.data.partition != "iid":
            raise UserError("With data.name = 'folder' everybody's data is as it is: no partition, no validation.")
        test, classes = load_test(path / "test.npz")
        shape, count = test.x.shape[1:], config.data.agents
        files = [path / f"agent-{agent}.npz" for agent in range(count)]
        return [_empty(test) if remote else load_examples(file, shape, classes) for file in files], test, classes
    dataset = load_source(config.data.name, path)
    train, validation = _hold_out(dataset, config)
    split = config.evaluation.split if split is None else split
    if split == "validation" and validation is None:
        raise UserError("The 'evaluation.split' validation needs 'data.validation' > 0. Got 0.")
    parts = _partition(train.y, config.data, stream(_data_seed(config), "partition"))
    test = dataset.test if split == "test" or validation is None else validation
    return [_empty(test) if remote else train.take(part) for part in parts], test, dataset.classes


def _empty(like: Examples) -> Examples:
    return like.take(torch.arange(0))


def _checked(problem: Problem) -> Problem:
    """Refuse erased agents that were never there, or all of them."""
    if unknown := [agent for agent in problem.erased if agent >= len(problem.agents)]:
        raise UserError(f"The agents must be in 0..{len(problem.agents) - 1}. Got {', '.join(map(str, unknown))}.")
    if not problem.present:
        raise UserError(
            f"At least one of the {len(problem.agents)} agents must stay: a model without any data is a new model."
        )
    return problem


def _pretrained(config: Config, whole: Problem, watchers: Sequence[Watcher]) -> Tensor:
    """The first stage of the letter's last study: FedAvg of the whole network, by all agents that take part."""
    terms = config.pretrain
    method = FedAvg(step="gradient", step_size=terms.step_size, local_steps=terms.local_steps)
    schedule = Schedule(agents_per_round=len(whole.present))
    trained = fit(
        whole,
        method,
        rounds_to_do=terms.rounds,
        schedule=schedule,
        seed=config.seed,
        evaluate_every=terms.rounds,
        watchers=watchers,
    )
    if trained.interrupted:
        raise KeyboardInterrupt
    return trained.particles[0]


def _data_seed(config: Config) -> int:
    return config.seed if config.data.seed is None else config.data.seed


def load_run(run: Path, split: str | None = None) -> tuple[Config, Problem, Tensor]:
    """The config, problem and particles of a run folder, which must fit each other."""
    config = load_run_config(run)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    problem = build_problem(config, load_features_of(run), split, remote=is_remote(run))
    particles = load_particles(run)
    check_particles(run, config, problem, particles)
    return config, problem, particles


def check_particles(run: Path, config: Config, problem: Problem, particles: Tensor | None) -> None:
    """Refuse particles that are not of this run's model."""
    expected = (config.method.particles, problem.model.dim)
    if particles is not None and tuple(particles.shape) != expected:
        raise UserError(
            f"The particles of '{run}' do not fit its config.toml: {tuple(particles.shape)}, expected {expected}."
        )


def load_features_of(run: Path) -> Tensor | None:
    """The frozen particle that a run folder has kept, if it has."""
    kept = run / "features.safetensors"
    if kept.is_file():
        return load_tensor(kept, "features")
    if load_run_config(run, careful=False).pretrain.rounds:
        raise UserError(f"The file {kept} is missing: the network that this run was pre-trained to cannot be made up.")
    return None


def load_features(config: Config, stack: DenseStack) -> Tensor:
    """The first particle of the run `model.features`, which must be of the same network."""
    assert config.model.features is not None
    run = Path(config.model.features)
    other, particles = load_run_config(run), load_particles(run)
    same = (other.model.hidden, other.model.activation) == (config.model.hidden, config.model.activation)
    if not same or particles.shape[1] != stack.dim or not config.model.hidden:
        raise UserError(
            f"The run 'model.features' {run} must be of the same network, with a hidden layer: model.hidden = "
            f"{list(config.model.hidden)}, '{config.model.activation}'. It has {list(other.model.hidden)}, "
            f"'{other.model.activation}', and {particles.shape[1]} parameters."
        )
    return particles[0]


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


def _hold_out(dataset: Dataset, config: Config) -> tuple[Examples, Examples | None]:
    """The training examples without the validation ones, which are the same for every seed."""
    count = config.data.validation
    if count == 0:
        return dataset.train, None
    if count >= len(dataset.train):
        raise UserError(f"The 'data.validation' must be below the {len(dataset.train)} training examples. Got {count}.")
    order = torch.randperm(len(dataset.train), generator=stream(0, "validation"))
    return dataset.train.take(order[count:]), dataset.train.take(order[:count])


def _partition(labels: Tensor, data: DataConfig, generator: torch.Generator) -> list[Tensor]:
    if data.indices is not None and data.partition != "indices":
        raise UserError(f"The 'data.indices' needs data.partition = 'indices'. Got '{data.partition}'.")
    if data.partition == "iid":
        return iid(labels, data.agents, data.examples, generator)
    if data.partition == "class-pairs":
        return class_pairs(labels, data.agents, data.examples, generator)
    if data.partition == "dirichlet":
        return dirichlet(labels, data.agents, data.examples, data.concentration, generator)
    if data.indices is None:
        raise UserError("The 'data.indices' must name a JSON file when data.partition is 'indices'. Got nothing.")
    try:
        lists = json.loads(Path(data.indices).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"Cannot read 'data.indices' {data.indices} as JSON: {error}.") from error
    whole = isinstance(lists, list) and all(
        isinstance(part, list) and all(type(i) is int and abs(i) < 2**62 for i in part) for part in lists
    )
    if not whole or len(lists) != data.agents:
        raise UserError(f"The file {data.indices} must be {data.agents} lists of whole numbers, one for each agent.")
    return from_indices(labels, lists)


def _synthetic(config: Config) -> Problem:
    """A problem with a known posterior; particles start as draws of the prior."""
    if config.data.name == "synthetic-mixture":
        mixture = MixtureAgents.two()
        everyone = list(mixture.agents)
        method = config.method
        bandwidth = method.kde_bandwidth if isinstance(method, DSVGD) else DSVGD().kde_bandwidth

        mixture = replace(mixture, agents=tuple(_staying(mixture.agents, config)))

        def distance(particles: Tensor) -> Metrics:
            return {
                "total_variation": mixture.total_variation(particles, bandwidth),
                "smoothing_floor": mixture.smoothing_floor(len(particles), bandwidth),
            }

        model = TorchModule(mixture.module(), negative)
        return Problem(model, everyone, mixture.prior, init="prior", exact=distance, erased=config.erased)
    gaussian = GaussianMean.draw(
        config.data.agents, config.data.examples or 20, 3, stream(_data_seed(config), "synthetic"), std=config.prior.std
    )
    everyone = list(gaussian.agents)
    gaussian = replace(gaussian, agents=tuple(_staying(gaussian.agents, config)))
    counted, temperature = "mean", 1.0
    if isinstance(config.method, BayesianMethod):
        counted, temperature = config.method.likelihood, config.method.temperature
    exact = partial(gaussian.errors, counted=counted, temperature=temperature)
    model = TorchModule(gaussian.module(), negative)
    return Problem(model, everyone, gaussian.prior, init="prior", exact=exact, erased=config.erased)


def _staying(agents: Sequence[Examples], config: Config) -> list[Examples]:
    """Those that were not forgotten: the exact posterior is theirs."""
    return [data for agent, data in enumerate(agents) if agent not in config.erased] or list(agents)
