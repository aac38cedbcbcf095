"""A data set that is published as files: where it is on this machine, and how it comes here.

What a file must be is the data set's own to say. Whatever comes is verified before it is used, however it came.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedstein.data.sources.fetch import cache_folder
from fedstein.errors import FedsteinError, UserError

__all__ = ["Published", "Way"]


@dataclass(frozen=True)
class Way:
    """How it can be had.

    Args:
        how: in a word, for instance "pip".
        bring: gets the archive into a folder.
        unpack: writes the files out of the archive into a folder; the archive is deleted then.
    """

    how: str
    bring: Callable[[Path], Path]
    unpack: Callable[[Path, Path], None]


@dataclass(frozen=True)
class Published:
    """A data set of some files in a folder.

    Args:
        name: its name as a source, and that of its folder in the cache.
        title: what people call it.
        files: the names of its files.
        check: refuses a folder in which one of them is not the published one.
        ways: how it can be had, the first choice first.
    """

    name: str
    title: str
    files: tuple[str, ...]
    check: Callable[[Path], object]
    ways: tuple[Way, ...]

    def find(self, folder: Path | None = None) -> Path | None:
        """The folder that has all files: the named one, else the one in the cache."""
        place = self._place(folder)
        return place if all((place / name).is_file() for name in self.files) else None

    def found(self, folder: Path | None = None) -> Path:
        """The same, where it must be there."""
        if (place := self.find(folder)) is None:
            raise UserError(
                f"{self.title} is not in {self._place(folder)} ({', '.join(self.files)}). Run 'fedstein data get "
                f"{self.name}', or name its folder with 'data.path'."
            )
        return place

    def get(self) -> tuple[Path, str]:
        """Obtain it: what is there already, else by the first way that goes. Always verified.

        Returns:
            The folder, and how it came there: "found", or the way's own word.
        """
        place, how = self.find(), "found"
        if place is None:
            place = self._place(None)
            how = self._fetch(place)
        self.check(place)
        return place, how

    def _place(self, folder: Path | None) -> Path:
        return cache_folder() / self.name if folder is None else folder

    def _fetch(self, folder: Path) -> str:
        refusals = []
        for way in self.ways:
            try:
                archive = way.bring(folder)
                try:
                    way.unpack(archive, folder)
                finally:
                    archive.unlink()
            except FedsteinError as error:
                refusals.append(str(error))
            else:
                return way.how
        raise FedsteinError(f"Cannot get {self.title}. {' '.join(refusals)}")
