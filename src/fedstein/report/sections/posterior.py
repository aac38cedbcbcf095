"""Where there are no test examples: the distance to a posterior that is known, or nothing to judge by."""

from __future__ import annotations

from fedstein.report.page import Page, tiles
from fedstein.report.sections.curves import add_curves
from fedstein.report.story import Story
from fedstein.report.words import NAMES, human_bytes
from fedstein.runs.evaluation import Loaded
from fedstein.store import Checkpoint

__all__ = ["add_posterior"]


def add_posterior(page: Page, loaded: Loaded, checkpoint: Checkpoint, story: Story) -> None:
    """The section."""
    scores = loaded.problem.evaluate(loaded.members)
    shown = [(f"{value:.4g}", NAMES.get(name, name.replace("_", " "))) for name, value in scores.items()]
    sent = (human_bytes(checkpoint.totals.upload_bits), f"sent up in {checkpoint.totals.uploads} uploads")
    page.add(tiles([*shown, sent]))
    if loaded.problem.judge.exact is None:
        page.add('<p class="note">No test examples were given: there is nothing to judge the particles by.</p>')
        return
    page.section("How it learnt", "The posterior is known here, so the particles are judged against it.")
    add_curves(page, [name for name in NAMES if name in scores], story.evaluated)
