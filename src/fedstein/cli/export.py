"""`fedstein export`: what a run has learnt, in files that need no fedstein."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedstein.cli.output import JsonOption, print_json, ready, say, warn

__all__ = ["export"]


def export(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to make; it must be new or empty.")],
    json: JsonOption = False,
) -> None:
    """Export a run: state_dicts, the mixture as a torch.export program and as ONNX, a model card, a server."""
    from fedstein import api

    ready()
    exported = api.open(run, careful=False).export(folder)
    if json:
        print_json(
            {
                "run": str(run),
                "folder": str(exported.folder),
                "files": [file.name for file in exported.files],
                "particles": exported.particles,
                "rounds": exported.rounds,
                "outputs": exported.outputs,
                "program": None if exported.program is None else str(exported.program),
                "onnx": None if exported.onnx is None else str(exported.onnx),
                "why": exported.why,
                "difference": exported.difference,
            }
        )
        return
    say(f"Export:  {exported.folder}\nFiles:   {', '.join(file.name for file in exported.files)}")
    if exported.program is not None:
        say(f"Says:    {', '.join(exported.outputs)}; within {exported.difference:.1g} of 'predict'")
        say(f"Serve:   python {exported.folder / 'serve.py'} {exported.program} 8000")
    if exported.why is not None:
        warn(exported.why)
