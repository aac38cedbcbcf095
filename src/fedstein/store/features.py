"""What a frozen network makes of somebody's inputs, computed once: it costs far more than the training of a last layer.

    FOLDER/features.npy     (n, ...) what goes into the trained part
    FOLDER/features.json    of which network and which inputs, and the file's SHA-256

FOLDER is the owner's own one, since all of it is derived from the owner's data: RUN/agents/agent-3, or RUN for the test
set. Erasing an agent deletes it with everything else that is in there.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from random import SystemRandom
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedstein.data import LazyRows, Rows, chunks, spooled
from fedstein.data.rows import CHUNK, MEMORY
from fedstein.models import Before
from fedstein.store.files import write

__all__ = ["FEATURE_FILES", "Features", "keep_features", "let_go", "prepared"]

_ROWS, _RECORD = "features.npy", "features.json"
FEATURE_FILES = (_ROWS, _RECORD, f"{_ROWS}.part", f"{_RECORD}.part")  # also what a stop has left
_REMEMBERED = 2 * 2**30  # bytes that a process has at hand: one verb asks for the same features several times
_TRIED = 16  # rows that are computed again, whatever a file says

_at_hand: OrderedDict[str, Tensor] = OrderedDict()


class Features(NamedTuple):
    """Inputs of the trained part, and of which network and inputs they are; None: they are not worth keeping."""

    rows: Rows
    key: str | None


def prepared(
    prepare: Callable[[Tensor], Tensor] | None, x: Rows, folders: Iterable[Path] = (), known: Features | None = None
) -> Features:
    """What goes into the trained part of a network.

    Args:
        prepare: the frozen part; None: there is none.
        x: raw inputs. Where something is drawn for an item each time, the frozen part is gone through each time.
        folders: where the features of these inputs may have been kept.
        known: features that may be those of these inputs.
    """
    if prepare is None:
        return Features(x, None)
    if isinstance(x, LazyRows) and x.draws:
        one = prepare(x[:1])
        return Features(replace(x, after=prepare, row=one.shape[1:], dtype=one.dtype), None)
    if not isinstance(prepare, Before) or len(x) == 0:  # a few matrix products
        return Features(prepare(x) if isinstance(x, Tensor) else _gone_through(prepare, x), None)
    key = _key(prepare, x)
    rows = _at_hand.pop(key, None)
    if rows is None and known is not None and known.key == key and isinstance(known.rows, Tensor):
        rows = known.rows
    if rows is not None and not _still(rows, prepare, x):
        rows = None
    if rows is None:
        rows = next((kept for folder in folders if (kept := _kept(folder, key, prepare, x)) is not None), None)
    rows = _gone_through(prepare, x) if rows is None else rows
    _at_hand[key] = rows
    while sum(known.nbytes for known in _at_hand.values()) > _REMEMBERED and len(_at_hand) > 1:
        _at_hand.popitem(last=False)
    return Features(rows, key)


def keep_features(folder: Path, features: Features) -> None:
    """Write them into their owner's folder."""
    if features.key is None or not isinstance(features.rows, Tensor) or _key_in(folder) == features.key:
        return
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f"{_ROWS}.part"
    with part.open("wb") as file:
        np.save(file, features.rows.numpy(), allow_pickle=False)
    record = {"key": features.key, "sha256": _sha256(part)}
    part.replace(folder / _ROWS)
    write(folder / _RECORD, json.dumps(record).encode())


def _plain(path: Path) -> bool:
    """A file, and no link or pipe in its place."""
    return path.is_file() and not path.is_symlink()


def _key_in(folder: Path) -> str | None:
    try:
        there = _plain(folder / _RECORD) and _plain(folder / _ROWS)
        key = json.loads((folder / _RECORD).read_bytes())["key"] if there else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return key if isinstance(key, str) else None


def _kept(folder: Path, key: str, prepare: Before, x: Rows) -> Tensor | None:
    """What a folder has, if it is of this network and these inputs, and whole."""
    path = folder / _ROWS
    try:
        if not _plain(folder / _RECORD) or not _plain(path):
            return None
        record = json.loads((folder / _RECORD).read_bytes())
        if record["key"] != key or record["sha256"] != _sha256(path):
            return None
        # Copy on write: torch wants to be allowed to write, and nobody does.
        rows = torch.from_numpy(np.load(path, mmap_mode="c", allow_pickle=False))
    except (OSError, EOFError, ValueError, KeyError, TypeError, RecursionError):
        return None  # it costs only time to compute them again
    return rows if _still(rows, prepare, x) else None


def _still(rows: Tensor, prepare: Before, x: Rows) -> bool:
    """Whether some of them, nobody knows which, come out again: the code may be another one, or the file forged."""
    if rows.shape != (len(x), *prepare.shape) or rows.dtype != prepare.dtype:
        return False
    some = torch.tensor(SystemRandom().sample(range(len(x)), min(_TRIED, len(x))))
    kept, again = rows[some].double(), prepare(x[some]).double()
    return torch.allclose(kept, again, rtol=1e-3, atol=1e-5 * float(again.abs().max()) + 1e-30)


def let_go() -> None:
    """Nothing is at hand any more: after an erasure."""
    _at_hand.clear()


def _gone_through(prepare: Callable[[Tensor], Tensor], x: Rows) -> Tensor:
    one = prepare(x[:1])
    parts = (prepare(part) for part in chunks(x, CHUNK))
    return spooled(parts) if one.nbytes * len(x) > MEMORY else torch.cat(list(parts))


def _key(prepare: Before, x: Rows) -> str:
    content = hashlib.sha256(f"{prepare.identity} {torch.__version__} {torch.get_num_threads()}".encode())
    for part in chunks(x, CHUNK):
        content.update(f"{tuple(part.shape)} {part.dtype}".encode())
        content.update(part.contiguous().numpy().tobytes())
    return content.hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
