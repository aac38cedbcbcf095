"""Pages as files, with their figures beside them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedstein.errors import RunError, UserError
from fedstein.report.extra import check_extra
from fedstein.report.figures import save_figures
from fedstein.report.page import Page
from fedstein.store import write

__all__ = ["Written", "write_page"]


@dataclass(frozen=True)
class Written:
    """A page, and all other files that were written with it; `json` is the one that programs read, if there is one."""

    page: Path
    files: list[Path]
    json: Path | None = None


def write_page(page: Page, out: Path) -> Written:
    """Write a page, and its charts as files in the folder `<page>-figures` beside it."""
    if out.name in ("", "..") or (out.exists() and not out.is_file()):
        raise UserError(f"The '--out' must be the name of a file, for instance report.html. Got {str(out)!r} instead.")
    check_extra()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write(out, page.render().encode())
        return Written(out, save_figures(page.charts, out.parent / f"{out.stem}-figures"))
    except OSError as error:
        raise RunError(f"Cannot write the report {out}: {error.strerror}.") from error
