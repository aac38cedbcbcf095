"""Training from Python: a module and data, or settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import nn

from fedstein.api.arguments import PathLike, as_device, as_list, as_overrides, as_path, check_whole, maybe_path, refuse
from fedstein.api.giving import take
from fedstein.api.run import Run, run_of
from fedstein.api.working import how_of, train_in_memory
from fedstein.data import DataConfig, Held
from fedstein.devices import device_here
from fedstein.errors import UserError
from fedstein.inference import GaussianPrior, Prior
from fedstein.likelihoods import Categorical, Likelihood
from fedstein.methods import DSVGD, Method
from fedstein.models import Init, Loss, ModelConfig, Precision, PriorConfig, Way, cross_entropy
from fedstein.posterior import Posterior
from fedstein.protocol.schedule import Schedule
from fedstein.protocol.uplink import Uplink
from fedstein.runs import verbs
from fedstein.runs.folder import left_out
from fedstein.runs.given import Given
from fedstein.runs.onlooker import Onlooker
from fedstein.runs.verbs import How
from fedstein.settings import (
    Choice,
    Config,
    EvaluationConfig,
    RecordingConfig,
    choose_config,
    choose_parts,
    load_config,
    load_preset,
    read_toml,
)
from fedstein.trackers import Watcher

__all__ = ["config", "explain", "train", "train_config"]


def train(
    module: nn.Module,
    agents: Sequence[Any] | Held,
    *,
    method: Method | None = None,
    rounds: int = 100,
    test: Any = None,
    class_names: Sequence[str] = (),
    seed: int = 0,
    schedule: Schedule | None = None,
    prior: Prior | None = None,
    init: Init = "fan-in",
    spread: float = 0.01,
    loss: Loss = cross_entropy,
    likelihood: Likelihood | None = None,
    precision: Precision = "float32",
    way: Way | Literal["auto"] = "auto",
    uplink: Uplink | None = None,
    posterior: Posterior | None = None,
    evaluate_every: int = 50,
    escrow: bool = False,
    threads: int | None = None,
    device: str | torch.device = "cpu",
    watchers: Sequence[Watcher] = (),
    out: PathLike | None = None,
    progress: bool = True,
) -> Run:
    """Train `module` across agents that keep their data, in this process.

    Args:
        module: maps (B, ...) inputs to (B, outputs): logits of classes, or what `likelihood` or `loss` takes. Its own
            values are not changed. What requires no gradient is frozen.
        agents: for each agent one (x, y) pair of arrays, or one data set of torch, map-style or iterable, of any size;
            or what `fedstein.from_frame` returns.
        method: for instance ``DSVGD(particles=5)`` or ``FedAvg()``; DSVGD with one chain if left out. What is left out
            of it is chosen to suit, as `fedstein train --explain` tells it.
        rounds: how many rounds.
        test: the same to evaluate on, or nothing.
        class_names: what people call the classes, in tables and charts; as the data sets say if left out.
        seed: of every random draw.
        schedule: who visits when; round robin, one agent a round, if left out.
        prior: N(0, I) if left out.
        init: "fan-in" starts like a network is usually started, "prior" draws from the prior, "module" starts around
            the module's own values.
        spread: the standard deviation around those values, with init "module".
        loss: per-example losses from outputs and targets, if there is no `likelihood` for them.
        likelihood: what the outputs say of a target, for instance ``Gaussian(scale=40.0)``; classes if left out.
        precision: "bf16" for bfloat16 products.
        way: how several particles are computed where the module is no dense stack: "vmap", "loop", or "auto" for the
            faster one, which is measured once and written down.
        uplink: the bit budget, for instance ``Uplink("1.0d", feedback=True)``; no limit if left out.
            What is left out of it is chosen as well.
        posterior: what predicts, for instance ``Posterior("last")``; the mixture of the last turn means if left out.
        evaluate_every: rounds between evaluations on `test`.
        escrow: the server keeps what it applied of each agent, so that it can take it back (factor linear).
        threads: of torch; as it is set now if left out. Their number decides the last bits.
        device: on which visits and predictions are computed: "cpu", "cuda", "cuda:1", "mps", or "auto" for the first
            of cuda, mps and cpu that is there. Another kind gives other last bits.
        watchers: told after every round.
        out: a new run folder; everything stays in memory if left out.
        progress: show a bar where somebody would see it.

    Returns:
        The run: particles, metrics, bills, `predict`, and with a folder `resume`, `forget`, `audit` and `report`.

    Raises:
        UserError: something given here does not fit.
        DivergedError: particles became non-finite; what was good is kept.
    """
    schedule = Schedule() if schedule is None else schedule
    posterior = Posterior() if posterior is None else posterior
    folder = maybe_path("out", out, "a new folder")
    how = how_of(watchers=watchers, progress=progress)
    _check_numbers(rounds, evaluate_every, seed, threads)
    method = DSVGD() if method is None else method
    uplink = Uplink() if uplink is None else uplink
    _check_parts(method, schedule, uplink, posterior, init, precision, way)
    if isinstance(agents, list | tuple) and any(data is None for data in agents):
        missing = next(number for number, data in enumerate(agents) if data is None)
        raise UserError(f"agents[{missing}] must be a pair (x, y) or a map-style data set. Got None instead.")
    if likelihood is not None and not isinstance(likelihood, Likelihood):
        raise refuse("likelihood", "a likelihood, for instance fedstein.Gaussian()", likelihood)
    if likelihood is not None and loss is not cross_entropy:
        raise UserError("Give a 'likelihood', for instance fedstein.Gaussian(), or a 'loss', not both.")
    meant = loss if likelihood is None else likelihood
    known = "none" if loss is not cross_entropy else Categorical.name if likelihood is None else likelihood.name
    method, uplink = choose_parts(method, uplink, known, rounds)
    given = take(module, agents, test, meant, prior, precision, way, class_names, device_here(as_device(device)))
    config = Config(
        seed=seed,
        rounds=rounds,
        threads=torch.get_num_threads() if threads is None else threads,
        device=as_device(device),
        data=DataConfig(name="given", agents=len(given.agents), class_names=given.class_names),
        model=ModelConfig(hidden=(), precision=precision, way=way, fingerprint=given.fingerprint(init)),
        prior=PriorConfig(std=prior.std if isinstance(prior, GaussianPrior) else 1.0, init=init, spread=spread),
        likelihood=Categorical() if likelihood is None else likelihood,
        method=method,
        schedule=schedule,
        uplink=uplink,
        posterior=posterior,
        evaluation=EvaluationConfig(every=evaluate_every),
        recording=RecordingConfig(escrow=escrow),
    )
    return _train(config, given, folder, how)


def train_config(
    config: Config | Mapping[str, Any] | PathLike,
    out: PathLike | None = None,
    *,
    without: Sequence[int] = (),
    engine: str = "local",
    workers: int | None = None,
    watchers: Sequence[Watcher] = (),
    progress: bool = True,
    onlooker: Onlooker | None = None,
) -> Run:
    """Train as a config says: what `fedstein train` does.

    Args:
        config: settings (`fedstein.config`), a table of them, or a TOML file.
        out: the run folder to make; everything stays in memory if left out.
        without: agents that take no part; they keep their numbers. Those that the config's own run has erased never do.
        engine: what carries the messages: ``local``, ``ray:auto``, ...
        workers: visits side by side, where the engine can.
        watchers: told after every round.
        progress: show a bar where somebody would see it.
        onlooker: looks on instead of a bar.
    """
    folder = maybe_path("out", out, "a new folder")
    how = how_of(engine=engine, workers=workers, watchers=watchers, progress=progress, onlooker=onlooker)
    wanted = "a list of agents' numbers, for instance [2, 3]"
    absent = as_list("without", without, wanted)
    if not all(type(agent) is int for agent in absent):
        raise refuse("without", wanted, without)
    if isinstance(config, Mapping):
        config = choose_config(config)[0]
    elif not isinstance(config, Config):
        file = as_path("config", config, "settings (fedstein.config), a table of them, or a TOML file")
        absent = sorted({*absent, *left_out(file)})
        config = load_config(file)
    if config.is_given:
        raise UserError("The 'data.name' must not be 'given' here: fedstein.train takes a module and data.")
    return _train(verbs.with_whole_paths(config), None, folder, how, absent)


def config(file: PathLike | None = None, *overrides: str, preset: str | None = None) -> Config:
    """Settings from a TOML file or a preset, with ``key=value`` overrides; what a file leaves out is chosen to suit.

    >>> config(None, "data.name=digits", "rounds=20").rounds
    20
    """
    if preset is not None and file is not None:
        raise UserError("Give a config file or a 'preset', not both; overrides change either.")
    path, changes = maybe_path("file", file, "a TOML file, or None"), as_overrides(overrides)
    return load_config(path, changes) if preset is None else load_preset(preset, changes)


def explain(file: PathLike | None = None, *overrides: str) -> list[Choice]:
    """Which settings `config` chooses because nobody gave them, and why.

    >>> explain(None, "uplink.budget=0.2d")[0]
    Choice(key='method.particles', value=1, why='one chain: its way is the posterior, for a fraction of the download')
    """
    path, changes = maybe_path("file", file, "a TOML file, or None"), as_overrides(overrides)
    return choose_config({} if path is None else read_toml(path, "config"), changes)[1]


def _train(config: Config, given: Given | None, out: Path | None, how: How, without: Sequence[int] = ()) -> Run:
    if out is not None:
        return run_of(verbs.train(config, out, given, how, without), given)
    lineage = verbs.leaving_out(without)
    problem = verbs.prepare(config, lineage, given=given, onlooker=how.onlooker)
    config = verbs.written_down(config, problem)
    trained = train_in_memory(config, lineage, problem, how, given)
    return Run(config, lineage=lineage, given=given, trained=trained, problem=problem)


def _check_numbers(rounds: int, evaluate_every: int, seed: int, threads: int | None) -> None:
    check_whole("rounds", rounds, 1)
    check_whole("evaluate_every", evaluate_every, 1)
    check_whole("seed", seed, 0)
    if threads is not None:
        check_whole("threads", threads, 1)


def _check_parts(method: Any, schedule: Any, uplink: Any, posterior: Any, init: Any, precision: Any, way: Any) -> None:
    for name, value, kind, example in (
        ("method", method, Method, "DSVGD(particles=5)"),
        ("schedule", schedule, Schedule, "Schedule(agents_per_round=2)"),
        ("uplink", uplink, Uplink, "Uplink('1.0d')"),
        ("posterior", posterior, Posterior, "Posterior('last')"),
    ):
        if not isinstance(value, kind):
            raise refuse(name, f"a {kind.__name__}, for instance {example}", value)
    for name, word, words in (
        ("init", init, get_args(Init)),
        ("precision", precision, get_args(Precision)),
        ("way", way, ("auto", *get_args(Way))),
    ):
        if word not in words:
            raise refuse(name, f"one of {', '.join(words)}", word)
