"""What a run's data was when it began, so that an edit is told and never learnt.

RUN/data.json                   SHA-256 of the files that are no single agent's: everybody's, those for testing
RUN/agents/agent-K/data.json    of those of an agent, or of its rows of a table; purged with the agent

A run without these, an older one, goes on with what is there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection
from pathlib import Path

from fedstein.data.sources.contents import Digests, digests_of, of_agent
from fedstein.errors import UserError
from fedstein.runs.onlooker import Onlooker
from fedstein.runs.problem import Problem
from fedstein.store.files import to_json, write

__all__ = ["check_data", "hashed", "keep_data"]

_RECORD = "data.json"
_SHOWN = 5  # differences that a message lists
_LONG = 2.0  # seconds, from which on it is said how long it took


def hashed(problem: Problem, onlooker: Onlooker = Onlooker()) -> Digests:  # noqa: B008  (it keeps nothing)
    """SHA-256 of the data of those who take part."""
    began = time.perf_counter()
    gone = {of_agent(agent) for agent in problem.holdings.erased}
    digests = digests_of({owner: parts for owner, parts in problem.contents.items() if owner not in gone})
    if (seconds := time.perf_counter() - began) > _LONG:
        count = sum(map(len, digests.values()))
        onlooker.say(f"SHA-256 of {count:,} files of data: {seconds:.1f} s")
    return digests


def keep_data(run: Path, digests: Digests) -> None:
    """Write it into a run folder."""
    for owner, parts in digests.items():
        (run / owner).mkdir(parents=True, exist_ok=True)
        write(run / owner / _RECORD, to_json(parts, indent=2).encode())


def check_data(run: Path, digests: Digests, erased: Collection[int] = ()) -> None:
    """Refuse data that is not what it was when a run began.

    Args:
        run: the folder.
        digests: of the data as it is now.
        erased: agents whose data may have changed or be gone.

    Raises:
        UserError: a file has changed, is new, or is gone.
    """
    free = {of_agent(agent) for agent in erased}
    for owner, now in digests.items():
        then = None if owner in free else _kept(run / owner / _RECORD)
        if then is None or then == now:
            continue
        changed = [f"{name} has changed" for name in then if name in now and now[name] != then[name]]
        changed += [f"{name} is gone" for name in then if name not in now]
        changed += [f"{name} is new" for name in now if name not in then]
        more = f", and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
        raise UserError(
            f"The data is not what it was when run '{run}' began: {', '.join(changed[:_SHOWN])}{more}. Put it back, or "
            f"train a new run with it. If the run is to go on with what is there now, delete {run / owner / _RECORD}."
        )


def _kept(path: Path) -> dict[str, str] | None:
    try:
        record = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"The file {path} is damaged: {str(error)[:200]}. Delete it to go on unchecked.") from error
    if not isinstance(record, dict) or not all(isinstance(value, str) for value in record.values()):
        raise UserError(f"The file {path} is damaged: it must have SHA-256 by name. Delete it to go on unchecked.")
    return record
