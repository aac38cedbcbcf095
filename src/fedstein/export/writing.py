"""Writing an export: a folder that is there whole, or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import torch
from torch import Tensor, nn

from fedstein.errors import RunError, UserError
from fedstein.export.card import card
from fedstein.export.facts import Facts, facts_of, metrics_at
from fedstein.export.mixture import mixture_of, told
from fedstein.export.networks import values_of, whole_network, with_particle
from fedstein.export.program import check_numbers, save_onnx, save_program, trace
from fedstein.runs.evaluation import Loaded, load_run
from fedstein.runs.folder import load_checkpoint
from fedstein.runs.forget.complete import is_done, unforgotten
from fedstein.runs.given import Given
from fedstein.runs.training import members_of
from fedstein.store import erasures_of, load_lineage, save_tensors, write

__all__ = ["Exported", "export_run"]

_PROGRAM, _ONNX, _CARD, _SERVE = "mixture.pt2", "mixture.onnx", "MODEL_CARD.md", "serve.py"
_SOME = 16  # inputs on which a program is compared with `predict`


@dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes:
        folder: the export.
        files: all of it.
        particles: how many state_dicts.
        outputs: what the program says, by name.
        program: the `torch.export` program; None where there is none.
        onnx: the same as ONNX; None where there is none.
        why: what is missing is missing for this reason; None where all is there.
        difference: between the program and `predict`, the largest, relative to the largest number.
        rounds: after which the particles were exported.
    """

    folder: Path
    files: list[Path]
    particles: int
    outputs: list[str]
    program: Path | None
    onnx: Path | None
    why: str | None
    difference: float | None
    rounds: int


def export_run(run: Path, folder: Path, given: Given | None = None) -> Exported:
    """Export a run folder: state_dicts, programs of the mixture, a model card, a server.

    Args:
        run: the folder of the run.
        folder: to make; it may be there if it is empty.
        given: what the run was given in Python.

    Raises:
        UserError: the run must not be exported, or the folder is not a new one.
        RunError: it cannot be written.
    """
    loaded = load_run(run, given=given)
    _refuse_unforgotten(run)
    checkpoint, learnt = load_checkpoint(run)  # one that a run under way has not replaced meanwhile
    members = members_of(learnt, loaded.config.posterior, loaded.config.seed)
    network = whole_network(loaded, given)
    made_up, some = _inputs(loaded, given)
    folder = folder.resolve()
    _refuse_place(run, folder)
    with _whole_or_not(folder) as part:
        facts = facts_of(run, loaded, checkpoint, network, made_up)
        about = _save_members(part, network, members, facts)
        why, difference, names = _save_programs(part, network, loaded, members, made_up, some)
        if (part / _PROGRAM).is_file():
            about[_PROGRAM] = f"torch.export program of the mixture, any number of inputs: {', '.join(names)}"
            write(part / _SERVE, files("fedstein.export").joinpath("serve.py.txt").read_bytes())
            about[_SERVE] = "a server for it that needs only torch"
        if (part / _ONNX).is_file():
            about[_ONNX] = f"the same as ONNX, input x: {', '.join(names)}"
        metrics = metrics_at(run, checkpoint.round, loaded.config)
        write(part / _CARD, card(run.resolve().name, facts, metrics, about).encode())
        written = sorted(file.name for file in part.iterdir())
    return Exported(
        folder,
        [folder / name for name in written],
        len(members),
        names,
        folder / _PROGRAM if _PROGRAM in written else None,
        folder / _ONNX if _ONNX in written else None,
        why,
        difference,
        checkpoint.round,
    )


def _refuse_unforgotten(run: Path) -> None:
    """An export leaves the reach of an erasure: no model goes out that knows somebody who asked to be forgotten."""
    if asked := erasures_of(run):
        agents = ", ".join(map(str, asked[-1]["agents"]))
        raise UserError(
            f"Cannot export run '{run}': agents {agents} have asked to be forgotten, and it still knows them. Export "
            f"the model without them: {asked[-1]['out']}{'' if asked[-1]['done'] else ', once its erasure is done'}."
        )
    if not (lineage := load_lineage(run)):
        return
    if not is_done(run):
        raise UserError(
            f"Cannot export run '{run}': its erasure is not finished. Go on with 'fedstein resume {run}', then export."
        )
    if lineage.asked and (known := unforgotten(run)):
        raise UserError(
            f"Cannot export run '{run}': it has not forgotten agents {', '.join(map(str, known))}, who never answered, "
            "or took back too little. Forget them again from it, or with '--method retrain'."
        )


def _refuse_place(run: Path, folder: Path) -> None:
    inside = run.resolve()
    if folder == inside or inside in folder.parents:
        raise UserError(
            f"The 'folder' must be outside of the run folder: an erasure purges that one. Got '{folder}' instead."
        )
    if folder.exists() and not folder.is_dir():
        raise UserError(f"The 'folder' must be a new or an empty folder. Got the file '{folder}' instead.")
    try:
        if folder.is_dir() and any(folder.iterdir()):
            raise UserError(
                f"The 'folder' must be a new or an empty folder. '{folder}' has files in it: name another one, or "
                "delete it first."
            )
    except OSError as error:
        raise UserError(f"The 'folder' {folder} cannot be read: {error.strerror}.") from error


@contextmanager
def _whole_or_not(folder: Path) -> Iterator[Path]:
    """A folder beside, which takes the name at the end; whatever goes wrong before that, it is gone."""
    part = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.part")
    try:
        part.mkdir(parents=True)
        yield part
        for file in part.iterdir():
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
        part.rename(folder)  # over an empty one too; over any other it fails
    except OSError as error:
        raise RunError(f"Cannot write the export {folder}: {error.strerror}.") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _inputs(loaded: Loaded, given: Given | None) -> tuple[Tensor, Tensor]:
    """Two made-up inputs, which a program may keep, and some to compare on: test inputs if there are any."""
    assert loaded.problem.inputs is not None
    test, shape = loaded.problem.judge.raw_test, loaded.problem.inputs.shape
    like = test if test is not None else torch.empty(0) if given is None else given.agents[0].x
    if not like.dtype.is_floating_point:
        made_up = torch.zeros(2, *shape, dtype=like.dtype)
    else:
        made_up = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    return made_up, made_up if test is None or len(test) == 0 else test[:_SOME]


def _save_members(part: Path, network: nn.Module, members: Tensor, facts: Facts) -> dict[str, str]:
    """One state_dict each; what the files are, for the card."""
    for number, particle in enumerate(members):
        about = {"format": "pt", "particle": str(number), **facts}
        save_tensors(part / f"particle-{number}.safetensors", values_of(with_particle(network, particle)), about)
    name = "particle-0.safetensors" + ("" if len(members) == 1 else f" to particle-{len(members) - 1}.safetensors")
    return {name: "a whole state_dict each, what is frozen included; this card's facts in the header"}


def _save_programs(
    part: Path, network: nn.Module, loaded: Loaded, members: Tensor, made_up: Tensor, some: Tensor
) -> tuple[str | None, float | None, list[str]]:
    """Whatever can be made of them: why something is missing, how near it is to `predict`, the names of outputs."""
    model, inputs = loaded.problem.task.model, loaded.problem.inputs
    assert inputs is not None
    with torch.no_grad():
        outputs = model.outputs(members.to(model.device), inputs.ready(some).to(model.device)).cpu()
        expected = told(model.likelihood, outputs)
    names = list(expected)
    try:
        program = trace(mixture_of(network, members, model.likelihood, made_up), made_up)
        difference = check_numbers(program, some, expected)
    except UserError as error:
        return f"{_PROGRAM} and {_ONNX} are left out: {error}", None, names
    save_program(program, part / _PROGRAM)
    try:
        save_onnx(program, part / _ONNX, names)
    except UserError as error:
        (part / _ONNX).unlink(missing_ok=True)
        return f"{_ONNX} is left out: {error}", difference, names
    return None, difference, names
