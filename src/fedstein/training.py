"""Training: the loop over rounds, with someone watching, and what comes out of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from fedstein.data import as_examples
from fedstein.engines import Schedule, State, rounds, start
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
    total_upload_bits: int = 0
    max_upload_bits: int = 0
    refused: int = 0

    @property
    def particles(self) -> Tensor:
        """(N_p, d)."""
        return self.state.particles

    def predict(self, x: Any) -> Prediction:
        """Mean probabilities, confidence, aleatoric and epistemic uncertainty for inputs (n, ...)."""
        return predict(self.problem.model, self.particles, torch.as_tensor(x).float())


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
) -> Trained:
    """Train until `rounds_to_do` rounds are done; Ctrl-C ends it early and keeps what was learnt."""
    began = time.perf_counter()
    found = Trained(problem, start(problem, method, seed) if state is None else state)
    try:
        for now in rounds(problem, method, schedule, seed, found.state, uplink):
            found.state = now
            for upload in now.uploads:
                found.total_upload_bits += upload.bits
                found.max_upload_bits = max(found.max_upload_bits, upload.bits)
                found.refused += upload.refused
            last = now.round >= rounds_to_do
            metrics = None
            if last or now.round % evaluate_every == 0:
                metrics = {"round": now.round} | problem.evaluate(now.particles)
                found.history.append(metrics)
            for watcher in watchers:
                watcher.after_round(now, metrics)
            if last:
                break
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
        evaluate_every: rounds between evaluations on `test`.
        watchers: told after every round.

    Returns:
        The particles, their metrics, and `predict`.

    Raises:
        UserError: something given here does not fit.
        DivergedError: particles became non-finite.
    """
    if rounds < 1 or evaluate_every < 1:
        raise UserError(f"The 'rounds' and 'evaluate_every' must be at least 1. Got {rounds} and {evaluate_every}.")
    if len(agents) == 0:
        raise UserError("The 'agents' must be one data set for each agent, at least one. Got none.")
    model = particle_model(module, loss, precision)
    examples = [as_examples(data, f"agents[{k}]") for k, data in enumerate(agents)]
    classes = None
    if loss is cross_entropy:
        try:
            classes = model.log_probabilities(model.draw(1, torch.Generator()), examples[0].x[:1]).shape[2]
        except RuntimeError as error:
            raise UserError(f"The 'module' does not take the inputs of agents[0]: {error}.") from error
        examples = [as_examples(data, f"agents[{k}]", classes) for k, data in enumerate(examples)]
    for k, data in enumerate(examples):
        if data.x.shape[1:] != examples[0].x.shape[1:]:
            raise UserError(
                f"agents[{k}]: x must be shaped like that of agents[0], {tuple(examples[0].x.shape[1:])}. "
                f"Got {tuple(data.x.shape[1:])} instead."
            )
    problem = Problem(
        model=model,
        agents=examples,
        prior=GaussianPrior() if prior is None else prior,
        init=init,
        test=None if test is None else as_examples(test, "test", classes),
    )
    return fit(
        problem,
        DSVGD() if method is None else method,
        rounds_to_do=rounds,
        schedule=Schedule() if schedule is None else schedule,
        seed=seed,
        evaluate_every=evaluate_every,
        watchers=watchers,
    )
