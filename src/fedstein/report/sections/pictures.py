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


def add_pictures(page: Page, loaded: Loaded, prediction: Prediction, names: list[str]) -> None:
    """The section."""
    config, judge = loaded.config, loaded.problem.judge
    assert judge.test is not None
    doubt, word = prediction.epistemic, "epistemic uncertainty"
    if config.method.particles == 1:
        doubt, word = prediction.entropy, "entropy (one particle has no epistemic uncertainty)"
    page.section(
        "What it is least sure about",
        f"The {config.evaluation.split} examples with the highest {word}: the particles disagree most here. Below: "
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
    side = _side(raw.shape)
    return "" if side is None else f'<img alt="{html(alt)}" src="{_png(raw.reshape(side))}">'


def _side(shape: torch.Size) -> tuple[int, int] | None:
    """Height and width, if one input can be shown as a grey picture."""
    sizes = [size for size in shape if size != 1]
    if len(sizes) == 2 and max(sizes) <= 512:
        return sizes[0], sizes[1]
    if len(sizes) == 1 and sizes[0] >= 16 and int(sizes[0] ** 0.5) ** 2 == sizes[0]:
        return int(sizes[0] ** 0.5), int(sizes[0] ** 0.5)
    return None


def _png(picture: Tensor) -> str:
    with report_extra():
        from PIL import Image

    low, high = float(picture.min()), float(picture.max())
    grey = ((picture - low) / max(high - low, 1e-12) * 255).round().to(torch.uint8)
    content = io.BytesIO()
    Image.fromarray(grey.numpy()).save(content, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()
