"""Training: the loop over rounds, with someone watching."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from torch import Tensor

from fedstein.coding import Link
from fedstein.data import Holdings
from fedstein.engines import Local
from fedstein.methods import Method
from fedstein.metrics.names import in_words
from fedstein.models import Task
from fedstein.posterior import Posterior, members
from fedstein.protocol.messages import Engine, Note, no_note
from fedstein.protocol.patience import Patience
from fedstein.protocol.schedule import Schedule
from fedstein.protocol.server import rounds, start
from fedstein.protocol.state import Metrics, State, Told, Totals
from fedstein.trackers import Watcher

__all__ = ["LAST", "Trained", "fit", "members_of"]

LAST = Posterior("last")

_log = logging.getLogger("fedstein")


@dataclass(repr=False)
class Trained:
    """What a training has come to."""

    state: State
    told: Told = Told()  # noqa: RUF009  (frozen)
    metrics: Metrics = field(default_factory=dict)
    history: list[Metrics] = field(default_factory=list)
    posterior: Posterior = LAST
    seed: int = 0
    seconds: float = 0.0
    interrupted: bool = False

    @property
    def particles(self) -> Tensor:
        """(N_p, d)."""
        return self.state.particles

    @property
    def members(self) -> Tensor:
        """(M, d): what predicts."""
        return members_of(self.state, self.posterior, self.seed)

    @property
    def totals(self) -> Totals:
        """What was sent up and down, in bits."""
        return self.state.totals

    def summary(self, run: str, seconds: float, link: Link | None) -> Metrics:
        """The result of a run, as `fedstein train --json` prints it."""
        names = ("accuracy", "ece", "ece_bins", "nll", "brier")
        base = {"run": run, "rounds": self.state.round, "seconds": round(seconds, 3)}
        rest = {key: value for key, value in self.metrics.items() if key != "round"}
        bill = {
            "budget_bits": None if link is None else link.contract.budget_bits,
            "max_upload_bits": self.totals.max_upload_bits,
            "total_upload_bits": self.totals.upload_bits,
            "kept": max((upload.kept for upload in self.told.uploads), default=None),
            "refused": self.totals.refused,
        }
        return base | dict.fromkeys(names) | rest | bill | {"interrupted": self.interrupted}


def members_of(state: State, posterior: Posterior, seed: int) -> Tensor:
    """What predicts after a round: the members (M, d)."""
    return members(posterior, state.particles, state.turns, state.round, seed)


def fit(
    task: Task,
    holdings: Holdings,
    evaluate: Callable[[Tensor], Metrics],
    method: Method,
    *,
    rounds_to_do: int,
    schedule: Schedule,
    seed: int,
    evaluate_every: int,
    posterior: Posterior = LAST,
    watchers: Sequence[Watcher] = (),
    state: State | None = None,
    told: Told = Told(),  # noqa: B008  (frozen)
    link: Link | None = None,
    note: Note = no_note,
    escrow: bool = False,
    more: Iterator[tuple[State, Told]] | None = None,
    engine: Engine | None = None,
    patience: Patience = Patience(),  # noqa: B008  (frozen)
) -> Trained:
    """Train until `rounds_to_do` rounds are done; Ctrl-C ends it early and keeps what was learnt.

    Args:
        task: what is to be learnt.
        holdings: who holds what.
        evaluate: judges what predicts.
        method: what a visit is.
        rounds_to_do: in all, those that are done included.
        schedule: who visits.
        seed: of every random draw.
        evaluate_every: rounds between evaluations.
        posterior: what predicts.
        watchers: told after every round.
        state: where to go on from; the beginning if None.
        told: of the last round that is done.
        link: the bit budget.
        note: is told of every protocol event.
        escrow: the server keeps what it applied of each agent.
        more: the rounds after `state`, where they are not those of plain training (an erasure).
        engine: carries the messages; every agent is in this process if it is None.
        patience: how long a round waits.
    """
    began = time.perf_counter()
    state = start(task, method, seed) if state is None else state
    trained = Trained(state, told, posterior=posterior, seed=seed)
    # The loop of the letter: schedule, visit, upload, apply (protocol/server.py); here it is only watched.
    if more is None:
        engine = Local(task, holdings, method.central) if engine is None else engine
        more = rounds(
            task, holdings, method, schedule, seed, trained.state, engine,
            link=link, note=note, escrow=escrow, patience=patience, window=posterior.length(method.particles),
        )  # fmt: skip
    try:
        for now, about in islice(more, max(0, rounds_to_do - trained.state.round)):
            if now.round == rounds_to_do or now.round % evaluate_every == 0:
                about = replace(about, metrics={"round": now.round} | evaluate(members_of(now, posterior, seed)))
                assert about.metrics is not None
                trained.history.append(about.metrics)
                _log.info("round %d: %s", now.round, in_words(about.metrics) or "nothing to judge by")
            trained.state, trained.told = now, about
            for watcher in watchers:
                watcher.after_round(now, about)
    except KeyboardInterrupt:
        trained.interrupted = True
    if not trained.history or trained.history[-1]["round"] != trained.state.round:
        trained.history.append({"round": trained.state.round} | evaluate(trained.members))
    trained.metrics = trained.history[-1]
    trained.seconds = time.perf_counter() - began
    return trained
