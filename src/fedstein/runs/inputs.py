"""What people predict on: arrays, frames, and files of the kind that a run was trained on, read as in training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedstein.data import DataConfig
from fedstein.data.sources.images import SUFFIXES, images_in, to_predict
from fedstein.data.sources.table import schema_of
from fedstein.data.tables import TABLES, from_frame, is_frame, read_table
from fedstein.errors import UserError

__all__ = ["files_of_images", "read_inputs"]


def read_inputs(came: Any, data: DataConfig, what: str) -> Any:
    """Inputs as arrays or rows; whether they fit the model is not looked at.

    Args:
        came: an array; a frame; the path of an .npy or of a table; a folder of images, an image, or a list of them.
        data: of the run.
        what: their name in messages.
    """
    if is_frame(came) and (schema := schema_of(data)) is not None:
        return schema.inputs(from_frame(came, what))
    if (paths := _paths(came)) is None:
        return came
    if files := files_of_images(paths):
        if data.name != "images":
            raise UserError(
                f"Images are for runs with data.name = 'images', which say how to read them. This one has "
                f"'{data.name}': give an .npy of inputs. Got {paths[0]}."
            )
        return to_predict(files, data)
    if len(paths) != 1:
        raise UserError(f"Only images are taken several at a time. Got {paths[0]} and {len(paths) - 1} more.")
    if paths[0].suffix.lower() in TABLES and (schema := schema_of(data)) is not None:
        return schema.inputs(read_table(paths[0]))
    return _array(paths[0])


def files_of_images(paths: Sequence[Path]) -> list[Path]:
    """The images that are named, or are in a folder that is; none where something else is named."""
    if all(path.is_dir() or path.suffix.lower() in SUFFIXES for path in paths):
        return images_in(paths)
    return []


def _paths(came: Any) -> list[Path] | None:
    several = came if isinstance(came, list | tuple) and came else [came]
    return [Path(one) for one in several] if all(isinstance(one, str | Path) for one in several) else None


def _array(path: Path) -> np.ndarray:
    """The one array of numbers in an .npy."""
    try:
        array = np.load(path, allow_pickle=False)
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub":
            raise TypeError("not one array of real numbers")
    except Exception as error:  # a hostile file can make numpy raise nearly anything
        if "pickle" in str(error):  # numpy would have it unpickled, which runs whatever the file says
            raise UserError(
                f"Cannot read {path} as an .npy of numbers: it is none, or has objects in it, which are never loaded. "
                "Save numbers: np.save(file, np.array(x, dtype=np.float32))."
            ) from error
        raise UserError(f"Cannot read {path} as an .npy of numbers: {error}.") from error
    return array
