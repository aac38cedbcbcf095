"""A run's particles judged where they were not trained: shifted test images, and inputs from elsewhere."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedstein.build import load_run
from fedstein.data import SHIFTS, enlarge, load_digits, shifted
from fedstein.errors import UserError
from fedstein.metrics import Prediction, ece_floor, fit_scaling, ood_auroc, scaled
from fedstein.problem import Problem, predict, score_predictions
from fedstein.runs import load_checkpoint, to_json
from fedstein.runs.files import write
from fedstein.streams import stream

__all__ = ["CLEAN", "ELSEWHERE", "conditions", "judge", "judge_all", "under_shifts"]

CLEAN, ELSEWHERE = "clean", "elsewhere"
_METRICS = ("accuracy", "ece", "nll", "brier", "confidence")


def conditions() -> list[str]:
    """The test images as they are, then each shift at each level."""
    return [CLEAN, *(f"{name} {level:g}" for name, (_, levels) in SHIFTS.items() for level in levels)]


def under_shifts(problem: Problem, particles: Tensor, scale: float = 1.0) -> dict[str, dict[str, float]]:
    """Metrics under every condition, and how well uncertainty tells inputs from elsewhere (AUROC).

    The inputs from elsewhere are scikit-learn's handwritten digits at the size of the images, and uniform noise. Shifts
    are drawn from a seed of their own: every run sees the same images.
    """
    images = problem.raw_test
    if images is None or problem.test is None or images.ndim != 4 or images.shape[1] != 1:
        raise UserError("Shifted inputs need a run on grey images (n, 1, height, width).")
    labels = problem.test.y

    def predicted(raw: Tensor) -> Prediction:
        inputs = raw if problem.prepare is None else problem.prepare(raw)
        found = predict(problem.model, particles, inputs)
        if scale == 1.0:
            return found
        probabilities = scaled(found.probabilities, scale)
        entropy = -torch.special.xlogy(probabilities, probabilities).sum(1)
        return Prediction(probabilities, entropy - found.epistemic, found.epistemic)

    inside = predicted(images)
    floor = ece_floor(inside.probabilities, stream(0, "ece floor"), problem.ece_bins)
    found = {CLEAN: _scores(inside, labels, problem.ece_bins) | {"ece_floor": floor}}
    for name, (_, levels) in SHIFTS.items():
        for level in levels:
            moved = shifted(images, name, level, stream(0, f"{name} {level:g}"))
            found[f"{name} {level:g}"] = _scores(predicted(moved), labels, problem.ece_bins)
    elsewhere = {"uniform": torch.rand((2000, *images.shape[1:]), generator=stream(0, "elsewhere"))}
    digits = load_digits()
    if images.shape[1:] != digits.test.x.shape[1:]:  # or they are what the run was trained on
        elsewhere["digits"] = enlarge(torch.cat([digits.train.x, digits.test.x]), *images.shape[-2:])
    found[ELSEWHERE] = {}
    for name, raw in elsewhere.items():
        outside = predicted(raw)
        found[ELSEWHERE][f"{name}_entropy"] = ood_auroc(inside.entropy, outside.entropy)
        found[ELSEWHERE][f"{name}_epistemic"] = ood_auroc(inside.epistemic, outside.epistemic)
    return found


def _scores(prediction: Prediction, labels: Tensor, bins: int) -> dict[str, float]:
    scores = score_predictions(prediction, labels, bins)
    return {name: scores[name] for name in _METRICS}


def judge(run: Path, scaling: bool = False) -> dict[str, Any]:
    """A run under every condition; with temperature scaling, fitted on its validation examples, if `scaling`."""
    _, problem, particles = load_run(run, "test")
    scale = 1.0
    if scaling:
        _, held_out, _ = load_run(run, "validation")
        assert held_out.test is not None
        scale = fit_scaling(predict(held_out.model, particles, held_out.test.x).probabilities, held_out.test.y)
    return {"scale": scale, **under_shifts(problem, particles, scale)}


def judge_all(
    runs: Sequence[tuple[Path, bool]], workers: int, tell: Callable[[int, int], None]
) -> Iterator[dict[str, Any]]:
    """Each run's judgement, in order; what was judged before is read from judged-RUN.json beside it."""
    context = multiprocessing.get_context("spawn")  # a forked torch may hang
    with ProcessPoolExecutor(workers, context, partial(torch.set_num_threads, 1)) as pool:
        for number, found in enumerate(pool.map(_remembered, *zip(*runs, strict=True))):
            tell(number + 1, len(runs))
            yield found


def _remembered(run: Path, scaling: bool) -> dict[str, Any]:
    key = {
        "version": 2,
        "particles_sha256": load_checkpoint(run)[0].particles_sha256,
        "scaling": scaling,
        "of": conditions(),
    }
    place = run.with_name(f"judged-{run.name}.json")
    try:
        kept = json.loads(place.read_bytes())
        if isinstance(kept, dict) and {name: kept.get(name) for name in key} == key:
            return dict(kept["found"])
    except (OSError, ValueError, RecursionError):
        pass
    found = judge(run, scaling)
    write(place, to_json(key | {"found": found}, indent=2).encode())
    return found
