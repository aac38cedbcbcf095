"""Settings that are checked when they are made, and say in plain words what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError

from fedstein.errors import UserError, nearest

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)

__all__ = ["Checked", "explain"]


class _Kind(ModelMetaclass):
    """Makes settings, and a mistake in them a `UserError`.

    Only what a user makes by hand comes through here: settings inside settings are checked by pydantic alone, which
    then knows where in the whole they stand.
    """

    def __call__(self, *values: Any, **named: Any) -> Any:
        kind: Any = self
        names: tuple[str, ...] = kind.positional
        if len(values) > len(names):
            raise UserError(f"{self.__name__} takes its settings by name, for instance {_example(kind)}.")
        try:
            return super().__call__(**dict(zip(names, values, strict=False)), **named)
        except ValidationError as error:
            fields = list(kind.model_fields)
            raise UserError(explain(error, lambda _: fields, f"{self.__name__}: '{{}}'")) from None


class Checked(BaseModel, metaclass=_Kind):
    """Frozen settings, strict in their types, with no unknown names."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    positional: ClassVar[tuple[str, ...]] = ()  # what may be given without its name

    def __setattr__(self, name: str, value: Any) -> None:
        if not self.model_config.get("frozen"):
            return super().__setattr__(name, value)
        kind = type(self).__name__
        raise UserError(f"{kind}: '{name}' cannot be set afterwards. Make another: {kind}({name}={value!r}, ...).")


def _example(cls: Any) -> str:
    name, field = next(iter(cls.model_fields.items()))
    return f"{cls.__name__}({name}={field.default!r})"


def explain(error: ValidationError, known: Callable[[list[str]], list[str]], key_words: str = "Config key '{}'") -> str:
    """One line for each mistake: which key, what was expected, what came, what to do.

    Args:
        error: pydantic's.
        known: the names that a section (a list of names from the top) knows.
        key_words: how a key is named in a message.
    """
    lines = []
    for mistake in error.errors():
        path = [str(part) for part in mistake["loc"]]
        name = key_words.format(".".join(path))
        if not path:
            name = key_words.split(":")[0] if ":" in key_words else key_words.format("").removesuffix(" ''")
        if mistake["type"] == "extra_forbidden":
            word = "Unknown config key" if key_words.startswith("Config") else f"{key_words.split(':')[0]}: unknown"
            lines.append(f"{word} '{'.'.join(path)}'. {nearest(path[-1], known(path[:-1]))}")
            continue
        if mistake["type"] == "string_pattern_mismatch" and ":" in mistake["ctx"]["pattern"]:
            mistake["msg"] = "a name like 'package.nets:make_cnn'"  # a pattern says little to most people
        expected = mistake["msg"].removeprefix("Value error, ").removeprefix("Input should be ").rstrip(".")
        if mistake["type"] == "value_error" and "must be" not in expected:  # a sentence of its own
            lines.append(f"{name}: {expected}.")
            continue
        came = "" if "Got " in expected else f" Got {_shown(mistake['input'])} instead."
        end = "" if expected.endswith("?") else "."
        begins = expected.startswith("must be")
        joint = " " if begins else ":" if "must be" in expected else " must be"
        lines.append(f"{name}{joint}{'' if begins else ' '}{expected}{end}{came}")
    return "\n".join(lines)


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return repr(value[:80])
    return "a table" if isinstance(value, Mapping) and len(str(value)) > 80 else str(value)[:80].replace("'", "")
