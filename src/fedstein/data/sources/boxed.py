"""Numpy arrays out of a pickle that is never unpickled.

Some data sets are published as one pickled dictionary of arrays. Unpickling runs whatever the file says. This reader
only parses it (`pickletools.genops` names the operations and does none) and understands the few that plain arrays
need; the four names that numpy writes stand for nothing but themselves here. Whatever else there is, is refused.
"""

from __future__ import annotations

import pickletools
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from fedstein.errors import UserError

__all__ = ["arrays_in"]

Found = Mapping[str, np.ndarray | list[Any]]

_ENCODE, _RECONSTRUCT, _ARRAY, _DTYPE = (
    "_codecs encode",
    "numpy.core.multiarray _reconstruct",
    "numpy ndarray",
    "numpy dtype",
)
_NUMBERS = {"f8": "<f8", "i8": "<i8"}
_OBJECT = "O8"
_MOST_OPERATIONS = 1_000_000
_HEADER = b"\x93NUMPY\x01\x00"


@dataclass(frozen=True)
class _Name:
    """Something that a real unpickler would import."""

    name: str


@dataclass
class _Kind:
    """A dtype."""

    code: str


@dataclass
class _Box:
    """An array: made empty, filled later, as numpy writes it."""

    value: Any = None


class _NotPlainError(Exception):
    """It is no pickle of plain arrays."""


def arrays_in(content: bytes, where: str) -> Found:
    """The arrays, by name, of an .npy file that holds one pickled dictionary of arrays and of lists of arrays or texts.

    Args:
        content: of the file.
        where: its name in messages.

    Raises:
        UserError: it has anything else in it, or is damaged.
    """
    try:
        start = 10 + int.from_bytes(content[8:10], "little")
        if content[:8] != _HEADER or b"'descr': '|O'" not in content[10:start]:
            raise _NotPlainError("it is no .npy file of one object")
        return _opened(_Reader(4 * len(content)).read(content[start:]))
    except Exception as error:  # damage can make pickletools raise nearly anything
        reason = str(error) if isinstance(error, _NotPlainError) else f"it is damaged ({type(error).__name__})"
        raise UserError(f"Cannot read {where} as plain arrays: {reason}. Nothing of it was run.") from error


def _opened(top: Any) -> Found:
    inside = top.value if isinstance(top, _Box) else None
    if not isinstance(inside, dict):
        raise _NotPlainError("there is no dictionary in it")
    return {name: _plain(value) for name, value in inside.items()}


def _plain(value: Any) -> np.ndarray | list[Any]:
    if isinstance(value, list):
        return [item if isinstance(item, str) else _array(item) for item in value]
    return _array(value)


def _array(value: Any) -> np.ndarray:
    if isinstance(value, _Box) and isinstance(value.value, np.ndarray):
        return value.value
    raise _NotPlainError("something in it is neither an array nor a list of arrays")


class _Reader:
    """A stack of plain values."""

    def __init__(self, most_bytes: int) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.left = most_bytes  # that texts may be turned into: one text can be named many times

    def read(self, content: bytes) -> Any:
        for count, (operation, argument, _) in enumerate(pickletools.genops(content)):
            if operation.name == "STOP":
                break
            if count > _MOST_OPERATIONS:
                raise _NotPlainError("it has too many parts")
            self.do(operation.name, argument)
        if len(self.stack) != 1 or self.marks:
            raise _NotPlainError("it is cut short")
        return self.stack.pop()

    def do(self, name: str, argument: Any) -> None:
        """One operation, if it is one of a few."""
        stack = self.stack
        match name:
            case "PROTO":
                pass
            case "BININT" | "BININT1" | "BININT2" | "BINUNICODE":
                stack.append(argument)
            case "NONE" | "NEWTRUE" | "NEWFALSE":
                stack.append({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}[name])
            case "EMPTY_TUPLE" | "EMPTY_LIST" | "EMPTY_DICT":
                stack.append({"EMPTY_TUPLE": tuple, "EMPTY_LIST": list, "EMPTY_DICT": dict}[name]())
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                stack.append(tuple(self.pop(int(name[-1]))))
            case "MARK":
                self.marks.append(len(stack))
            case "TUPLE":
                stack.append(tuple(self.since_mark()))
            case "APPEND" | "APPENDS":
                items = self.pop(1) if name == "APPEND" else self.since_mark()
                self.top(list).extend(items)
            case "SETITEM" | "SETITEMS":
                items = self.pop(2) if name == "SETITEM" else self.since_mark()
                keys, values = items[::2], items[1::2]
                if len(keys) != len(values) or not all(isinstance(key, str) for key in keys):
                    raise _NotPlainError("a dictionary in it has other keys than texts")
                self.top(dict).update(zip(keys, values, strict=True))
            case "BINPUT" | "LONG_BINPUT":
                self.memo[argument] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(self.memo[argument])
            case "GLOBAL":
                if argument not in (_ENCODE, _RECONSTRUCT, _ARRAY, _DTYPE):
                    raise _NotPlainError(f"it names '{argument[:60]}', which no plain array needs")
                stack.append(_Name(argument))
            case "REDUCE":
                stack.append(self.made(*self.pop(2)))
            case "BUILD":
                thing, state = self.pop(2)
                stack.append(self.filled(thing, state))
            case _:
                raise _NotPlainError(f"it has the operation {name}, which no plain array needs")

    def pop(self, count: int) -> list[Any]:
        least = self.marks[-1] if self.marks else 0
        if len(self.stack) - least < count:
            raise _NotPlainError("it is damaged")
        items = self.stack[-count:]
        del self.stack[-count:]
        return items

    def since_mark(self) -> list[Any]:
        if not self.marks:
            raise _NotPlainError("it is damaged")
        mark = self.marks.pop()
        items = self.stack[mark:]
        del self.stack[mark:]
        return items

    def top(self, kind: type) -> Any:
        if not self.stack or type(self.stack[-1]) is not kind:
            raise _NotPlainError("it is damaged")
        return self.stack[-1]

    def made(self, what: Any, arguments: Any) -> Any:
        """What numpy's names stand for; none of them is called."""
        if what == _Name(_RECONSTRUCT) and arguments == (_Name(_ARRAY), (0,), b"b"):
            return _Box()
        if what == _Name(_ENCODE) and len(arguments) == 2 and arguments[1] == "latin1":
            self.left -= len(arguments[0])
            if self.left < 0:
                raise _NotPlainError("it unfolds to more than it can hold")
            return str(arguments[0]).encode("latin1")
        if what == _Name(_DTYPE) and arguments[1:] == (0, 1) and arguments[0] in (*_NUMBERS, _OBJECT):
            return _Kind(arguments[0])
        raise _NotPlainError("it has something to call in it that is no array")

    def filled(self, thing: Any, state: Any) -> Any:
        """A dtype with its byte order, or an array with its shape and numbers."""
        if isinstance(thing, _Kind) and type(state) is tuple and len(state) == 8:
            if state[:2] != (3, "|" if thing.code == _OBJECT else "<") or state[2:5] != (None,) * 3:
                raise _NotPlainError("its numbers are of another kind")
            return thing
        if not isinstance(thing, _Box) or thing.value is not None or type(state) is not tuple or len(state) != 5:
            raise _NotPlainError("it is damaged")
        version, shape, kind, columns_first, numbers = state
        whole = type(shape) is tuple and all(type(size) is int and 0 <= size < 2**31 for size in shape)
        if version != 1 or not whole or not isinstance(kind, _Kind):
            raise _NotPlainError("it is damaged")
        if kind.code == _OBJECT:
            if shape != () or type(numbers) is not list or len(numbers) != 1:
                raise _NotPlainError("it has an array of objects")
            thing.value = numbers[0]
            return thing
        if type(numbers) is not bytes or len(numbers) != 8 * prod(shape):
            raise _NotPlainError("an array in it has other numbers than its shape says")
        flat = np.frombuffer(numbers, _NUMBERS[kind.code])
        thing.value = flat.reshape(shape, order="F" if columns_first else "C")
        return thing
