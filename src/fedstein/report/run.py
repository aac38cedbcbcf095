"""The report of one run: what it learnt, how far it can be trusted, what it cost, and how to repeat it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedstein.report.extra import check_extra
from fedstein.report.page import Page
from fedstein.report.sections.agents import add_agents
from fedstein.report.sections.classifier import add_classifier
from fedstein.report.sections.numbers import add_numbers
from fedstein.report.sections.plain import add_plain
from fedstein.report.sections.posterior import add_posterior
from fedstein.report.sections.provenance import add_provenance
from fedstein.report.sections.uplink import add_uplink
from fedstein.report.story import Story, read_story
from fedstein.report.words import data_name
from fedstein.report.writing import Written, write_page
from fedstein.runs.evaluation import Loaded, load_run
from fedstein.runs.folder import load_checkpoint
from fedstein.runs.given import Given
from fedstein.store import Checkpoint, in_use

__all__ = ["write_report"]


def write_report(run: Path, out: Path | None = None, given: Given | None = None) -> Written:
    """Write the report of a run folder, RUN/report.html if `out` is left out, and its figures beside it.

    Args:
        run: the folder; the run may still be under way.
        out: the page to write.
        given: what the run was given in Python.

    Returns:
        The page, and the figures' files.
    """
    check_extra()
    loaded = load_run(run, given=given)
    checkpoint = load_checkpoint(run)[0]
    story = read_story(run)
    page = Page(f"Run {run.resolve().name}", _lead(run, loaded, checkpoint))
    if story.lines < checkpoint.round:
        page.add(f"<p><b>metrics.jsonl is damaged after round {story.lines:,}: the curves below end there.</b></p>")
    section_of(loaded)(page, loaded, checkpoint, story)
    add_uplink(page, loaded.config, checkpoint, story)
    add_agents(page, loaded, story)
    add_provenance(page, run, loaded, checkpoint, story)
    return write_page(page, run / "report.html" if out is None else out)


def section_of(loaded: Loaded) -> Callable[[Page, Loaded, Checkpoint, Story], None]:
    """What tells how good a model is: it depends on what it predicts."""
    if loaded.problem.judge.test is None:
        return add_posterior
    likelihood = loaded.problem.task.model.likelihood.name
    return {"categorical": add_classifier, "gaussian": add_numbers, "poisson": add_numbers}.get(likelihood, add_plain)


def _lead(run: Path, loaded: Loaded, checkpoint: Checkpoint) -> str:
    config, problem = loaded.config, loaded.problem
    method, data = config.method, config.data
    partition = "" if data.synthetic or config.is_given or problem.holdings.names else f", {data.partition}"
    if checkpoint.round >= config.rounds:
        status = f"Finished: {checkpoint.round:,} rounds, {checkpoint.seconds:,.3g} seconds of training."
    elif in_use(run):
        status = f"Still running: {checkpoint.round:,} of {config.rounds:,} rounds are saved."
    else:
        status = f"Stopped after {checkpoint.round:,} of {config.rounds:,} rounds."
    return (
        f"{method.name} on {data_name(config)}{partition}: {len(problem.holdings.present)} agents, {method.particles} "
        f"particle{'s' * (method.particles > 1)} of {problem.dim:,} parameters. {status}"
    )
