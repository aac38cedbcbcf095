"""Who holds what: the examples of every agent, and which agents take part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import torch
from torch import Tensor

from fedstein.data.examples import Dataset, Examples, Takes, as_taken, of_one_kind
from fedstein.data.partition import PARTITIONERS
from fedstein.data.rows import joined
from fedstein.data.settings import DataConfig
from fedstein.data.sources import SOURCES, Held
from fedstein.data.sources.contents import EVERYBODYS, Contents
from fedstein.data.sources.files import save_examples
from fedstein.errors import UserError
from fedstein.likelihoods import Categorical, Likelihood
from fedstein.streams import stream

__all__ = ["Holdings", "divide", "fit_inputs", "fit_targets", "split_into_files", "who_has_what"]

CLASS_PARTITIONS = ("class-pairs", "dirichlet")


@dataclass(frozen=True, repr=False)
class Holdings:
    """The agents' examples. An agent keeps its number when it is erased, and never visits again."""

    agents: Sequence[Examples]
    erased: tuple[int, ...] = ()
    remote: bool = False  # the examples are with the agents: here they are empty
    names: tuple[str, ...] = ()  # what people call them, if they are called anything

    def __repr__(self) -> str:
        gone = f", {len(self.erased)} erased" if self.erased else ""
        return f"Holdings({len(self.agents)} agents{gone}{', elsewhere' if self.remote else ''})"

    @property
    def present(self) -> list[int]:
        """The agents that take part."""
        return [agent for agent in range(len(self.agents)) if agent not in self.erased]

    @property
    def sizes(self) -> list[int]:
        """How many examples each agent has."""
        return [len(examples) for examples in self.agents]

    def pooled(self, agents: Sequence[int] | None = None) -> Examples:
        """The examples of some agents as one agent's; of all that take part if None."""
        some = [self.agents[agent] for agent in (self.present if agents is None else agents)]
        return Examples(joined([data.x for data in some]), torch.cat([data.y for data in some]))

    def erased_labels(self) -> list[int]:
        """Labels that nobody but the erased agents holds."""
        if not self.erased or self.remote:
            return []
        return sorted(set(self.pooled(self.erased).y.tolist()) - set(self.pooled().y.tolist()))

    def check(self) -> None:
        """Refuse erased agents that were never there, or all of them."""
        if unknown := [agent for agent in self.erased if agent >= len(self.agents)]:
            raise UserError(f"The agents must be in 0..{len(self.agents) - 1}. Got {', '.join(map(str, unknown))}.")
        empty = [agent for agent in self.present if len(self.agents[agent]) == 0]
        if empty and not self.remote:
            raise UserError(
                f"Every agent must have examples. Agents {', '.join(map(str, empty))} have none: their data is not "
                "where it was."
            )
        if not self.present:
            raise UserError(
                f"At least one of the {len(self.agents)} agents must stay: a model without any data is a new model."
            )


def who_has_what(data: DataConfig, seed: int, split: str = "test", remote: bool = False) -> Held:
    """The examples of each agent, what to evaluate on, and how many classes there are.

    Args:
        data: the settings.
        seed: of the run; it decides who holds what unless `data.seed` does.
        split: evaluate on "test" or "validation" examples.
        remote: the agents keep their examples elsewhere; here they are empty.
    """
    path = Path(data.path) if data.path else None
    source = SOURCES[data.name]
    if source.held is not None:
        if path is None:
            raise UserError(f"The 'data.path' must name your folder when data.name is '{data.name}'. Got nothing.")
        _refuse_dividing(data, split)
        return _as_it_is(source.held(path, data.agents, remote), data, split, remote)
    if source.read is not None:
        came = source.read(data, remote)
    elif source.load is not None:
        came = source.load(path)
    else:
        raise UserError(f"The 'data.name' must be a source of examples to divide. Got '{data.name}'.")
    if isinstance(came, Held):
        _refuse_dividing(data, split)
        return _as_it_is(came, data, split, remote)
    return divide(came, data, seed, split, remote)


def divide(dataset: Dataset, data: DataConfig, seed: int, split: str = "test", remote: bool = False) -> Held:
    """Give everybody a part, as `data.partition` says.

    Args:
        dataset: all examples.
        data: the settings.
        seed: of the run.
        split: evaluate on "test" or "validation" examples.
        remote: the agents keep their examples elsewhere; here they are empty.
    """
    train, validation = _hold_out(dataset, data.validation)
    if data.test_examples is not None:
        if data.test_examples > len(dataset.test):
            raise UserError(f"The 'data.test_examples' must be at most the {len(dataset.test):,} test examples there "
                            f"are. Got {data.test_examples:,}.")  # fmt: skip
        dataset = replace(dataset, test=dataset.test.take(torch.arange(data.test_examples)))
    if split == "validation" and validation is None:
        raise UserError("The 'evaluation.split' validation needs 'data.validation' > 0. Got 0.")
    if data.indices is not None and data.partition != "indices":
        raise UserError(f"The 'data.indices' needs data.partition = 'indices'. Got '{data.partition}'.")
    if dataset.classes is None and data.partition in CLASS_PARTITIONS:
        raise UserError(f"The 'data.partition' {data.partition} divides classes, and these targets are no labels.")
    generator = stream(seed if data.seed is None else data.seed, "partition")
    parts = PARTITIONERS[data.partition](train.y, data, generator)
    test = dataset.test if split == "test" or validation is None else validation
    train, test = of_one_kind({"the training examples": train, "the test examples": test}).values()
    return Held(
        [test.none() if remote else train.take(part) for part in parts],
        test,
        dataset.classes,
        dataset.class_names,
        settings=dataset.settings,
        notes=dataset.notes,
        contents=_with_indices(dataset.contents, data),
    )


def _with_indices(contents: Contents, data: DataConfig) -> Contents:
    if data.indices is None:
        return contents
    return {**contents, EVERYBODYS: {**contents.get(EVERYBODYS, {}), "data.indices": Path(data.indices)}}


def _as_it_is(held: Held, data: DataConfig, split: str, remote: bool) -> Held:
    """Examples that are with their agents already."""
    *agents, test = of_one_kind(_named(held)).values()
    held = replace(held, agents=agents, test=test)
    if remote and len(held.agents) != data.agents:
        raise UserError(f"The 'data.agents' must be {len(held.agents)}, as many as the data has. Got {data.agents}.")
    if data.validation:
        held = _hold_out_of_each(held, data, split)
    if data.examples is not None and not remote:
        held = _some_of_each(held, data.examples)
    return replace(held, agents=[held.test.none()] * data.agents, groups=()) if remote else held


def fit_inputs(held: Held, takes: Takes) -> Held:
    """Everybody's inputs as a network takes them.

    Args:
        held: as the data source gives it.
        takes: what the network takes.
    """
    *agents, test = (as_taken(data, name, takes) for name, data in _named(held).items())
    return replace(held, agents=agents, test=test)


def _named(held: Held) -> dict[str, Examples]:
    """Everybody's examples, by what they are called in messages; the test examples come last."""
    return {f"agent {number}": data for number, data in enumerate(held.agents)} | {"the test examples": held.test}


def _refuse_dividing(data: DataConfig, split: str) -> None:
    if data.partition != "iid":
        raise UserError(f"With data.name = '{data.name}' everybody's data is as it is: no partition.")
    if data.test_examples is not None:
        raise UserError(f"With data.name = '{data.name}' the test examples are as they are: no 'data.test_examples'.")
    if data.validation and isinstance(data.validation, int):
        raise UserError(
            f"With data.name = '{data.name}' everybody's data is as it is: 'data.validation' must be a share of "
            f"everybody's own, for instance 0.2. Got {data.validation}."
        )
    if split == "validation" and not data.validation:
        raise UserError("The 'evaluation.split' validation needs 'data.validation' > 0. Got 0.")


def _hold_out_of_each(held: Held, data: DataConfig, split: str) -> Held:
    """A share of everybody's own examples for validation: the same for every seed, and whoever else is there.

    Examples of one group (a day, a recording) are alike, so a group is held out as a whole; every example is one where
    the source says nothing of them. Groups that several agents have are held out of all of them alike.
    """
    rest, out, groups = [], [], []
    for agent, own in enumerate(held.agents):
        group = held.groups[agent] if held.groups else torch.arange(len(own))
        chosen = _drawn(group, data.validation)
        rest.append(own.take((~chosen).nonzero()[:, 0]))
        out.append(own.take(chosen.nonzero()[:, 0]))
        groups.append(group[~chosen])
    validation = Examples(joined([one.x for one in out]), torch.cat([one.y for one in out]))
    if not len(validation):
        raise UserError(
            "The 'data.validation' holds nothing out: everybody has one group of examples, or they are elsewhere."
        )
    test = validation if split == "validation" else held.test
    return replace(held, agents=rest, test=test, groups=tuple(groups))


def _some_of_each(held: Held, most: int) -> Held:
    """At most so many of everybody's own examples: the same for every seed, and whoever else is there."""
    agents = []
    for agent, own in enumerate(held.agents):
        order = torch.randperm(len(own), generator=stream(0, "examples", agent=agent))[:most]
        agents.append(own.take(order.sort().values) if len(own) > most else own)
    return replace(held, agents=agents, groups=())


def _drawn(group: Tensor, share: float) -> Tensor:
    """Which examples are held out: those of a share of the groups, at least of one, and never of all."""
    names = sorted(set(group.tolist()), key=lambda name: sha256(f"validation {name}".encode()).digest())
    count = min(max(1, round(share * len(names))), max(len(names) - 1, 0))
    return torch.isin(group, torch.tensor(names[:count], dtype=group.dtype))


def fit_targets(held: Held, likelihood: Likelihood) -> tuple[Held, int]:
    """Everybody's targets as a likelihood takes them, and how many outputs a model of them must have.

    Args:
        held: as the data source gives it.
        likelihood: of the run.

    Raises:
        UserError: they do not fit.
    """
    if isinstance(likelihood, Categorical):
        if held.classes is None:
            raise UserError(
                "The targets of the data must be whole-number labels 0..C-1 of at least two classes for the likelihood "
                f"'categorical'. Got {held.test.y.dtype} of shape {tuple(held.test.y.shape)}. For numbers set "
                "likelihood.name=gaussian, for counts poisson, for several yes-or-no labels bernoulli."
            )
        targets = held.classes
    elif held.class_names:
        raise UserError(
            f"The targets are classes ({', '.join(held.class_names[:5])}, ...), and the likelihood '{likelihood.name}' "
            "is of numbers. Set likelihood.name=categorical, or name a column of numbers."
        )
    else:
        targets = held.test.y.shape[1] if held.test.y.dim() > 1 else 1
    outputs = likelihood.outputs(targets)
    *agents, test = (_fit(data, name, likelihood, outputs) for name, data in _named(held).items())
    return replace(held, agents=agents, test=test), outputs


def _fit(data: Examples, what: str, likelihood: Likelihood, outputs: int) -> Examples:
    return Examples(data.x, likelihood.check(data.y, what, outputs))


def _hold_out(dataset: Dataset, share_or_count: float) -> tuple[Examples, Examples | None]:
    """The training examples without the validation ones, which are the same for every seed."""
    if share_or_count == 0:
        return dataset.train, None
    count = round(share_or_count * len(dataset.train)) if isinstance(share_or_count, float) else share_or_count
    if count >= len(dataset.train):
        raise UserError(f"The 'data.validation' must be below the {len(dataset.train)} training examples. Got {count}.")
    order = torch.randperm(len(dataset.train), generator=stream(0, "validation"))
    return dataset.train.take(order[count:]), dataset.train.take(order[:count])


def split_into_files(data: DataConfig, seed: int, folder: Path) -> Held:
    """Write what each agent would hold into a file of its own, and test.npz: to try agents on machines of their own.

    Args:
        data: the settings.
        seed: of the run.
        folder: a new or empty one.
    """
    if data.synthetic:
        raise UserError(f"The 'data.name' must be a classifier's. Got '{data.name}'.")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"The 'DIR' must be a new or empty folder. Got {str(folder)!r}.")
    held = who_has_what(data, seed)
    folder.mkdir(parents=True, exist_ok=True)
    for number, examples in enumerate(held.agents):
        save_examples(folder / f"agent-{number}.npz", examples)
    save_examples(folder / "test.npz", held.test)
    return held
