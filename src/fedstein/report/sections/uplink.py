"""The uplink: where the bits of an upload go, and how much of an update arrives."""

from __future__ import annotations

from collections.abc import Sequence

from fedstein.report.charts import Axis, Chart, Part, Series
from fedstein.report.page import Page
from fedstein.report.story import Story
from fedstein.report.words import human_bytes
from fedstein.settings import Config
from fedstein.store import Checkpoint

__all__ = ["add_uplink"]


def add_uplink(page: Page, config: Config, checkpoint: Checkpoint, story: Story) -> None:
    """The section; none where nothing was sent."""
    bills, totals = story.bills, checkpoint.totals
    if not bills.uploads:
        return
    up, down = human_bytes(totals.upload_bits), human_bytes(totals.download_bits)
    if config.uplink.budget is None:
        page.section(
            "The uplink",
            f"No bit budget was set: every difference went up as plain float32, {up} in all; {down} came down. "
            "With uplink.budget an upload never costs more than you allow.",
        )
        return
    parts = [
        Part("entries", bills.entries / bills.uploads),
        Part("positions", bills.positions / bills.uploads),
        Part("header, check, scale", bills.overhead / bills.uploads),
        Part("not used", bills.unused / bills.uploads, empty=True),
    ]
    budget = sum(part.value for part in parts)
    page.section(
        "The uplink",
        f"Every upload is one frame of at most {config.uplink.budget} ({budget:,.0f} bits), everything "
        f"counted. The largest took {totals.max_upload_bits:,} bits; {totals.refused:,} of {totals.uploads:,} were "
        f"refused. {up} went up in all, {down} came down.",
    )
    alt = ", ".join(f"{part.name} {part.value / budget:.1%}" for part in parts) + " of the budget."
    page.figures(
        [
            Chart("frame", "Where the bits of a frame go", alt, parts=parts,
                  note=f"Mean of {bills.uploads:,} frames. The letter's formula gives "
                  f"{bills.bound / bills.uploads:,.0f} bits for as many entries."),
            Chart("kept", "Entries kept for each particle", _range(story.kept), Axis("round", 0),
                  Axis("entries kept", 0), [Series("entries kept", story.rounds, story.kept)]),
            Chart("captured", "Share of the update that arrives", _range(story.captured), Axis("round", 0),
                  Axis("share of its energy", 0, 1), [Series("share", story.rounds, story.captured)]),
        ],
        "two",
    )  # fmt: skip


def _range(values: Sequence[float]) -> str:
    return f"From {min(values):.4g} to {max(values):.4g}, {values[-1]:.4g} in the last round."
