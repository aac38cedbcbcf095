"""The report of one run: what it learnt, how far it can be trusted, what it cost, and how to repeat it."""

from __future__ import annotations

import base64
import io
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedstein.build import load_run
from fedstein.config import Config, to_toml
from fedstein.data import class_names
from fedstein.errors import RunError, UserError
from fedstein.metrics import Prediction, Reliability, accuracy, nll, reliability
from fedstein.problem import Problem, predict, score_predictions
from fedstein.report.charts import Axis, Chart, Part, Series
from fedstein.report.figures import save_figures
from fedstein.report.page import Page, Raw, code, html, table, tiles
from fedstein.runs import Checkpoint, in_use, load_checkpoint, read_journal, read_metrics
from fedstein.runs.files import write

__all__ = ["NAMES", "human_bytes", "write_page", "write_report"]

NAMES = {
    "accuracy": "accuracy",
    "nll": "NLL",
    "ece": "ECE",
    "brier": "Brier score",
    "total_variation": "total variation to the exact posterior",
    "posterior_mean_error": "error of the posterior mean",
    "posterior_std_ratio": "posterior std, as a ratio to the exact one",
}
MOST_AGENTS = 100  # rows of the table of agents
MOST_EXAMPLES = 1000  # of an agent's own, for its row
PICTURES = 16


def write_report(run: Path, out: Path | None = None) -> tuple[Path, list[Path]]:
    """Write the report of a run folder, RUN/report.html if `out` is left out, and its figures beside it.

    Returns:
        The page, and the figures' files.
    """
    config, problem, particles = load_run(run)
    checkpoint = load_checkpoint(run)[0]
    story = _read(run)
    page = Page(f"Run {run.resolve().name}", _lead(run, config, problem, checkpoint))
    if story.lines < checkpoint.round:
        page.add(f"<p><b>metrics.jsonl is damaged after round {story.lines:,}: the curves below end there.</b></p>")
    if problem.test is not None:
        _classifier(page, config, problem, particles, checkpoint, story)
    else:
        _known_posterior(page, problem, particles, checkpoint, story)
    _uplink(page, config, checkpoint, story)
    _agents(page, config, problem, particles, story)
    _provenance(page, run, config, checkpoint, story)
    return write_page(page, run / "report.html" if out is None else out)


def write_page(page: Page, out: Path) -> tuple[Path, list[Path]]:
    """Write a page, and its charts as files in the folder `<page>-figures` beside it."""
    if out.name in ("", "..") or (out.exists() and not out.is_file()):
        raise UserError(f"The '--out' must be the name of a file, for instance report.html. Got {str(out)!r} instead.")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write(out, page.render().encode())
        return out, save_figures(page.charts, out.parent / f"{out.stem}-figures")
    except OSError as error:
        raise RunError(f"Cannot write the report {out}: {error.strerror}.") from error


@dataclass
class _Agent:
    """What metrics.jsonl tells of an agent."""

    visits: int = 0
    bits: int = 0
    captured: float = 0.0
    refused: int = 0


@dataclass
class _Story:
    """What the files of a run tell, in one pass."""

    evaluated: list[dict[str, Any]] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)
    captured: list[float] = field(default_factory=list)  # of each round, mean over its uploads
    kept: list[float] = field(default_factory=list)
    bits: Counter[str] = field(default_factory=Counter)
    agents: dict[int, _Agent] = field(default_factory=dict)
    events: Counter[str] = field(default_factory=Counter)
    environment: dict[str, Any] = field(default_factory=dict)
    milestones: list[tuple[str, str, str]] = field(default_factory=list)
    lines: int = 0


def _read(run: Path) -> _Story:
    story = _Story()
    for line in read_metrics(run):
        story.lines, uploads = line["round"], line["uploads"]
        if any(name in line for name in NAMES):
            story.evaluated.append({key: value for key, value in line.items() if key != "uploads"})
        if uploads:
            story.rounds.append(line["round"])
            story.captured.append(sum(upload["captured"] for upload in uploads) / len(uploads))
            story.kept.append(sum(upload["kept"] for upload in uploads) / len(uploads))
        for upload in uploads:
            agent = story.agents.setdefault(upload["agent"], _Agent())
            agent.visits += 1
            agent.bits += upload["bits"]
            agent.captured += upload["captured"]
            agent.refused += upload["refused"]
            story.bits["uploads"] += 1
            story.bits["positions"] += upload["position_bits"]
            story.bits["entries"] += upload["entry_bits"]
            story.bits["overhead"] += upload["bits"] - upload["position_bits"] - upload["entry_bits"]
            story.bits["bound"] += round(upload["bound_bits"])
            if upload["budget_bits"] is not None:
                story.bits["unused"] += upload["budget_bits"] - upload["bits"]
    for event in read_journal(run):
        story.events[event["event"]] += 1
        if event["event"] not in ("scheduled", "sent", "applied", "checkpoint"):
            words = event.get("reason") or (f"round {event['round']}" if "round" in event else "")
            story.milestones.append((str(event.get("time", ""))[:19].replace("T", " "), event["event"], str(words)))
        if not story.environment and isinstance(event.get("environment"), dict):
            story.environment = event["environment"]
    return story


def _lead(run: Path, config: Config, problem: Problem, checkpoint: Checkpoint) -> str:
    method, data = config.method, config.data
    partition = "" if data.name.startswith("synthetic") else f", {data.partition}"
    if checkpoint.round >= config.rounds:
        status = f"Finished: {checkpoint.round:,} rounds, {checkpoint.seconds:,.3g} seconds of training."
    elif in_use(run):
        status = f"Still running: {checkpoint.round:,} of {config.rounds:,} rounds are saved."
    else:
        status = f"Stopped after {checkpoint.round:,} of {config.rounds:,} rounds."
    return (
        f"{method.name} on {data.name}{partition}: {len(problem.present)} agents, {method.particles} "
        f"particle{'s' * (method.particles > 1)} of {problem.model.dim:,} parameters. {status}"
    )


def _classifier(
    page: Page, config: Config, problem: Problem, particles: Tensor, checkpoint: Checkpoint, story: _Story
) -> None:
    assert problem.test is not None
    prediction = predict(problem.model, particles, problem.test.x)
    labels = problem.test.y
    scores = score_predictions(prediction, labels, problem.ece_bins)
    sent = checkpoint.totals.upload_bits
    page.add(
        tiles(
            [
                (f"{scores['accuracy']:.2%}", "accuracy"),
                (f"{scores['nll']:.4f}", "NLL, nats"),
                (f"{scores['ece']:.4f}", f"ECE, {problem.ece_bins} bins"),
                (f"{scores['brier']:.4f}", "Brier score, 0 to 2"),
                (human_bytes(sent), f"sent up in {checkpoint.totals.uploads:,} uploads"),
                (f"{scores['epistemic']:.4f}", "mean epistemic uncertainty, nats"),
            ]
        ),
        f'<p class="note">All of it on {len(labels):,} {config.evaluation.split} examples, with the mixture of all '
        f"particles after round {checkpoint.round:,}.</p>",
    )
    page.section("How it learnt", "The first row over rounds, the second over all bits that agents have sent up.")
    names = [name for name in ("accuracy", "nll", "ece") if any(name in line for line in story.evaluated)]
    page.figures([_over(name, story, "round") for name in names])
    page.figures([_over(name, story, "bits") for name in names])
    page.section("How far to trust it", "A confidence of 0.8 should be right eight times out of ten.")
    curve = reliability(prediction.probabilities, labels, problem.ece_bins)
    page.figures([_reliability(curve), _histogram(prediction, labels)], "two")
    _pictures(page, config, problem, prediction, labels)
    _classes(page, config, prediction, labels)


def _known_posterior(page: Page, problem: Problem, particles: Tensor, checkpoint: Checkpoint, story: _Story) -> None:
    scores = problem.evaluate(particles)
    shown = [(f"{value:.4g}", NAMES.get(name, name.replace("_", " "))) for name, value in scores.items()]
    page.add(
        tiles([*shown, (human_bytes(checkpoint.totals.upload_bits), f"sent up in {checkpoint.totals.uploads} uploads")])
    )
    page.section("How it learnt", "The posterior is known here, so the particles are judged against it.")
    names = [name for name in NAMES if name in scores and story.evaluated]
    page.figures([_over(name, story, "round") for name in names])
    page.figures([_over(name, story, "bits") for name in names])


def _over(name: str, story: _Story, what: str) -> Chart:
    """A metric over rounds, or over bits sent."""
    lines = [line for line in story.evaluated if line.get(name) is not None]
    x = [line["round"] if what == "round" else line["total_upload_bits"] for line in lines]
    y = [line[name] for line in lines]
    better = max if name == "accuracy" else min
    best = better(range(len(y)), key=lambda i: y[i])
    unit = "round" if what == "round" else "bits sent"
    alt = f"From {y[0]:.4g} at {unit} {x[0]:,} to {y[-1]:.4g} at {x[-1]:,}; the best is {y[best]:.4g} at {x[best]:,}."
    axis = Axis("round", 0) if what == "round" else Axis("bits sent up by all agents", 0)
    word = NAMES[name][0].upper() + NAMES[name][1:]
    title = f"{word} over {'rounds' if what == 'round' else 'bits sent'}"
    return Chart(f"{name}-over-{what}s".replace("bitss", "bits"), title, alt, axis, Axis(NAMES[name]),
                 [Series(NAMES[name], x, y)])  # fmt: skip


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


def _pictures(page: Page, config: Config, problem: Problem, prediction: Prediction, labels: Tensor) -> None:
    names = class_names(config.data.name, prediction.probabilities.shape[1])
    doubt, word = prediction.epistemic, "epistemic uncertainty"
    if config.method.particles == 1:
        doubt, word = prediction.entropy, "entropy (one particle has no epistemic uncertainty)"
    raw = problem.raw_test
    side = None if raw is None else _side(raw.shape[1:])
    page.section(
        "What it is least sure about",
        f"The {config.evaluation.split} examples with the highest {word}: the particles disagree most here. Below: "
        "what the model says and whether it is right, its three most probable classes, and its uncertainty.",
    )
    cards = []
    for index in doubt.argsort(descending=True, stable=True)[:PICTURES].tolist():
        said, true = names[int(prediction.label[index])], names[int(labels[index])]
        top = prediction.probabilities[index].topk(min(3, len(names)))
        likely = ", ".join(f"{names[int(i)]} {float(p):.2f}" for p, i in zip(top.values, top.indices, strict=True))
        image = ""
        if raw is not None and side is not None:
            image = f'<img alt="example {index}: {html(true)}" src="{_png(raw[index].reshape(side))}">'
        verdict = "right" if said == true else f'<span class="wrong">is: {html(true)}</span>'
        cards.append(
            f"<li>{image}<b>{html(said)}</b>, {verdict}<br>"
            f'<span class="faint">{html(likely)}<br>{float(doubt[index]):.3f} nats</span></li>'
        )
    page.add('<ul class="inputs">', *cards, "</ul>")


def _side(shape: torch.Size) -> tuple[int, int] | None:
    """Height and width, if one input can be shown as a grey picture."""
    sizes = [size for size in shape if size != 1]
    if len(sizes) == 2 and max(sizes) <= 512:
        return sizes[0], sizes[1]
    if len(sizes) == 1 and sizes[0] >= 16 and int(sizes[0] ** 0.5) ** 2 == sizes[0]:
        return int(sizes[0] ** 0.5), int(sizes[0] ** 0.5)
    return None


def _png(picture: Tensor) -> str:
    from PIL import Image

    low, high = float(picture.min()), float(picture.max())
    grey = ((picture - low) / max(high - low, 1e-12) * 255).round().to(torch.uint8)
    content = io.BytesIO()
    Image.fromarray(grey.numpy()).save(content, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()


def _classes(page: Page, config: Config, prediction: Prediction, labels: Tensor) -> None:
    names = class_names(config.data.name, prediction.probabilities.shape[1])
    rows = []
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


def _uplink(page: Page, config: Config, checkpoint: Checkpoint, story: _Story) -> None:
    count = story.bits["uploads"]
    if not count:
        return
    totals = checkpoint.totals
    up, down = human_bytes(totals.upload_bits), human_bytes(totals.download_bits)
    if config.uplink.budget is None:
        page.section(
            "The uplink",
            f"No bit budget was set: every difference went up as plain float32, {up} in all; {down} came down. "
            "With uplink.budget an upload never costs more than you allow.",
        )
        return
    page.section(
        "The uplink",
        f"Every upload is one frame of at most {config.uplink.budget} ({_mean(story, 'budget'):,.0f} bits), everything "
        f"counted. The largest took {totals.max_upload_bits:,} bits; {totals.refused:,} of {totals.uploads:,} were "
        f"refused. {up} went up in all, {down} came down.",
    )
    parts = [
        Part("entries", _mean(story, "entries")),
        Part("positions", _mean(story, "positions")),
        Part("header, check, scale", _mean(story, "overhead")),
        Part("not used", _mean(story, "unused"), empty=True),
    ]
    alt = ", ".join(f"{part.name} {part.value / _mean(story, 'budget'):.1%}" for part in parts) + " of the budget."
    page.figures(
        [
            Chart("frame", "Where the bits of a frame go", alt, parts=parts,
                  note=f"Mean of {count:,} frames. The letter's formula gives "
                  f"{_mean(story, 'bound'):,.0f} bits for as many entries."),
            Chart("kept", "Entries kept for each particle", _range(story.kept), Axis("round", 0),
                  Axis("entries kept", 0), [Series("entries kept", story.rounds, story.kept)]),
            Chart("captured", "Share of the update that arrives", _range(story.captured), Axis("round", 0),
                  Axis("share of its energy", 0, 1), [Series("share", story.rounds, story.captured)]),
        ],
        "two",
    )  # fmt: skip


def _mean(story: _Story, name: str) -> float:
    if name == "budget":
        return sum(_mean(story, part) for part in ("entries", "positions", "overhead", "unused"))
    return story.bits[name] / story.bits["uploads"]


def _range(values: Sequence[float]) -> str:
    return f"From {min(values):.4g} to {max(values):.4g}, {values[-1]:.4g} in the last round."


def _agents(page: Page, config: Config, problem: Problem, particles: Tensor, story: _Story) -> None:
    agents = problem.agents
    if problem.remote:
        _remote_agents(page, problem, story)
        return
    page.section(
        "Agents",
        f"Accuracy and NLL are of the final particles, on up to {MOST_EXAMPLES:,} of each agent's own examples.",
    )
    classifier = problem.test is not None
    rows = []
    for agent, data in enumerate(agents[:MOST_AGENTS]):
        seen = story.agents.get(agent, _Agent())
        row: list[Any] = [agent, f"{len(data):,}"]
        if agent in problem.erased:
            row = [f"{agent}, erased", *["-"] * (4 if classifier else 1)]
            rows.append([*row, f"{seen.visits:,}", human_bytes(seen.bits), "-", "-"])
            continue
        if classifier:
            some = data.take(torch.arange(min(len(data), MOST_EXAMPLES)))
            probabilities = predict(problem.model, particles, some.x).probabilities
            classes = probabilities.shape[1]
            row += [_mix(data.y, class_names(config.data.name, classes))]
            row += [f"{accuracy(probabilities, some.y):.3f}", f"{nll(probabilities, some.y):.3f}"]
        share = f"{seen.captured / seen.visits:.3f}" if seen.visits else "-"
        rows.append([*row, f"{seen.visits:,}", human_bytes(seen.bits), share, seen.refused])
    words = ["its classes", "accuracy", "NLL"] if classifier else []
    page.add(table(["agent", "examples", *words, "visits", "sent up", "share that arrives", "refused"], rows))
    if config.method.central:
        page.add('<p class="note">This method is central: it pools the data of all agents, as one agent 0.</p>')
    if len(agents) > MOST_AGENTS:
        page.add(f'<p class="note">The first {MOST_AGENTS} of {len(agents):,} agents.</p>')


def _remote_agents(page: Page, problem: Problem, story: _Story) -> None:
    page.section("Agents", "Their data is with them: only what they have sent is known here.")
    rows = []
    for agent in range(min(len(problem.agents), MOST_AGENTS)):
        seen = story.agents.get(agent, _Agent())
        name = f"{agent}, erased" if agent in problem.erased else agent
        rows.append([name, f"{seen.visits:,}", human_bytes(seen.bits), seen.refused])
    page.add(table(["agent", "visits", "sent up", "refused"], rows))


def _mix(labels: Tensor, names: list[str]) -> Raw:
    """A small histogram of the classes that an agent holds."""
    counts = torch.bincount(labels, minlength=len(names)).tolist()
    held = [(name, count) for name, count in zip(names, counts, strict=True) if count]
    if len(names) > 30:
        return Raw(f"{len(held)} classes")
    words = ", ".join(f"{name} {count}" for name, count in held)
    bars = "".join(f'<i style="height:{100 * count / max(counts):.0f}%"></i>' for count in counts)
    return Raw(f'<span class="mix" role="img" aria-label="{html(words)}" title="{html(words)}">{bars}</span>')


def _provenance(page: Page, run: Path, config: Config, checkpoint: Checkpoint, story: _Story) -> None:
    page.section("How to repeat it")
    version = story.environment.get("fedstein")
    again = "# save the settings below as config.toml\nfedstein train config.toml --out again\n"
    if config.erasures and config.erasures[-1].start:
        last = config.erasures[-1]
        agents = ",".join(map(str, last.agents))
        again = (
            "# repeat the run that this one began from, as PARENT\n"
            f"fedstein forget PARENT --agents {agents} --method {last.method} --out again\n"
        )
    commands = (
        f"pip install fedstein{'' if version is None else f'=={version}'}\n"
        f"{again}sha256sum again/checkpoints/round-{checkpoint.round:06d}.safetensors"
    )
    page.add(
        '<div class="card">',
        code(commands),
        f"<p>On the same kind of machine, with the same versions and threads, the last line prints<br>"
        f'<code style="overflow-wrap:anywhere">{checkpoint.particles_sha256}</code></p>',
        f"<p>To look further: {_commands(run)}</p></div>",
        '<div class="two-columns"><div><h2>Settings</h2>',
        code(to_toml(config)),
        "</div><div><h2>Where it ran</h2>",
        table(["what", "version"], [(name, value) for name, value in story.environment.items()]),
        "<h2>What happened</h2>",
        table(["time, UTC", "event", ""], story.milestones[-20:]),
        f'<p class="note">{html(", ".join(f"{name} {count:,} times" for name, count in story.events.items()))}</p>',
        "</div></div>",
    )  # fmt: skip


def _commands(run: Path) -> Raw:
    words = [f"fedstein {verb} {shlex.quote(str(run))}" for verb in ("evaluate", "watch", "resume")]
    return Raw(", ".join(f"<code>{html(word)}</code>" for word in words))


def human_bytes(bits: float) -> str:
    """For people: 79,510 bits are 9.9 kB."""
    size = bits / 8
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1000
    raise AssertionError
