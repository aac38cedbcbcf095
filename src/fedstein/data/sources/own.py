"""Anything else: a function of one's own gives everybody's data (`data.source = "package:function"`).

It is called with `data.args` and returns a mapping:

    {"train": data, "test": data}                 what `data.partition` divides among the agents
    {"agents": [data, data, ...], "test": data}   what each agent has; None for one that has left

and, if wanted, "class_names" and "agent_names". Data is a pair (x, y) of arrays, or a data set of torch, however large.
Where the agents are on machines of their own, "agents" may be left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fedstein.by_name import imported
from fedstein.data.examples import Dataset, Examples, read_examples
from fedstein.data.rows import MEMORY
from fedstein.data.sources.base import Held, Source
from fedstein.data.sources.files import classes_in
from fedstein.errors import UserError
from fedstein.streams import seeded

if TYPE_CHECKING:
    from fedstein.data.settings import DataConfig

__all__ = ["SOURCE", "read"]

_KEYS = ("train", "agents", "test", "class_names", "agent_names")


def read(data: DataConfig, remote: bool) -> Dataset | Held:
    """What the function gives.

    Args:
        data: the section.
        remote: the agents keep their data elsewhere; only the test data is looked at.
    """
    if data.source is None:
        raise UserError("The 'data.source' must name a function, 'package.module:function'. Got nothing.")
    key = f"The 'data.source' {data.source!r}"
    make = imported(data.source, "data.source")
    try:
        with seeded() as seed_with:  # the same data every time, on every machine
            seed_with(0)
            came = make(**data.args)
    except UserError:
        raise
    except Exception as error:  # whatever a user's code raises
        raise UserError(
            f"{key} failed with data.args = {dict(data.args)!r}: {type(error).__name__}: {error}."
        ) from error
    if isinstance(came, Held | Dataset):  # of ours, from a frame for instance: its settings are not those of a config
        return replace(came, settings=_known(came.class_names) | _counted(came))
    if not isinstance(came, Mapping):
        raise UserError(f"{key} must return a mapping with 'test', and 'train' or 'agents'. Got {type(came).__name__}.")
    if unknown := [name for name in came if name not in _KEYS]:
        raise UserError(f"{key} must return a mapping with {', '.join(_KEYS)} alone. Got {unknown[0]!r} as well.")
    if came.get("test") is None or (("train" in came) == ("agents" in came) and not remote):
        raise UserError(
            f"{key} must return 'test', and either 'train' or 'agents'. Got {', '.join(came) or 'nothing'}."
        )
    names = _names(came, "class_names", key)
    test = read_examples(came["test"], f"{key}: test")
    if "agent_names" in came and "agents" not in came:
        raise UserError(f"{key}: 'agent_names' are for 'agents'. With 'train' the agents have numbers.")
    if "train" in came and not remote:
        train = read_examples(came["train"], f"{key}: train")
        _refuse_unlike(test, train, f"{key}: train")
        return Dataset("source", train, test, _classes([train, test], names, key), names, _known(names))
    listed = came.get("agents") or []
    if not isinstance(listed, Sequence) or isinstance(listed, str | bytes):
        raise UserError(f"{key} must return 'agents' as a list of data sets. Got {type(listed).__name__}.")
    agents = []
    for agent, own in enumerate(listed if not remote else []):
        examples = (
            test.none() if own is None else read_examples(own, f"{key}: agents[{agent}]", memory=MEMORY // len(listed))
        )
        _refuse_unlike(test, examples, f"{key}: agents[{agent}]")
        agents.append(examples)
    people = _names(came, "agent_names", key)
    if people and len(people) != len(listed):
        raise UserError(f"{key}: 'agent_names' must be {len(listed)}, as many as the agents. Got {len(people)}.")
    if remote:
        agents = [test.none()] * data.agents
    known = _known(names) | ({} if remote else {"agents": len(agents)})
    return Held(agents, test, _classes([test, *agents], names, key), names, people, known)


def _counted(came: Held | Dataset) -> dict[str, Any]:
    return {"agents": len(came.agents)} if isinstance(came, Held) else {}


def _known(names: Sequence[str]) -> dict[str, Any]:
    """Settings that a run writes down."""
    return {"class_names": tuple(names)} if names else {}


def _classes(parts: Sequence[Examples], names: Sequence[str], key: str) -> int | None:
    if any(part.y.is_floating_point() or part.y.dim() != 1 for part in parts):
        return None
    together: Tensor = torch.cat([part.y for part in parts])
    classes = classes_in(together)
    if names and (classes is None or classes > len(names)):
        raise UserError(f"{key}: 'class_names' must be as many as there are labels 0..C-1. Got {len(names)}.")
    return len(names) or classes


def _names(came: Mapping[str, Any], what: str, key: str) -> tuple[str, ...]:
    names = came.get(what) or ()
    if (
        not isinstance(names, list | tuple)
        or not all(isinstance(name, str) for name in names)
        or len(set(names)) != len(names)
    ):
        raise UserError(f"{key}: '{what}' must be different texts. Got {names!r}.")
    return tuple(names)


def _refuse_unlike(test: Examples, other: Examples, what: str) -> None:
    if other.x.shape[1:] != test.x.shape[1:]:
        raise UserError(
            f"{what}: x must be shaped like that of the test data, {tuple(test.x.shape[1:])}. Got "
            f"{tuple(other.x.shape[1:])}."
        )


SOURCE = Source("your own function: data.source = 'package.module:function', data.args", read=read, own=True)
