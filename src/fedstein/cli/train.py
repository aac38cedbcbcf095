"""`fedstein train` and `fedstein resume`: train in a run folder, and go on where it stopped."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedstein.cli.output import (
    EngineOption,
    JsonOption,
    RayOption,
    SetOption,
    VisitsOption,
    engine_name,
    on_terminal,
    print_json,
    print_metrics,
    ready,
    say,
    show,
    warn,
)

if TYPE_CHECKING:
    from fedstein.api import Run
    from fedstein.settings import Choice, Config

__all__ = ["resume", "tell", "train"]

DeviceOption = Annotated[
    str | None,
    typer.Option(help="Go on on this device instead of the run's own: cpu, cuda, cuda:1, mps, auto."),
]
Report = Annotated[bool, typer.Option("--report", help="End by writing the report: RUN/report.html.")]


def train(
    config_file: Annotated[Path | None, typer.Argument(metavar="[CONFIG.toml]", help="Defaults if left out.")] = None,
    set_: SetOption = None,
    out: Annotated[Path | None, typer.Option(help="The run folder to make; runs/<method>-<time> if left out.")] = None,
    preset: Annotated[
        str | None, typer.Option(help="Settings that come with fedstein: letter, letter-unlearning, unlearning.")
    ] = None,
    report: Report = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Tell which settings were chosen because nobody gave them; train nothing.")
    ] = False,
    engine: EngineOption = None,
    ray: RayOption = None,
    workers: VisitsOption = None,
    json: JsonOption = False,
) -> None:
    """Train a model across agents, and keep the run in a folder."""
    from fedstein import api
    from fedstein.runs.folder import left_out
    from fedstein.runs.stopping import StopAfterRound

    ready()
    config = api.config(config_file, *(set_ or []), preset=preset)
    if explain:
        _explain(config, [] if preset is not None else api.explain(config_file, *(set_ or [])), json)
        return
    without = () if config_file is None else left_out(config_file)
    if out is None:
        out = Path("runs") / f"{config.method.name}-{datetime.now():%Y%m%d-%H%M%S-%f}"
    how: dict[str, Any] = {
        "engine": engine_name(engine, ray),
        "workers": workers,
        "watchers": [StopAfterRound(warn, (out / "config.toml").is_file)],
    }
    tell(api.train_config(config, out, without=without, onlooker=on_terminal(json), **how), report, json)


def resume(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    rounds: Annotated[int | None, typer.Option(min=1, help="Extend the run to so many rounds.")] = None,
    report: Report = False,
    device: DeviceOption = None,
    engine: EngineOption = None,
    ray: RayOption = None,
    workers: VisitsOption = None,
    json: JsonOption = False,
) -> None:
    """Go on with a run after any stop; on a CPU like the first, bit for bit that of an uninterrupted run."""
    from fedstein import api
    from fedstein.runs.stopping import StopAfterRound

    ready()
    how: dict[str, Any] = {"engine": engine_name(engine, ray), "workers": workers, "watchers": [StopAfterRound(warn)]}
    how["device"] = device
    tell(api.open(run, careful=False).resume(rounds, onlooker=on_terminal(json), **how), report, json)


def _explain(config: Config, choices: list[Choice], json: bool) -> None:
    from rich.table import Table

    from fedstein.settings import to_table

    config = config.model_copy(update={"posterior": config.posterior.whole(config.method.particles)})
    if json:
        chosen = [{"key": one.key, "value": one.value, "why": one.why} for one in choices]
        print_json({"chosen": chosen, "config": to_table(config)})
        return
    if not choices:
        say("Nothing was chosen: every setting is as it was given, or as its preset, method or factor has it.")
        return
    table = Table(title="Chosen, because nobody gave them; --set KEY=VALUE gives another", title_justify="left")
    for name in ("setting", "value", "why"):
        table.add_column(name)
    for one in choices:
        table.add_row(one.key, str(one.value), one.why)
    show(table)
    window = config.posterior.length(config.method.particles)
    if window:
        say(f"What predicts: {config.posterior.from_} of the last tenth of all turns, {window} at most.")


def tell(run: Run, report: bool, json: bool) -> None:
    """Say what came of a training; exit code 130 if it was interrupted."""
    result, interrupted = run.result, run.result["interrupted"]
    page = run.report() if report and not interrupted else None
    if json:
        print_json(result | ({} if page is None else {"report": str(page)}))
    else:
        rounds = result.get("total_rounds", result["rounds"])
        print_metrics(run.metrics, f"after {rounds} rounds, {result['seconds']:.1f} s")
        if run.lineage.asked:
            say(f"Erasure: {result['rounds']:,} rounds, {result['upload_bits']:,} bits sent up")
        say(_bill(result))
        say(f"Run folder: {run.path}")
        if interrupted:
            say(f"Interrupted: what was learnt so far is kept.\nGo on:      fedstein resume {run.path}")
        elif page is not None:
            say(f"Report:     {page}")
        else:
            say(f"Next:       fedstein {'audit' if run.lineage.asked else 'report'} {run.path}")
    if interrupted:
        raise typer.Exit(130)


def _bill(result: dict[str, Any]) -> str:
    sent, most, budget = result["total_upload_bits"], result["max_upload_bits"], result["budget_bits"]
    if budget is None:
        return f"Uploads: {sent / 8e6:,.1f} MB in all, as plain float32 (no uplink.budget)"
    kept = "" if result["kept"] is None else f", {result['kept']:,} kept"
    return f"Uploads: {sent / 8e6:,.3f} MB in all; the largest {most:,} of {budget:,} bits{kept}"
