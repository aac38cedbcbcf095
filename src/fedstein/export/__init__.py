"""Exports: what a run has learnt, in files that need no fedstein. Nothing here prints or exits."""

from fedstein.export.writing import Exported, export_run

__all__ = ["Exported", "export_run"]
