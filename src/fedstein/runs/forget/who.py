"""Who is meant by a request: agents by number, or by the names that the data has for them.

A run knows its agents' names by digests alone (`data.agent_ids`), so that it names nobody who has left. The names
themselves are read with the data, and only for the words of a refusal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from fedstein.data import who_has_what
from fedstein.data.sources.table import agent_id, some_of
from fedstein.errors import UserError, like
from fedstein.runs.folder import is_remote, load_run_config
from fedstein.runs.given import Given
from fedstein.settings import Config

__all__ = ["agents_meant"]


def agents_meant(run: Path, agents: Sequence[int | str], given: Given | None = None) -> list[int]:
    """The numbers of agents.

    Args:
        run: the folder.
        agents: numbers; or texts: names, numbers, or ``number=2`` where 2 is somebody's name as well.
        given: what the run was given in Python.

    Raises:
        UserError: a text is nobody's name, or may mean two agents. Whether a number is an agent's is not looked at.
    """
    texts = [agent for agent in agents if isinstance(agent, str)]
    if not texts:
        return sorted(int(agent) for agent in agents)
    config = load_run_config(run, careful=False)
    ids = config.data.agent_ids
    if not ids and any(_number(text) is None for text in texts):  # of a run from before they were written down
        ids = tuple(map(agent_id, _names(run, config, given)))
    numbers = []
    for agent in agents:
        number = agent if isinstance(agent, int) else _one(agent, ids)
        if number is None:
            raise _nobody(str(agent), _names(run, config, given))
        numbers.append(number)
    return sorted(numbers)


def _one(text: str, ids: Sequence[str]) -> int | None:
    """The number of one agent; None if nobody is called so."""
    key, number = agent_id(text.strip()), _number(text)
    if key not in ids:
        return number
    named = ids.index(key)
    if number is not None and number != named and number < len(ids):
        raise UserError(
            f"The '--agents' {text} may mean two agents: {text} is the name of number {named}. Write number={named} "
            f"for that one, or number={number} for the other."
        )
    return named


def _number(text: str) -> int | None:
    found = re.fullmatch(r"(?:number=)?(-?[0-9]{1,9})", text.strip())
    return None if found is None else int(found[1])


def _names(run: Path, config: Config, given: Given | None) -> Sequence[str]:
    if given is not None:
        return given.names
    if config.is_given or config.data.synthetic:
        return ()
    return who_has_what(config.data, config.seed, remote=is_remote(run)).agent_names


def _nobody(text: str, names: Sequence[str]) -> UserError:
    known = [name for name in names if name]
    if not known:
        return UserError(
            f"The 'agents' must be numbers ([2, 3], or --agents 2,3): those of this run have no names. Got {text!r}."
        )
    return UserError(
        f"The '--agents' must be names or numbers of agents. Nobody is called {text!r}.{like(text, known)} "
        f"There are {some_of(known)}."
    )
