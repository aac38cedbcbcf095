"""The agents: what each of them holds, has sent, and gets out of the model."""

from __future__ import annotations

import torch
from torch import Tensor

from fedstein.data import Examples, class_names
from fedstein.metrics import Prediction, accuracy, nll
from fedstein.report.page import Page, Raw, html, table
from fedstein.report.story import Story
from fedstein.report.words import NAMES, human_bytes
from fedstein.runs.evaluation import Loaded
from fedstein.runs.judge import predict

__all__ = ["add_agents"]

MOST_AGENTS = 100  # rows of the table
MOST_EXAMPLES = 1000  # of an agent's own, for its row
MOST_BARS = 30  # classes of which a small histogram can show each


def add_agents(page: Page, loaded: Loaded, story: Story) -> None:
    """The section."""
    holdings = loaded.problem.holdings
    if holdings.remote:
        _add_remote(page, loaded, story)
        return
    page.section(
        "Agents",
        f"Metrics are of what predicts at the end, on up to {MOST_EXAMPLES:,} of each agent's own examples.",
    )
    words = _words(loaded)
    rows = [_row(agent, data, loaded, story) for agent, data in enumerate(holdings.agents[:MOST_AGENTS])]
    page.add(table(["agent", "examples", *words, "visits", "sent up", "share that arrives", "refused"], rows))
    if loaded.config.method.central:
        page.add('<p class="note">This method is central: it pools the data of all agents, as one agent 0.</p>')
    if len(holdings.agents) > MOST_AGENTS:
        page.add(f'<p class="note">The first {MOST_AGENTS} of {len(holdings.agents):,} agents.</p>')


def _words(loaded: Loaded) -> list[str]:
    """How its columns about the model are called."""
    likelihood = loaded.problem.task.model.likelihood
    if loaded.problem.judge.test is None or not likelihood.predicts:
        return []
    first = ["its classes"] if likelihood.name == "categorical" else []
    return [*first, NAMES[likelihood.headline[0]], "NLL"]


def _row(agent: int, data: Examples, loaded: Loaded, story: Story) -> list[object]:
    problem, visits = loaded.problem, story.visits_of(agent)
    words = _words(loaded)
    sent: list[object] = [f"{visits.count:,}", human_bytes(visits.bits)]
    if agent in problem.holdings.erased:
        return [f"{agent}, erased", *["-"] * (1 + len(words)), *sent, "-", "-"]
    share = f"{visits.captured / visits.count:.3f}" if visits.count else "-"
    row = [_called(agent, loaded), f"{len(data):,}", *(_judged(data, loaded) if words else [])]
    return [*row, *sent, share, visits.refused]


def _called(agent: int, loaded: Loaded) -> object:
    """Its number, and what people call it. One that was erased is not called anything any more."""
    names = loaded.problem.holdings.names
    return f"{agent} {names[agent]}" if agent < len(names) and names[agent] else agent


def _judged(data: Examples, loaded: Loaded) -> list[object]:
    """Its classes, and how good the model is for it."""
    some = data.take(torch.arange(min(len(data), MOST_EXAMPLES)))
    model = loaded.problem.task.model
    prediction = predict(model, loaded.members, some.x)
    if not isinstance(prediction, Prediction):
        scores = model.likelihood.scores(prediction, some.y)
        return [f"{scores[name]:.4g}" for name in (model.likelihood.headline[0], "nll")]
    probabilities = prediction.probabilities
    names = class_names(loaded.config.data, probabilities.shape[1])
    return [_mix(data.y, names), f"{accuracy(probabilities, some.y):.3f}", f"{nll(probabilities, some.y):.3f}"]


def _mix(labels: Tensor, names: list[str]) -> Raw:
    """A small histogram of the classes that an agent holds."""
    counts = torch.bincount(labels, minlength=len(names)).tolist()
    held = [(name, count) for name, count in zip(names, counts, strict=True) if count]
    if len(names) > MOST_BARS:
        return Raw(f"{len(held)} classes")
    words = ", ".join(f"{name} {count}" for name, count in held)
    bars = "".join(f'<i style="height:{100 * count / max(counts):.0f}%"></i>' for count in counts)
    return Raw(f'<span class="mix" role="img" aria-label="{html(words)}" title="{html(words)}">{bars}</span>')


def _add_remote(page: Page, loaded: Loaded, story: Story) -> None:
    holdings = loaded.problem.holdings
    page.section("Agents", "Their data is with them: only what they have sent is known here.")
    rows = []
    for agent in range(min(len(holdings.agents), MOST_AGENTS)):
        visits = story.visits_of(agent)
        name = f"{agent}, erased" if agent in holdings.erased else agent
        rows.append([name, f"{visits.count:,}", human_bytes(visits.bits), visits.refused])
    page.add(table(["agent", "visits", "sent up", "refused"], rows))
