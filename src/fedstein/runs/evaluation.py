"""Looking at what a run has learnt: its problem and particles, its metrics, predictions, shifted inputs."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedstein.data import SHIFTS, DataConfig, as_inputs, enlarge, joined, load_digits, loaded, shifted
from fedstein.devices import device_or_cpu
from fedstein.errors import UserError
from fedstein.likelihoods import score_predictions
from fedstein.metrics import Prediction, ece_floor, ood_auroc, scaled
from fedstein.protocol.state import Metrics
from fedstein.runs.folder import check_particles, is_remote, load_learnt, load_run_config
from fedstein.runs.given import Given
from fedstein.runs.inputs import read_inputs
from fedstein.runs.judge import predict
from fedstein.runs.network_files import load_network_files
from fedstein.runs.problem import Problem, build_problem
from fedstein.runs.training import members_of
from fedstein.settings import Config
from fedstein.store.lineage import Lineage, load_lineage
from fedstein.streams import stream

__all__ = ["CLEAN", "ELSEWHERE", "Loaded", "conditions", "load_run", "predict_raw", "under_shifts"]

CLEAN, ELSEWHERE = "clean", "elsewhere"
_METRICS = ("accuracy", "ece", "nll", "brier", "confidence")


@dataclass(frozen=True, repr=False)
class Loaded:
    """A run folder as it is read: what it is about, and what it has learnt."""

    config: Config
    lineage: Lineage
    problem: Problem
    particles: Tensor  # (N_p, d), the chains
    members: Tensor  # (M, d), what predicts


def load_run(run: Path, split: str | None = None, given: Given | None = None) -> Loaded:
    """The config, lineage, problem and particles of a run folder, which must fit each other.

    Args:
        run: the folder.
        split: evaluate on "test" or "validation" examples, if not as the config says.
        given: what the run was given in Python.
    """
    config, lineage = load_run_config(run), load_lineage(run)
    torch.set_num_threads(config.threads)
    problem = build_problem(
        config, lineage, given=given, files=load_network_files(run), split=split, remote=is_remote(run),
        device=device_or_cpu(config.device),
    )  # fmt: skip
    state = load_learnt(run)
    check_particles(run, config, problem.dim, state.particles)
    length = config.posterior.length(config.method.particles)
    if lineage.forgets and len(state.turns.window(length)) < state.turns.meant(length):
        raise UserError(
            f"The window of run '{run}' is not whole again after its erasure: its model is not to be used yet. Go on "
            f"with 'fedstein resume {run} --rounds N', N above {state.round}."
        )
    return Loaded(config, lineage, problem, state.particles, members_of(state, config.posterior, config.seed))


def predict_raw(problem: Problem, particles: Tensor, x: Any, data: DataConfig, what: str = "x") -> Any:
    """Probabilities and uncertainty for raw inputs (n, ...), whatever array or file they are in.

    Args:
        problem: what was learnt.
        particles: (N_p, d).
        x: the inputs, or whatever `read_inputs` takes.
        data: the section of the run's config.
        what: their name in messages.
    """
    if problem.inputs is None:
        raise UserError("Cannot predict: this is a problem with a known posterior, and has no inputs.")
    likelihood = problem.task.model.likelihood
    if not likelihood.predicts:
        raise UserError(
            "Cannot predict: this run has a loss of its own, which says nothing of probabilities. "
            "Train with a likelihood."
        )
    x = read_inputs(x, data, what)
    inputs = as_inputs(x, what, problem.inputs.shape, problem.inputs.takes)
    if problem.inputs.takes == "numbers" and isinstance(inputs, Tensor):
        _warn_of_scale(problem, inputs, what)
    return predict(problem.task.model, particles, problem.inputs.ready_rows(inputs))


def _warn_of_scale(problem: Problem, inputs: Tensor, what: str) -> None:
    """A factor of 255 must never come in silently."""
    raw = problem.judge.raw_test
    if raw is None or len(raw) == 0:
        return
    usual, most = float(raw[: min(len(raw), 1000)].abs().max()), float(inputs.abs().max())
    if most > 20 * usual > 0 or 0 < most < usual / 20:
        warnings.warn(
            f"{what} reaches {most:.3g}, and what this model is judged on {usual:.3g}: are they scaled alike?",
            stacklevel=3,
        )


def conditions() -> list[str]:
    """The test images as they are, then each shift at each level."""
    return [CLEAN, *(f"{name} {level:g}" for name, (_, levels) in SHIFTS.items() for level in levels)]


def under_shifts(problem: Problem, particles: Tensor, scale: float = 1.0) -> dict[str, Metrics]:
    """Metrics under every condition, and how well uncertainty tells inputs from elsewhere (AUROC).

    The inputs from elsewhere are scikit-learn's handwritten digits at the size of the images, and uniform noise. Shifts
    are drawn from a seed of their own: every run sees the same images.

    Args:
        problem: what was learnt.
        particles: (N_p, d).
        scale: of temperature scaling; 1 is none.
    """
    raw, test, inputs = problem.judge.raw_test, problem.judge.test, problem.inputs
    grey = raw is not None and len(raw.shape) == 4 and raw.shape[1] == 1
    if not grey or raw is None or test is None or inputs is None or problem.task.model.likelihood.name != "categorical":
        raise UserError("Shifted inputs need a classifier of grey images (n, 1, height, width).")
    images, labels, bins = loaded(raw), test.y, problem.judge.ece_bins

    def predicted(raw: Tensor) -> Prediction:
        assert inputs is not None
        plain: Prediction = predict(problem.task.model, particles, inputs.ready(raw))
        if scale == 1.0:
            return plain
        probabilities = scaled(plain.probabilities, scale)
        entropy = -torch.special.xlogy(probabilities, probabilities).sum(1)
        return Prediction(probabilities, entropy - plain.epistemic, plain.epistemic)

    inside = predicted(images)
    floor = ece_floor(inside.probabilities, stream(0, "ece floor"), bins)
    scores = {CLEAN: _scores(inside, labels, bins) | {"ece_floor": floor}}
    for name, (_, levels) in SHIFTS.items():
        for level in levels:
            moved = shifted(images, name, level, stream(0, f"{name} {level:g}"))
            scores[f"{name} {level:g}"] = _scores(predicted(moved), labels, bins)
    elsewhere = {"uniform": torch.rand((2000, *images.shape[1:]), generator=stream(0, "elsewhere"))}
    digits = load_digits()
    if images.shape[1:] != digits.test.x.shape[1:]:  # or they are what the run was trained on
        elsewhere["digits"] = enlarge(loaded(joined([digits.train.x, digits.test.x])), *images.shape[-2:])
    scores[ELSEWHERE] = {}
    for name, raw in elsewhere.items():
        outside = predicted(raw)
        scores[ELSEWHERE][f"{name}_entropy"] = ood_auroc(inside.entropy, outside.entropy)
        scores[ELSEWHERE][f"{name}_epistemic"] = ood_auroc(inside.epistemic, outside.epistemic)
    return scores


def _scores(prediction: Prediction, labels: Tensor, bins: int) -> Metrics:
    metrics = score_predictions(prediction, labels, bins)
    return {name: metrics[name] for name in _METRICS}
