"""Provenance: how to repeat the run, its settings, where it ran, and what happened."""

from __future__ import annotations

import shlex
from pathlib import Path

import tomli_w

from fedstein.report.page import Page, Raw, code, html, table
from fedstein.report.story import Story
from fedstein.runs.evaluation import Loaded
from fedstein.runs.folder import recorded_config
from fedstein.settings import Config, to_toml
from fedstein.store import Checkpoint, Lineage

__all__ = ["add_provenance"]

MOST_MILESTONES = 20


def add_provenance(page: Page, run: Path, loaded: Loaded, checkpoint: Checkpoint, story: Story) -> None:
    """The section."""
    page.section("How to repeat it")
    version = story.environment.get("fedstein")
    commands = (
        f"pip install fedstein{'' if version is None else f'=={version}'}\n"
        f"{_again(run, loaded.config, loaded.lineage)}\n"
        f"sha256sum again/checkpoints/round-{checkpoint.round:06d}.safetensors"
    )
    history = ["<h2>Lineage</h2>", code(tomli_w.dumps(loaded.lineage.table()))] if loaded.lineage else []
    page.add(
        '<div class="card">',
        code(commands),
        f"<p>On the same kind of machine, with the same versions and threads, the last line prints<br>"
        f'<code style="overflow-wrap:anywhere">{checkpoint.particles_sha256}</code></p>',
        f"<p>To look further: {_to_look_further(run, loaded.config)}</p></div>",
        '<div class="two-columns"><div><h2>Settings</h2>',
        code(to_toml(loaded.config)),
        *history,
        "</div><div><h2>Where it ran</h2>",
        table(["what", "version"], list(story.environment.items())),
        "<h2>What happened</h2>",
        table(["time, UTC", "event", ""], story.milestones[-MOST_MILESTONES:]),
        f'<p class="note">{html(", ".join(f"{name} {count:,} times" for name, count in story.events.items()))}</p>',
        "</div></div>",
    )


def _again(run: Path, config: Config, lineage: Lineage) -> str:
    """What makes the run again, as lines of a shell; a run that was made in Python is made again there."""
    if not lineage:
        if config.is_given:
            return (
                "# this run was made in Python: it needs the same module and the same data again,\n"
                "# and the settings below, with out='again'"
            )
        recorded = recorded_config(run)
        first, *later = [*(recorded.rounds_before if recorded else []), config.rounds]
        begin = "# save the settings below as config.toml\nfedstein train config.toml --out again"
        if not later or config.method.anneal_over != config.rounds:
            return begin
        # Its steps shrank over fewer rounds before it was extended.
        more = "".join(f"\nfedstein resume again --rounds {rounds}" for rounds in later)
        return f"{begin} --set rounds={first} --set method.anneal_over={first}{more}"
    last = lineage.newest
    begin = "# repeat the run that this one began from, as PARENT\n"
    if config.is_given:
        return (
            f"{begin}# this run was made in Python: it needs the same module and the same data again,\n"
            f"# and agents {', '.join(map(str, last.agents))} forgotten by {last.method}, with out='again'"
        )
    agents = ",".join(map(str, last.agents))
    return f"{begin}fedstein forget PARENT --agents {agents} --method {last.method} --out again"


def _to_look_further(run: Path, config: Config) -> Raw:
    words = [f"fedstein {verb} {shlex.quote(str(run))}" for verb in ("evaluate", "watch", "resume")]
    if config.is_given:  # the command has neither the module nor the data
        words = [f"fedstein.open({str(run)!r}, module=..., agents=..., test=...)", words[1]]
    return Raw(", ".join(f"<code>{html(word)}</code>" for word in words))
