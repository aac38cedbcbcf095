"""The mixture as a program: traced by `torch.export`, and the same as ONNX. Both are compared with `predict`."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram

from fedstein.errors import UserError
from fedstein.export.mixture import Mixture
from fedstein.extras import needs_extra

__all__ = ["check_numbers", "save_onnx", "save_program", "trace"]

_NEAR = 1e-4  # of the largest number: far more than rounding, far less than another computation
_LONGEST = 300  # characters of somebody else's message


def trace(mixture: Mixture, example: Tensor) -> ExportedProgram:
    """The program of a mixture, for any number of inputs.

    Args:
        mixture: in evaluation mode.
        example: two inputs; the program keeps them, so they are nobody's data.

    Raises:
        UserError: it cannot be traced.
    """
    try:
        with _quiet(), torch.no_grad():
            program = torch.export.export(mixture, (example,), dynamic_shapes={"x": {0: Dim("batch")}})
    except Exception as error:  # it fails in many ways
        raise UserError(
            f"torch.export cannot trace the network: {_first_line(error)} Its computation must be the same whatever "
            "the inputs are and however many: replace 'if' on values by torch.where or torch.cond, and take sizes from "
            "x.shape. The state_dicts need no program."
        ) from error
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # paths and lines of code, of the machine that exports
    return program


def check_numbers(program: ExportedProgram, x: Tensor, expected: Mapping[str, Tensor]) -> float:
    """The largest difference between a program and what was predicted, relative to the largest number.

    Args:
        program: of the mixture.
        x: inputs; also looked at one by one, as somebody will serve them.
        expected: the prediction of them, by name.

    Raises:
        UserError: it is another computation.
    """
    run = program.module()
    try:
        with _quiet(), torch.no_grad():
            every, first = run(x), run(x[:1])
    except Exception as error:  # whatever the traced code raises
        raise UserError(
            f"The traced program does not run on {len(x)} inputs and on one: {_first_line(error)}"
        ) from error
    worst = 0.0
    for name, value in expected.items():
        for came, wanted in ((every[name], value), (first[name], value[:1])):
            worst = max(worst, float((came - wanted).abs().max() / wanted.abs().max().clamp_min(1.0)))
    if not worst <= _NEAR:
        raise UserError(
            f"The traced program gives other numbers than 'predict' does, by {worst:.2g}: the network has taken a "
            "decision in Python while it was traced. Replace 'if' on values by torch.where or torch.cond."
        )
    return worst


def save_program(program: ExportedProgram, path: Path) -> None:
    """Write it; `torch.export.load` reads it.

    Args:
        program: of the mixture.
        path: a file whose name ends with .pt2.
    """
    with _quiet():
        torch.export.save(program, path)


def save_onnx(program: ExportedProgram, path: Path, names: list[str]) -> None:
    """Write a program as ONNX, in one file.

    Args:
        program: of the mixture.
        path: the file.
        names: of its outputs.

    Raises:
        UserError: packages are missing, or something in it has no counterpart in ONNX.
    """
    with needs_extra("export", "ONNX files"):
        import onnx  # noqa: F401  (torch asks for both only in the middle of the work)
        import onnxscript  # noqa: F401
    try:
        with _quiet():
            plain = program.run_decompositions({torch.ops.aten.softplus.default: _softplus})
            made: Any = torch.onnx.export(
                plain,
                (),
                dynamo=True,
                verbose=False,
                input_names=["x"],
                output_names=names,
                dynamic_shapes={"x": {0: "batch"}},
            )
            made.save(path, external_data=False)
    except Exception as error:  # it fails in many ways
        raise UserError(f"torch.onnx cannot translate the program: {_first_line(error)}") from error


def _softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """Softplus in plain operations: common runtimes have none for float64."""
    return x.clamp_min(0.0) + torch.log1p(torch.exp(-beta * x.abs())) / beta


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what torch says on its way: it is about torch, and stdout is the command's."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = " ".join([f"{type(error).__name__}:", *lines[:2]])[:_LONGEST]
    return said if said.endswith(".") else f"{said}."
