"""How a call from Python works: with a bar where somebody would see it, in memory or not."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from fedstein.api.arguments import as_list, check_whole, refuse
from fedstein.devices import device_here
from fedstein.engines import check_engine, open_engine
from fedstein.progress import Bar
from fedstein.runs import verbs
from fedstein.runs.given import Given
from fedstein.runs.onlooker import Onlooker
from fedstein.runs.problem import Problem, crew_of
from fedstein.runs.training import Trained
from fedstein.runs.verbs import How
from fedstein.settings import Config
from fedstein.store.lineage import Lineage
from fedstein.trackers import Watcher

__all__ = ["check_workers", "how_of", "onlooker_of", "train_in_memory"]

_MOST_WORKERS = 4096


class _Bars(Onlooker):
    """Shows a bar for every training."""

    def watching(self, title: str, rounds: int) -> AbstractContextManager[Watcher]:
        """A bar."""
        return Bar(rounds)


def how_of(
    *,
    engine: str = "local",
    workers: int | None = None,
    watchers: Sequence[Watcher] = (),
    progress: bool = True,
    onlooker: Onlooker | None = None,
    device: str | None = None,
) -> How:
    """Engine and onlookers of a call, checked.

    Args:
        engine: what carries the messages: ``local``, ``ray:auto``, ...
        workers: visits side by side, where the engine can.
        watchers: told after every round.
        progress: show a bar where somebody would see it.
        onlooker: looks on instead of a bar.
        device: on which it is computed, if not on the config's.
    """
    if not isinstance(engine, str):
        raise refuse("engine", "a name, for instance 'local' or 'ray:auto'", engine)
    check_workers(workers)
    check_engine(engine, workers)
    wanted = "a list of objects with a method after_round(state, told)"
    told = as_list("watchers", watchers, wanted)
    if not all(callable(getattr(watcher, "after_round", None)) for watcher in told):
        raise refuse("watchers", wanted, watchers)
    if device is not None:
        device_here(device)
    return How(engine, workers, onlooker_of(progress, onlooker), told, device)


def check_workers(workers: int | None) -> None:
    """Refuse what is no number of workers; None leaves it to the engine."""
    if workers is not None:
        check_whole("workers", workers, 1, _MOST_WORKERS)


def onlooker_of(progress: bool, onlooker: Onlooker | None) -> Onlooker:
    """Who looks on: a bar unless there is somebody else, or nobody."""
    if onlooker is None:
        return _Bars() if progress else Onlooker()
    if not isinstance(onlooker, Onlooker):
        raise refuse("onlooker", "an Onlooker, or left out", onlooker)
    return onlooker


def train_in_memory(
    config: Config, lineage: Lineage, problem: Problem, how: How, given: Given | None, before: Trained | None = None
) -> Trained:
    """Train without a folder, from the beginning or from where it was."""
    so_far: dict[str, Any] = {} if before is None else {"state": before.state, "told": before.told}
    crew = crew_of(config, lineage, problem, given)
    with (
        open_engine(how.engine, crew, how.workers) as engine,
        how.onlooker.watching("training", config.rounds) as bar,
    ):
        return verbs.fit_config(config, problem=problem, watchers=[bar, *how.watchers], engine=engine, **so_far)
