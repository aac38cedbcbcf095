"""Training: the loop over rounds, with someone watching, and what comes out of it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol, get_args

import torch
from torch import Tensor, nn

from fedstein.config import UplinkConfig
from fedstein.data import as_examples, as_inputs
from fedstein.engines import Engine, Note, Patience, Schedule, State, Totals, no_note, rounds, start
from fedstein.errors import UserError
from fedstein.inference import GaussianPrior, Prior
from fedstein.methods import DSVGD, Method
from fedstein.metrics import Prediction
from fedstein.models import Loss, Precision, cross_entropy, particle_model
from fedstein.problem import Init, Metrics, Problem, predict
from fedstein.uplink import Uplink

__all__ = ["Trained", "Watcher", "fit", "train"]


class Watcher(Protocol):
    """Is told after every round; a progress bar, a recorder."""

    def after_round(self, state: State, metrics: Metrics | None) -> None:
        """`metrics` where the round was evaluated, else None."""
        ...


@dataclass
class Trained:
    """What a run has learnt."""

    problem: Problem
    state: State
    metrics: Metrics = field(default_factory=dict)
    history: list[Metrics] = field(default_factory=list)
    seconds: float = 0.0
    interrupted: bool = False

    @property
    def particles(self) -> Tensor:
        """(N_p, d)."""
        return self.state.particles

    @property
    def totals(self) -> Totals:
        """What was sent up and down, in bits."""
        return self.state.totals

    def summary(self, run: str, seconds: float, uplink: Uplink | None) -> Metrics:
        """The result of a run, as `fedstein train --json` prints it."""
        names = ("accuracy", "ece", "ece_bins", "nll", "brier")
        base = {"run": run, "rounds": self.state.round, "seconds": round(seconds, 3)}
        rest = {key: value for key, value in self.metrics.items() if key != "round"}
        bill = {
            "budget_bits": None if uplink is None else uplink.contract.budget_bits,
            "max_upload_bits": self.totals.max_upload_bits,
            "total_upload_bits": self.totals.upload_bits,
            "kept": max((upload.kept for upload in self.state.uploads), default=None),
            "refused": self.totals.refused,
        }
        return base | dict.fromkeys(names) | rest | bill | {"interrupted": self.interrupted}

    def predict(self, x: Any) -> Prediction:
        """Mean probabilities, confidence, aleatoric and epistemic uncertainty for inputs (n, ...)."""
        inputs = as_inputs(x, "x", self.problem.agents[0].x.shape[1:])
        return predict(self.problem.model, self.particles, inputs)


def fit(
    problem: Problem,
    method: Method,
    *,
    rounds_to_do: int,
    schedule: Schedule,
    seed: int,
    evaluate_every: int,
    watchers: Sequence[Watcher] = (),
    state: State | None = None,
    uplink: Uplink | None = None,
    note: Note = no_note,
    escrow: bool = False,
    more: Iterator[State] | None = None,
    engine: Engine | None = None,
    patience: Patience = Patience(),  # noqa: B008  (frozen)
) -> Trained:
    """Train until `rounds_to_do` rounds are done; Ctrl-C ends it early and keeps what was learnt.

    `more` are the rounds after `state`, where they are not those of plain training (an erasure). `engine` carries the
    messages; every agent is in this process if it is None.
    """
    began = time.perf_counter()
    found = Trained(problem, start(problem, method, seed) if state is None else state)
    # The loop of the letter: schedule, visit, upload, apply (engines/server.py); here it is only watched.
    if more is None:
        more = rounds(
            problem,
            method,
            schedule,
            seed,
            found.state,
            uplink,
            note=note,
            escrow=escrow,
            engine=engine,
            patience=patience,
        )
    try:
        for now in islice(more, max(0, rounds_to_do - found.state.round)):
            found.state = now
            metrics = None
            if now.round == rounds_to_do or now.round % evaluate_every == 0:
                metrics = {"round": now.round} | problem.evaluate(now.particles)
                found.history.append(metrics)
            for watcher in watchers:
                watcher.after_round(now, metrics)
    except KeyboardInterrupt:
        found.interrupted = True
    if not found.history or found.history[-1]["round"] != found.state.round:
        found.history.append({"round": found.state.round} | problem.evaluate(found.particles))
    found.metrics = found.history[-1]
    found.seconds = time.perf_counter() - began
    return found


def train(
    module: nn.Module,
    agents: Sequence[Any],
    *,
    method: Method | None = None,
    rounds: int = 100,
    test: Any = None,
    seed: int = 0,
    schedule: Schedule | None = None,
    prior: Prior | None = None,
    init: Init = "fan-in",
    loss: Loss = cross_entropy,
    precision: Precision = "float32",
    uplink: UplinkConfig | None = None,
    evaluate_every: int = 50,
    watchers: Sequence[Watcher] = (),
) -> Trained:
    """Train `module` across agents that keep their data, in this process.

    Args:
        module: maps (B, ...) inputs to (B, classes) logits. Its own values are not changed.
        agents: one (x, y) pair of arrays, or one map-style data set, for each agent.
        method: for instance ``DSVGD(particles=5)`` or ``FedAvg()``; DSVGD with 10 particles if left out.
        rounds: how many rounds.
        test: (x, y) to evaluate on, or nothing.
        seed: of every random draw.
        schedule: who visits when; round robin, one agent a round, if left out.
        prior: N(0, I) if left out.
        init: "fan-in" starts like a network is usually started, "prior" draws from the prior.
        loss: per-example losses from outputs and targets.
        precision: "bf16" for bfloat16 products (dense stacks only).
        uplink: the bit budget, for instance ``UplinkConfig(budget="1.0d", feedback=True)``; no limit if left out.
        evaluate_every: rounds between evaluations on `test`.
        watchers: told after every round.

    Returns:
        The particles, their metrics, and `predict`.

    Raises:
        UserError: something given here does not fit.
        DivergedError: particles became non-finite.
    """
    method = DSVGD() if method is None else method
    schedule = Schedule() if schedule is None else schedule
    for name, number in (("rounds", rounds), ("evaluate_every", evaluate_every), ("seed", seed)):
        if type(number) is not int or number < (name != "seed"):
            raise UserError(f"The '{name}' must be a whole number, at least {int(name != 'seed')}. Got {number!r}.")
    for name, value, wanted in (
        ("module", module, nn.Module),
        ("method", method, Method),
        ("schedule", schedule, Schedule),
    ):
        if not isinstance(value, wanted):
            raise UserError(f"The '{name}' must be a {wanted.__name__}. Got {value!r} instead.")
    for name, word, words in (("init", init, get_args(Init)), ("precision", precision, get_args(Precision))):
        if word not in words:
            raise UserError(f"The '{name}' must be one of {', '.join(words)}. Got {word!r} instead.")
    if prior is not None and not hasattr(prior, "score"):
        raise UserError(f"The 'prior' must be a prior, for instance GaussianPrior(1.0). Got {prior!r} instead.")
    if not isinstance(agents, list | tuple) or len(agents) == 0:
        raise UserError(f"The 'agents' must be a list of one data set for each agent. Got {type(agents).__name__}.")
    names = [f"agents[{k}]" for k in range(len(agents))] + (["test"] if test is not None else [])
    given = [*agents, test] if test is not None else agents
    examples = [as_examples(data, name) for name, data in zip(names, given, strict=True)]
    for name, data in zip(names, examples, strict=True):
        if data.x.shape[1:] != examples[0].x.shape[1:]:
            raise UserError(
                f"{name}: x must be shaped like that of agents[0], {tuple(examples[0].x.shape[1:])}. "
                f"Got {tuple(data.x.shape[1:])} instead."
            )
    model = particle_model(module, loss, precision, examples[0].x[:2])
    if loss is cross_entropy:
        try:
            classes = model.log_probabilities(model.draw(1, torch.Generator()), examples[0].x[:1]).shape[2]
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            raise UserError(
                f"The 'module' cannot be used as particles on the inputs of agents[0] (float32, through torch.func): "
                f"{error}."
            ) from error
        examples = [as_examples(data, name, classes) for name, data in zip(names, examples, strict=True)]
    problem = Problem(
        model=model,
        agents=examples[: len(agents)],
        prior=GaussianPrior() if prior is None else prior,
        init=init,
        test=None if test is None else examples[-1],
    )
    return fit(
        problem,
        method,
        rounds_to_do=rounds,
        schedule=schedule,
        seed=seed,
        evaluate_every=evaluate_every,
        watchers=watchers,
        uplink=None if uplink is None else uplink.terms(method, model.dim),
    )
