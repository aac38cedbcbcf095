"""The inputs that the model is least sure about, as pictures where they are some."""

from __future__ import annotations

import base64
import io

import torch
from torch import Tensor

from fedstein.metrics import Prediction
from fedstein.report.extra import report_extra
from fedstein.report.page import Page, html
from fedstein.runs.evaluation import Loaded

__all__ = ["add_pictures"]

PICTURES = 16
MOST = 512  # pixels of a side
SERIES = 8  # times as long as wide is no picture, but something over time


def add_pictures(page: Page, loaded: Loaded, prediction: Prediction, names: list[str]) -> None:
    """The section."""
    config, judge = loaded.config, loaded.problem.judge
    assert judge.test is not None
    doubt, word = prediction.epistemic, "epistemic uncertainty"
    if len(loaded.members) == 1:
        doubt, word = prediction.entropy, "entropy (one network has no epistemic uncertainty)"
    page.section(
        "What it is least sure about",
        f"The {config.evaluation.split} examples with the highest {word}. Below: "
        "what the model says and whether it is right, its three most probable classes, and its uncertainty.",
    )
    cards = []
    for index in doubt.argsort(descending=True, stable=True)[:PICTURES].tolist():
        said, true = names[int(prediction.label[index])], names[int(judge.test.y[index])]
        top = prediction.probabilities[index].topk(min(3, len(names)))
        likely = ", ".join(f"{names[int(i)]} {float(p):.2f}" for p, i in zip(top.values, top.indices, strict=True))
        image = "" if judge.raw_test is None else _image(judge.raw_test[index], f"example {index}: {true}")
        verdict = "right" if said == true else f'<span class="wrong">is: {html(true)}</span>'
        cards.append(
            f"<li>{image}<b>{html(said)}</b>, {verdict}<br>"
            f'<span class="faint">{html(likely)}<br>{float(doubt[index]):.3f} nats</span></li>'
        )
    page.add('<ul class="inputs">', *cards, "</ul>")


def _image(raw: Tensor, alt: str) -> str:
    sizes = [size for size in raw.shape if size != 1]
    if len(sizes) == 3 and sizes[0] == 3 and max(sizes) <= MOST:
        return f'<img alt="{html(alt)}" src="{_png(raw.reshape(sizes).permute(1, 2, 0))}">'
    if len(sizes) == 2 and sizes[1] > SERIES * sizes[0]:
        return _series(raw.reshape(sizes), alt)
    if len(sizes) == 2 and max(sizes) <= MOST:
        return f'<img alt="{html(alt)}" src="{_png(raw.reshape(sizes))}">'
    side = int(sizes[0] ** 0.5) if len(sizes) == 1 else 0
    if side >= 4 and side * side == sizes[0]:
        return f'<img alt="{html(alt)}" src="{_png(raw.reshape(side, side))}">'
    return ""


def _series(raw: Tensor, alt: str) -> str:
    """Several channels over time, as lines."""
    low, high = float(raw.min()), float(raw.max())
    some = torch.linspace(0, raw.shape[1] - 1, min(raw.shape[1], 120)).long()
    heights = (1 - (raw.float() - low) / max(high - low, 1e-12)) * 56 + 2
    lines = []
    for channel in heights[:8, some].tolist():
        points = " ".join(f"{100 * i / len(channel):.1f},{y:.1f}" for i, y in enumerate(channel))
        lines.append(f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-opacity=".55"/>')
    return f'<svg class="series" role="img" aria-label="{html(alt)}" viewBox="0 0 100 60">{"".join(lines)}</svg>'


def _png(picture: Tensor) -> str:
    with report_extra():
        from PIL import Image

    low, high = float(picture.min()), float(picture.max())
    shades = ((picture.float() - low) / max(high - low, 1e-12) * 255).round().to(torch.uint8)
    content = io.BytesIO()
    Image.fromarray(shades.contiguous().numpy()).save(content, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()
