"""Any other likelihood: its first metrics, and how they came."""

from __future__ import annotations

from fedstein.metrics.names import NAMES
from fedstein.report.page import Page, table, tiles
from fedstein.report.sections.curves import add_curves
from fedstein.report.story import Story
from fedstein.report.words import human_bytes, who_predicts
from fedstein.runs.evaluation import Loaded
from fedstein.store import Checkpoint

__all__ = ["add_plain"]


def add_plain(page: Page, loaded: Loaded, checkpoint: Checkpoint, story: Story) -> None:
    """The section."""
    metrics = loaded.problem.evaluate(loaded.members)
    numbers = {name: value for name, value in metrics.items() if isinstance(value, float)}
    first = loaded.problem.task.model.likelihood.headline or ("loss",)
    page.add(
        tiles(
            [
                *(
                    (f"{numbers[name]:.4g}", NAMES.get(name, name.replace("_", " ")))
                    for name in first
                    if name in numbers
                ),
                (human_bytes(checkpoint.totals.upload_bits), f"sent up in {checkpoint.totals.uploads:,} uploads"),
            ]
        ),
        f'<p class="note">All of it on the {loaded.config.evaluation.split} examples, with '
        f"{who_predicts(loaded)} after round {checkpoint.round:,}.</p>",
    )
    page.section("How it learnt", "The first row over rounds, the second over all bits that agents have sent up.")
    add_curves(page, [name for name in first if name in NAMES], story.evaluated)
    page.section("All metrics")
    page.add(table(["metric", "value"], [[name.replace("_", " "), f"{value:.4g}"] for name, value in numbers.items()]))
