"""The classifier: how it learnt, how far to trust it, what it is least sure about, its classes."""

from __future__ import annotations

import torch
from torch import Tensor

from fedstein.data import class_names
from fedstein.likelihoods import score_predictions
from fedstein.metrics import Prediction, Reliability, reliability
from fedstein.report.charts import Axis, Chart, Series
from fedstein.report.page import Page, table, tiles
from fedstein.report.sections.curves import add_curves
from fedstein.report.sections.pictures import add_pictures
from fedstein.report.story import Story
from fedstein.report.words import human_bytes, who_predicts
from fedstein.runs.evaluation import Loaded
from fedstein.runs.judge import predict
from fedstein.store import Checkpoint

__all__ = ["add_classifier"]


def add_classifier(page: Page, loaded: Loaded, checkpoint: Checkpoint, story: Story) -> None:
    """The section."""
    config, judge = loaded.config, loaded.problem.judge
    assert judge.test is not None
    prediction = predict(loaded.problem.task.model, loaded.members, judge.test.x)
    labels = judge.test.y
    scores = score_predictions(prediction, labels, judge.ece_bins)
    page.add(
        tiles(
            [
                (f"{scores['accuracy']:.2%}", "accuracy"),
                (f"{scores['nll']:.4f}", "NLL, nats"),
                (f"{scores['ece']:.4f}", f"ECE, {judge.ece_bins} bins"),
                (f"{scores['brier']:.4f}", "Brier score, 0 to 2"),
                (human_bytes(checkpoint.totals.upload_bits), f"sent up in {checkpoint.totals.uploads:,} uploads"),
                (f"{scores['epistemic']:.4f}", "mean epistemic uncertainty, nats"),
            ]
        ),
        f'<p class="note">All of it on {len(labels):,} {config.evaluation.split} examples, with '
        f"{who_predicts(loaded)} after round {checkpoint.round:,}.</p>",
    )
    page.section("How it learnt", "The first row over rounds, the second over all bits that agents have sent up.")
    add_curves(page, ("accuracy", "nll", "ece"), story.evaluated)
    page.section("How far to trust it", "A confidence of 0.8 should be right eight times out of ten.")
    curve = reliability(prediction.probabilities, labels, judge.ece_bins)
    page.figures([_reliability(curve), _histogram(prediction, labels)], "two")
    names = class_names(config.data, prediction.probabilities.shape[1])
    add_pictures(page, loaded, prediction, names)
    _add_classes(page, names, prediction, labels)


def _reliability(curve: Reliability) -> Chart:
    bars = [(*edge, 0.0, right) for edge, right in zip(curve.edges, curve.accuracy, strict=True)]
    worst = max(range(len(bars)), key=lambda i: curve.gaps()[i])
    alt = (
        f"ECE {curve.ece():.4f} in {len(bars)} bins that are not empty; the largest gap is {curve.gaps()[worst]:.3f}, "
        f"at confidence {curve.confidence[worst]:.2f} ({curve.counts[worst]:,} examples)."
    )
    return Chart(
        "reliability",
        "Reliability diagram",
        alt,
        Axis("confidence", 0, 1),
        Axis("accuracy", 0, 1),
        [
            Series("accuracy in the bin", bars=bars),
            Series("mean confidence in the bin", curve.confidence, curve.confidence, line=False),
            Series(
                "examples", bars=[(*edge, 0.0, n) for edge, n in zip(curve.edges, curve.counts, strict=True)], told=True
            ),
        ],
        note="Bars on the dashed line are calibrated; above it the model is too modest, below it too sure.",
        diagonal=True,
    )


def _histogram(prediction: Prediction, labels: Tensor, bins: int = 20) -> Chart:
    right = prediction.label == labels
    place = (prediction.confidence.double() * bins).long().clamp_max(bins - 1)
    good = torch.bincount(place[right], minlength=bins).tolist()
    bad = torch.bincount(place[~right], minlength=bins).tolist()
    edges = [(i / bins, (i + 1) / bins) for i in range(bins)]
    sure = (prediction.confidence > 0.9).double()
    alt = (
        f"{float(sure.mean()):.1%} of the predictions have a confidence above 0.9; "
        f"{float((sure.bool() & ~right).double().sum() / sure.sum().clamp_min(1)):.1%} of these are wrong."
    )
    return Chart(
        "confidence",
        "How sure it is",
        alt,
        Axis("confidence", 0, 1),
        Axis("predictions", 0),
        [
            Series("right", bars=[(*edge, 0, n) for edge, n in zip(edges, good, strict=True)]),
            Series("wrong", bars=[(*edge, n, n + m) for edge, n, m in zip(edges, good, bad, strict=True)]),
        ],
        note="How many predictions have which confidence, right and wrong ones.",
    )


def _add_classes(page: Page, names: list[str], prediction: Prediction, labels: Tensor) -> None:
    rows: list[list[object]] = []
    for label, name in enumerate(names):
        here = labels == label
        if not here.any():
            rows.append([name, 0, "-", "-", "-", "-"])
            continue
        said = torch.bincount(prediction.label[here], minlength=len(names)).double() / here.sum()
        right = float(said[label])
        said[label] = 0
        other = int(said.argmax())
        rows.append(
            [
                name,
                f"{int(here.sum()):,}",
                f"{right:.3f}",
                f"{float(prediction.confidence[here].mean()):.3f}",
                f"{float(prediction.epistemic[here].mean()):.4f}",
                f"{names[other]}, {float(said[other]):.1%}" if said[other] > 0 else "-",
            ]
        )
    page.section("Classes")
    head = ["class", "examples", "accuracy", "mean confidence", "mean epistemic, nats", "most often taken for"]
    page.add(table(head, rows))
