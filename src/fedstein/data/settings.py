"""The section `data` of a config: where the examples come from, and who holds them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from fedstein.by_name import NAME
from fedstein.checked import Checked
from fedstein.data.partition import PARTITIONERS
from fedstein.data.sources import SOURCES

__all__ = ["DataConfig"]

# Which settings are for which sources alone.
_ONLY_FOR = {
    "table": ("target", "features", "agent_column", "test", "center", "scale", "standardise", "levels"),
    "images": ("test", "size", "channels"),
    "source": ("source", "args"),
}


def _numbers_in(value: Any) -> Iterator[float]:
    """All numbers in tables and lists."""
    if isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _numbers_in(part)
    elif isinstance(value, float):
        yield value


class DataConfig(Checked):
    """Where the examples come from and who holds them."""

    name: Annotated[str, AfterValidator(SOURCES.check)] = Field(
        "fashion-mnist", description="source; 'fedstein data list' describes them"
    )
    path: str | None = Field(
        None,
        description="folder of a data set of ours; your .npz file, your folder of them or of images, or your table",
    )
    source: str | None = Field(
        None,
        pattern=NAME,
        max_length=300,
        description="your own function 'package.module:function', which returns everybody's data (data.name source)",
    )
    args: dict[str, Any] = Field({}, description="what your function is given, by name")
    agents: int = Field(
        10, ge=1, le=10_000_000, description="K, how many agents; counted where the data says whose it is"
    )
    partition: Annotated[str, AfterValidator(PARTITIONERS.check)] = Field("iid", description="who holds what")
    examples: int | None = Field(
        None,
        ge=1,
        description="examples of each agent; all, in equal parts, if left out. Where the data says whose it is: the "
        "most that are drawn of anybody's own",
    )
    concentration: float = Field(0.5, gt=0, allow_inf_nan=False, description="of partition dirichlet; small = unequal")
    indices: str | None = Field(None, description="JSON file with one list of indices an agent (partition indices)")
    validation: int | float = Field(
        0,
        ge=0,
        description="training examples held out from all agents, to choose settings on; below 1: a share of them, and "
        "where the data says whose it is, of everybody's own",
    )
    test_examples: int | None = Field(
        None, ge=1, description="test examples that are used, the first ones; all if left out"
    )
    seed: int | None = Field(None, ge=0, description="of who holds what; the run's seed if left out")

    target: tuple[str, ...] = Field((), description="of a table: the column to learn, or several; texts are classes")
    features: tuple[str, ...] = Field((), description="of a table: the columns of the inputs; all others if left out")
    agent_column: str | None = Field(
        None, description="of a table: the column that says whose row it is; data.partition divides them if left out"
    )
    test: str | float | None = Field(
        None,
        description="of a table: a file of test rows; of a table or images: the share of everybody's that is drawn for "
        "testing, 0.2 if left out",
    )
    center: dict[str, float] = Field(
        {}, description="of a table: what is taken from columns of numbers; public constants, never the agents' means"
    )
    scale: dict[str, float] = Field({}, description="of a table: what they are then divided by; likewise")
    standardise: Literal["test"] | None = Field(
        None, description="test: center and scale that are left out are those of the test file, which no agent holds"
    )
    size: tuple[Annotated[int, Field(ge=1, le=16384)], Annotated[int, Field(ge=1, le=16384)]] | None = Field(
        None, description="of images: height and width to bring them to; that of the first image if left out"
    )
    channels: Literal[1, 3] | None = Field(
        None, description="of images: 1 is grey, 3 colour; as the first image if left out"
    )
    levels: dict[str, tuple[str, ...]] = Field(
        {}, description="of a table: the texts of each text column; read off the table if left out, and written down"
    )
    class_names: tuple[str, ...] = Field(
        (), description="what people call the classes; texts of the target in their order if left out, and written down"
    )
    agent_ids: tuple[Annotated[str, Field(pattern="^[0-9a-f]{16}$")], ...] = Field(
        (),
        description="digests of the agents' names by number; the run writes them down, so that nobody is renumbered, "
        "and that they can be asked for by name",
    )

    @model_validator(mode="before")
    @classmethod
    def _named_by_its_function(cls, given: Any) -> Any:
        """Who names a function means it."""
        if isinstance(given, dict) and given.get("source") is not None:
            return {"name": "source", **given}
        return given

    @field_validator("target", "features", "class_names", "agent_ids", "size", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        value = (value,) if isinstance(value, str) else value
        return tuple(value) if isinstance(value, list) else value

    @field_validator("levels", mode="before")
    @classmethod
    def _tables(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: tuple(texts) if isinstance(texts, list) else texts for name, texts in value.items()}

    @field_validator("target", "features", "class_names", "levels")
    @classmethod
    def _once(cls, value: Any) -> Any:
        for names in value.values() if isinstance(value, dict) else [value]:
            if twice := [name for place, name in enumerate(names) if name in names[:place]]:
                raise ValueError(f"must be different names. Got {twice[0]!r} twice.")
        return value

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if isinstance(self.validation, float) and not 0 <= self.validation < 1:
            raise ValueError(f"data.validation must be a whole number, or a share below 1. Got {self.validation:g}.")
        if isinstance(self.test, float) and not 0 < self.test < 1:
            raise ValueError(f"data.test must be a file, or a share between 0 and 1. Got {self.test:g}.")
        if any(not abs(value) < 1e30 for value in self.center.values()):
            raise ValueError(f"data.center must be finite numbers. Got {self.center}.")
        if any(not 1e-30 < value < 1e30 for value in self.scale.values()):
            raise ValueError(f"data.scale must be numbers above 0. Got {self.scale}.")
        if isinstance(self.test, str) and self.name == "images":
            raise ValueError("data.test must be a share between 0 and 1 where data.name is 'images'. Got a file.")
        for key in sorted({key for keys in _ONLY_FOR.values() for key in keys}):
            names = [name for name, keys in _ONLY_FOR.items() if key in keys]
            if self.name not in names and getattr(self, key) != type(self).model_fields[key].default:
                raise ValueError(f"data.{key} is for data.name = '{names[0]}'. Got data.name = '{self.name}'.")
        if not all(map(math.isfinite, _numbers_in(self.args))):
            raise ValueError("data.args must be finite numbers, texts, lists and tables. Got NaN or infinity.")
        if self.name == "source" and self.source is None:
            raise ValueError("data.source must name a function where data.name is 'source'. Got nothing.")
        return self

    @property
    def synthetic(self) -> bool:
        """Whether the posterior is known, and there is nothing to classify."""
        return self.name.startswith("synthetic")
