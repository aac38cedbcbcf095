"""A user's own files: one .npz with everything, or a folder with one .npz an agent. Nothing is unpickled."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedstein.data.examples import Dataset, Examples, fits_shape, read_examples
from fedstein.data.rows import loaded
from fedstein.data.sources.base import Held, Source
from fedstein.data.sources.contents import EVERYBODYS, of_agent
from fedstein.errors import UserError

__all__ = ["FOLDER", "NPZ", "classes_in", "load_examples", "load_npz", "load_own", "save_examples"]


def load_npz(path: Path | None) -> Dataset:
    """A user's own .npz: x_train, y_train, x_test, y_test. Labels are 0..C-1; nothing is unpickled."""
    if path is None:
        raise UserError("The 'data.path' must name your .npz file when data.name is 'npz'. Got nothing.")
    file = _arrays(path, ("x_train", "y_train", "x_test", "y_test"))
    train = read_examples((file["x_train"], file["y_train"]), f"{path}: train")
    test = read_examples((file["x_test"], file["y_test"]), f"{path}: test")
    if train.x.shape[1:] != test.x.shape[1:]:
        raise UserError(
            f"{path}: x_train and x_test must have the same shape behind the first axis. "
            f"Got {tuple(train.x.shape[1:])} and {tuple(test.x.shape[1:])} instead."
        )
    return Dataset("npz", train, test, classes_in(train.y), contents={EVERYBODYS: {path.name: path}})


def load_examples(path: Path, shape: torch.Size) -> Examples:
    """One agent's own examples: an .npz with x (as many numbers a row as `shape`) and y."""
    own = load_own(path)
    assert isinstance(own.x, Tensor)
    if not fits_shape(own.x.shape[1:], shape):
        raise UserError(f"{path}: x must be shaped like that of the test data, {tuple(shape)}, or flat. Got "
                        f"{tuple(own.x.shape[1:])} instead.")  # fmt: skip
    return Examples(own.x.reshape(len(own), *shape), own.y)


def load_folder(path: Path, agents: int, remote: bool) -> Held:
    """A folder with test.npz and one file an agent, which is not looked for where agents are elsewhere."""
    test = load_own(path / "test.npz")
    classes = classes_in(test.y)
    contents: dict[str, Mapping[str, Path]] = {EVERYBODYS: {"test.npz": path / "test.npz"}}
    if remote:
        return Held([test.none()] * agents, test, classes, contents=contents)
    files = [path / f"agent-{agent}.npz" for agent in range(agents)]
    contents |= {of_agent(agent): {file.name: file} for agent, file in enumerate(files)}
    return Held([load_examples(file, test.x.shape[1:]) for file in files], test, classes, contents=contents)


def load_own(path: Path) -> Examples:
    """The x and y of an .npz, before it is known what the model takes: whatever is wrong in any case is refused."""
    file = _arrays(path, ("x", "y"))
    return read_examples((file["x"], file["y"]), str(path))


def save_examples(path: Path, examples: Examples) -> None:
    """Write such a file."""
    np.savez(path, x=loaded(examples.x).numpy(), y=examples.y.numpy())


def _arrays(path: Path, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise UserError(f"Cannot read {path} as an .npz of plain arrays: there is no such file.")
    try:
        # A file object of our own: numpy leaves its own one open when the archive is damaged.
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            if missing := [name for name in names if name not in file]:
                raise UserError(f"The file {path} must have {', '.join(names)}. Missing: {', '.join(missing)}.")
            return {name: np.asarray(file[name]) for name in names}
    except UserError:
        raise
    except Exception as error:  # a hostile file can make numpy and zipfile raise nearly anything
        if "pickle" in str(error):  # numpy would have it unpickled, which runs whatever the file says
            raise UserError(
                f"Cannot read {path} as an .npz of plain arrays: it is none, or has objects in it, which are never "
                "loaded. Save numbers: np.savez(file, x=np.array(x, dtype=np.float32), y=np.array(y, dtype=np.int64))."
            ) from error
        raise UserError(f"Cannot read {path} as an .npz of plain arrays: {error}.") from error


def classes_in(labels: Tensor) -> int | None:
    """How many classes targets speak of: whole numbers 0..C-1; None if they are no labels."""
    if labels.is_floating_point() or labels.dim() != 1 or not len(labels) or int(labels.min()) < 0:
        return None
    classes = int(labels.max()) + 1
    return classes if 2 <= classes <= len(labels) else None


NPZ = Source("your own file with x_train, y_train, x_test, y_test (data.path)", load_npz, own=True)
FOLDER = Source(
    "test.npz and one file an agent: agent-0.npz, agent-1.npz, ... with x and y (data.path)", held=load_folder, own=True
)
