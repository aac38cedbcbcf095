"""The packages that only reports need: who trains on a server does without them."""

from __future__ import annotations

from contextlib import AbstractContextManager

from fedstein.extras import needs_extra

__all__ = ["check_extra", "report_extra"]


def report_extra() -> AbstractContextManager[None]:
    """Around the imports of such packages."""
    return needs_extra("report", "Reports")


def check_extra() -> None:
    """Refuse before any work is done, so that no half of a report is left behind."""
    with report_extra():
        import matplotlib.figure  # noqa: F401
        import PIL.Image  # noqa: F401
