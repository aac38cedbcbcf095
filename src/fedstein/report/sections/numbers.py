"""Predicted numbers: how far off they are, and whether their intervals hold what they promise."""

from __future__ import annotations

import torch
from torch import Tensor

from fedstein.metrics import Numbers
from fedstein.report.charts import Axis, Chart, Series
from fedstein.report.page import Page, table, tiles
from fedstein.report.sections.curves import add_curves
from fedstein.report.story import Story
from fedstein.report.words import human_bytes, who_predicts
from fedstein.runs.evaluation import Loaded
from fedstein.runs.judge import predict
from fedstein.store import Checkpoint

__all__ = ["add_numbers"]

MOST_POINTS = 400  # of the picture of predicted against true


def add_numbers(page: Page, loaded: Loaded, checkpoint: Checkpoint, story: Story) -> None:
    """The section."""
    judge, model = loaded.problem.judge, loaded.problem.task.model
    assert judge.test is not None
    prediction: Numbers = predict(model, loaded.members, judge.test.x)
    y = judge.test.y.to(prediction.mean.dtype)
    scores = model.likelihood.scores(prediction, judge.test.y)
    page.add(
        tiles(
            [
                (f"{scores['rmse']:.4g}", "RMSE, in the target's unit"),
                (f"{scores['nll']:.4f}", "NLL, nats"),
                (f"{scores['crps']:.4g}", "CRPS, in the target's unit"),
                (f"{scores['coverage_90']:.1%}", "of the targets are in the 90 % intervals"),
                (human_bytes(checkpoint.totals.upload_bits), f"sent up in {checkpoint.totals.uploads:,} uploads"),
                (f"{float(prediction.epistemic.sqrt().mean()):.4g}", "mean epistemic standard deviation"),
            ]
        ),
        f'<p class="note">All of it on {len(y):,} {loaded.config.evaluation.split} examples, with '
        f"{who_predicts(loaded)} after round {checkpoint.round:,}.</p>",
    )
    page.section("How it learnt", "The first row over rounds, the second over all bits that agents have sent up.")
    add_curves(page, ("rmse", "nll", "crps"), story.evaluated)
    page.section(
        "How far to trust it", "Nine of ten targets should be in the 90 % intervals, half of them in the 50 %."
    )
    page.figures([_coverage(prediction, y), _pit(scores["pit"])], "two")
    page.section("How good it is, and where", "The first target, if there are several.")
    page.figures([_against(prediction, y), _by_doubt(prediction, y)], "two")
    _add_intervals(page, scores)


def _coverage(prediction: Numbers, y: Tensor) -> Chart:
    """Which share of the targets is in the central interval of each level."""
    below, upto = prediction.pit(y)
    middle = (below + upto) / 2
    levels = [0.05 * step for step in range(1, 20)]
    held = [float(((middle - 0.5).abs() <= level / 2).double().mean()) for level in levels]
    worst = max(range(len(levels)), key=lambda i: abs(held[i] - levels[i]))
    return Chart(
        "coverage",
        "Coverage of the intervals",
        f"The 90 % interval holds {held[17]:.1%} of the targets; the largest gap is "
        f"{held[worst] - levels[worst]:+.3f}, at "
        f"the level {levels[worst]:.2f}.",
        Axis("level of the central interval", 0, 1),
        Axis("share of targets in it", 0, 1),
        [Series("share of targets", levels, held)],
        note="On the dashed line the intervals are right; below it they are too narrow, above it too wide.",
        diagonal=True,
    )


def _pit(shares: list[float]) -> Chart:
    count = len(shares)
    bars = [(i / count, (i + 1) / count, 0.0, share) for i, share in enumerate(shares)]
    return Chart(
        "pit",
        "Where the targets fall",
        f"From {min(shares):.3f} to {max(shares):.3f} a bin; {1 / count:.3f} each where the predictions are right.",
        Axis("probability of a smaller target", 0, 1),
        Axis("share of targets", 0),
        [Series("targets", bars=bars)],
        note="Flat is right. High at both ends: too sure. High in the middle: too modest. Leaning: off to one side.",
    )


def _against(prediction: Numbers, y: Tensor) -> Chart:
    some = torch.arange(0, len(y), -(-len(y) // MOST_POINTS))
    few = prediction.rows(some)
    low, high = few.interval(0.9)
    order = y[some, 0].argsort()
    true, mean = y[some, 0][order].tolist(), few.mean[order, 0].tolist()
    return Chart(
        "predicted-against-true",
        "Predicted against true",
        f"Means and 90 % intervals of {len(true):,} examples; the targets go from {true[0]:.4g} to {true[-1]:.4g}, the "
        f"means from {min(mean):.4g} to {max(mean):.4g}.",
        Axis("true"),
        Axis("predicted"),
        [Series("mean and 90 % interval", true, mean, low[order, 0].tolist(), high[order, 0].tolist(), line=False)],
    )


def _by_doubt(prediction: Numbers, y: Tensor, groups: int = 10) -> Chart:
    """Whether it is more often wrong where it says that it is less sure."""
    off = (prediction.mean[:, 0] - y[:, 0]).square()
    parts = [part for part in torch.tensor_split(prediction.std[:, 0].argsort(), groups) if len(part)]
    said = [float(prediction.std[part, 0].square().mean().sqrt()) for part in parts]
    came = [float(off[part].mean().sqrt()) for part in parts]
    return Chart(
        "error-by-std",
        "Said and found errors",
        f"A tenth of the examples each: where it says a standard deviation of {said[0]:.4g} the RMSE is {came[0]:.4g}, "
        f"where it says {said[-1]:.4g} it is {came[-1]:.4g}.",
        Axis("predicted standard deviation", 0),
        Axis("RMSE", 0),
        [Series("a tenth of the examples", said, came), Series("as it says", said, said)],
        note="Examples in ten groups by how sure the model is.",
    )


def _add_intervals(page: Page, scores: dict[str, float]) -> None:
    rows = [
        [f"{percent} %", f"{scores[f'coverage_{percent}']:.1%}", f"{scores[f'width_{percent}']:.4g}"]
        for percent in (50, 80, 90, 95)
    ]
    page.section("Intervals")
    page.add(table(["central interval", "targets in it", "mean width"], rows))
