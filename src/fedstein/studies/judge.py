"""A run's particles judged where they were not trained: shifted test images, and inputs from elsewhere."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch

from fedstein.metrics import fit_scaling
from fedstein.protocol.state import Metrics
from fedstein.runs.evaluation import conditions, load_run, under_shifts
from fedstein.runs.folder import load_checkpoint
from fedstein.runs.judge import predict
from fedstein.store import to_json, write
from fedstein.studies.study import Tell

__all__ = ["Judgement", "judge", "judge_all"]

_VERSION = 3  # of judged-RUN.json


@dataclass(frozen=True)
class Judgement:
    """A run under every condition."""

    scale: float  # of temperature scaling; 1 is none
    scores: Mapping[str, Metrics]  # by condition; and the AUROCs of inputs from elsewhere


def judge(run: Path, scaling: bool = False) -> Judgement:
    """A run under every condition; with temperature scaling, fitted on its validation examples, if `scaling`."""
    loaded = load_run(run, "test")
    scale = 1.0
    if scaling:
        problem = load_run(run, "validation").problem
        held_out = problem.judge.test
        assert held_out is not None
        scale = fit_scaling(predict(problem.task.model, loaded.members, held_out.x).probabilities, held_out.y)
    return Judgement(scale, under_shifts(loaded.problem, loaded.members, scale))


def judge_all(runs: Sequence[tuple[Path, bool]], workers: int, tell: Tell) -> Iterator[Judgement]:
    """Each run's judgement, in order; what was judged before is read from judged-RUN.json beside it."""
    context = multiprocessing.get_context("spawn")  # a forked torch may hang
    with ProcessPoolExecutor(workers, context, partial(torch.set_num_threads, 1)) as pool:
        for number, judgement in enumerate(pool.map(_remembered, *zip(*runs, strict=True))):
            tell(number + 1, len(runs))
            yield judgement


def _remembered(run: Path, scaling: bool) -> Judgement:
    key = {
        "version": _VERSION,
        "particles_sha256": load_checkpoint(run)[0].particles_sha256,
        "scaling": scaling,
        "of": conditions(),
    }
    place = run.with_name(f"judged-{run.name}.json")
    try:
        kept = json.loads(place.read_bytes())
        if {name: kept.get(name) for name in key} == key:
            return Judgement(kept["scale"], kept["scores"])
    except (OSError, ValueError, KeyError, AttributeError, RecursionError):  # not there, or damaged: judged again
        pass
    judgement = judge(run, scaling)
    write(place, to_json(key | asdict(judgement), indent=2).encode())
    return judgement
