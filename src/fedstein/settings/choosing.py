"""Settings that nobody gave are chosen to suit the budget and the agents.

What is chosen, and from which trainings, is in experiments/defaults: every choice was made on validation data. Whatever
was given stays as it was given. A preset is whole: nothing is chosen in it. A run folder's config.toml has every choice
written down, so that a later fedstein changes nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fedstein.data import SOURCES
from fedstein.methods import DSVGD, FedAvg, Method
from fedstein.protocol.uplink import Uplink
from fedstein.settings.schema import Config

__all__ = ["Choice", "choose", "choose_parts"]

_CLASSES = ("categorical", "bernoulli")  # likelihoods whose gradients have a known scale
_ALIKE, _UNLIKE = 0.2, 0.1  # plain steps, for agents whose data is alike or not


@dataclass(frozen=True)
class Choice:
    """One setting that was chosen."""

    key: str
    value: Any
    why: str


def choose(table: Mapping[str, Any]) -> tuple[dict[str, Any], list[Choice]]:
    """A config's table with what was left out filled in where something suits better, and what was chosen.

    >>> choose({"uplink": {"budget": "0.2d"}})[0]["uplink"]
    {'budget': '0.2d', 'entries': 'adaptive', 'feedback': True}
    """
    filled: dict[str, Any] = {key: dict(part) if isinstance(part, Mapping) else part for key, part in table.items()}
    if not all(isinstance(filled.get(name, {}), dict) for name in ("method", "uplink", "data", "likelihood")):
        return filled, []  # a mistake, which is told where settings are checked
    choices = []
    for choice in _choices(filled):
        section, _, key = choice.key.partition(".")
        if key not in filled.setdefault(section, {}):
            filled[section][key] = choice.value
            choices.append(choice)
    return filled, choices


def choose_parts(method: Method, uplink: Uplink, likelihood: str, rounds: int) -> tuple[Method, Uplink]:
    """The same for what was made in Python: what its maker left out is chosen.

    Args:
        method: as it was made.
        uplink: likewise.
        likelihood: its name.
        rounds: of the training.
    """
    if type(method) not in (DSVGD, FedAvg):
        return method, uplink
    given = {"name": method.name} | {key: getattr(method, key) for key in method.model_fields_set}
    budget = {key: getattr(uplink, key) for key in uplink.model_fields_set}
    parts = {"data": {"name": "given"}, "likelihood": {"name": likelihood}, "method": given, "uplink": budget}
    filled, _ = choose({"rounds": rounds, **parts})
    del filled["method"]["name"]
    return type(method)(**filled["method"]), Uplink(**filled["uplink"])


def _choices(table: dict[str, Any]) -> Iterator[Choice]:
    """One after the other: each may look at what the ones before have come to."""
    method, data = table.get("method", {}), table.get("data", {})
    name = method.get("name", "dsvgd")
    if name not in ("dsvgd", "fedavg") or method.get("factor", "flat") not in ("flat", "linear"):
        return  # samplers, plugins and problems of one dimension have settings of their own
    if str(data.get("name", "")).startswith("synthetic"):
        return
    linear = method.get("factor", "flat") == "linear"
    if name == "dsvgd":
        yield Choice("method.particles", 1, "one chain: its way is the posterior, for a fraction of the download")
        if not linear:
            yield Choice("method.kernel", "none", "a kernel has brought nothing over chains that stand alone")
    if not linear and table.get("likelihood", {}).get("name", "categorical") in _CLASSES:
        yield Choice("method.step", "gradient", "what plain steps change compresses best")
        if table["method"]["step"] == "gradient":
            alike = _alike(data)
            size, whom = (_ALIKE, "alike") if alike else (_UNLIKE, "unlike, or not known to be alike")
            kernel, particles = table["method"].get("kernel", "none"), table["method"].get("particles", 1)
            if kernel != "none" and isinstance(particles, int):
                size *= particles  # the kernel takes a mean over particles
            yield Choice("method.step_size", size, f"the agents' data is {whom}")
            if not alike and type(rounds := table.get("rounds", Config.model_fields["rounds"].default)) is int:
                yield Choice("method.anneal_over", rounds, "with steps that shrink it ends between unlike agents")
    if table.get("uplink", {}).get("budget") is not None:
        yield Choice("uplink.entries", "adaptive", "entropy coding: as many entries as fit into the budget")
        if not linear:
            yield Choice("uplink.feedback", True, "what did not fit is sent later, not lost")
        if table["method"].get("particles", 1) != 1:
            yield Choice("uplink.common", True, "particles may share a frame's values where that carries more")


def _alike(data: Mapping[str, Any]) -> bool:
    """Whether the agents' data is divided here, at random: then it is alike."""
    source = SOURCES[name] if (name := str(data.get("name", "fashion-mnist"))) in SOURCES else None
    divided = source is not None and (source.load is not None or (name == "table" and "agent_column" not in data))
    return divided and data.get("partition", "iid") == "iid"
