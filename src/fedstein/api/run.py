"""A run: what it has learnt, what it cost, and what can be done with it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fedstein.api.arguments import PathLike, as_device, as_list, as_overrides, as_path, check_whole, maybe_path, refuse
from fedstein.api.giving import remember_given
from fedstein.api.showing import in_a_line, in_a_table
from fedstein.api.working import how_of, onlooker_of, train_in_memory
from fedstein.coding import Upload
from fedstein.deploy.flower.erasure import agents_by_name, federation_of, forget_in_federation, result_of
from fedstein.errors import UserError
from fedstein.metrics import ood_auroc
from fedstein.protocol.state import Metrics, State, Totals
from fedstein.runs import verbs
from fedstein.runs.audit.audit import audit_run
from fedstein.runs.audit.record import Audit
from fedstein.runs.evaluation import load_run, predict_raw, under_shifts
from fedstein.runs.folder import load_checkpoint, load_particles, load_state
from fedstein.runs.forget.complete import complete, is_done
from fedstein.runs.forget.request import ask
from fedstein.runs.forget.who import agents_meant
from fedstein.runs.given import Given
from fedstein.runs.judge import predict
from fedstein.runs.onlooker import Onlooker
from fedstein.runs.problem import Problem
from fedstein.runs.recorder import check_rounds
from fedstein.runs.training import Trained
from fedstein.runs.verbs import How
from fedstein.settings import MOST_ROUNDS, Config
from fedstein.store.lineage import Forgetting, Lineage, Side
from fedstein.store.metrics_log import read_metrics, told_in
from fedstein.trackers import Watcher

if TYPE_CHECKING:
    from fedstein.export import Exported

__all__ = ["Run", "remember", "run_of"]


class Run:
    """A run: what it has learnt, what it cost, and what can be done with it.

    `fedstein.train` and `fedstein.open` make one. With a folder (`path`) it survives this process; without one
    everything is in memory.
    """

    def __init__(
        self,
        config: Config,
        *,
        path: Path | None = None,
        lineage: Lineage = Lineage(),  # noqa: B008  (frozen)
        given: Given | None = None,
        trained: Trained | None = None,
        problem: Problem | None = None,
        result: Metrics | None = None,
    ) -> None:
        self.config, self.path, self.lineage = config, path, lineage
        self.result = {} if result is None else result
        self._given, self._trained, self._problem = given, trained, problem

    # What there is to see.

    @property
    def state(self) -> State:
        """All that the next round needs to know."""
        return load_state(self._folder("state")) if self._trained is None else self._trained.state

    @property
    def particles(self) -> Tensor:
        """The chains (N_p, d), after the last round."""
        return self.state.particles if self._trained is not None else load_particles(self._folder("particles"))

    @property
    def posterior(self) -> Tensor:
        """What predicts: the members (M, d), as the settings `posterior` make them of the chains' way."""
        return self._load()[1]

    @property
    def rounds(self) -> int:
        """How many are done."""
        if self._trained is not None:
            return self._trained.state.round
        return load_checkpoint(self._folder("rounds"))[0].round

    @property
    def trained_now(self) -> bool:
        """Whether this object has trained it, or only opened it."""
        return self._trained is not None

    @property
    def interrupted(self) -> bool:
        """Whether it was stopped before its rounds were done."""
        return self.rounds < self.config.rounds

    @property
    def totals(self) -> Totals:
        """What was sent up and down so far, in bits."""
        if self._trained is not None:
            return self._trained.totals
        return load_checkpoint(self._folder("totals"))[0].totals

    @property
    def history(self) -> list[Metrics]:
        """The metrics of every evaluated round."""
        if self.path is None:
            assert self._trained is not None
            return self._trained.history
        told = ("uploads", "total_uploads", "total_upload_bits", "total_download_bits", "total_refused")
        rows = [{key: value for key, value in line.items() if key not in told} for line in read_metrics(self.path)]
        return [row for row in rows if len(row) > 1]

    @property
    def metrics(self) -> Metrics:
        """The metrics of the last evaluated round; empty before there is one."""
        if self._trained is not None:
            return self._trained.metrics
        return next(reversed(self.history), {})

    @property
    def bills(self) -> list[Upload]:
        """The bill of every upload, in order; of the last round only where there is no folder."""
        if self.path is None:
            assert self._trained is not None
            return list(self._trained.told.uploads)
        return [upload for line in read_metrics(self.path) for upload in told_in(line).uploads]

    # What can be done with it.

    def predict(self, x: Any, name: str = "x") -> Any:
        """The mixture over all members, with aleatoric and epistemic uncertainty: of the likelihood's kind.

        Args:
            x: inputs (n, ...), scaled like the training data, or the path of an .npy of them; a frame of pandas or the
                path of a table, for a run of a table; a folder of images, an image or a list of them, for a run of
                images.
            name: what they are called in messages.
        """
        problem, members = self._load()
        return predict_raw(problem, members, x, self.config.data, name)

    def evaluate(
        self, split: str | None = None, *, shifts: bool = False, ood: Any = None, ood_name: str = "ood"
    ) -> Metrics:
        """Judge the members anew.

        Args:
            split: "test" or "validation"; that of the run's settings if left out.
            shifts: grey images also under noise, rotation and occlusion, and inputs from elsewhere (key `shifts`).
            ood: inputs from elsewhere, of any kind that `predict` takes: adds the AUROC with which uncertainty tells
                them apart.
            ood_name: what they are called in messages.

        Returns:
            Metrics by name.
        """
        if split not in (None, "test", "validation"):
            raise refuse("split", "'test' or 'validation'", split)
        problem, members = self._load(split)
        metrics = problem.evaluate(members)
        if ood is not None:
            if problem.judge.test is None or problem.inputs is None:
                raise UserError("The 'ood' needs inputs; this is a problem with a known posterior.")
            outside = predict_raw(problem, members, ood, self.config.data, ood_name)
            inside = predict(problem.task.model, members, problem.judge.test.x)
            if len(members) > 1 or not hasattr(inside, "entropy"):  # one network has no epistemic uncertainty
                metrics["ood_auroc_epistemic"] = ood_auroc(inside.doubt, outside.doubt)
            if hasattr(inside, "entropy"):
                metrics["ood_auroc_entropy"] = ood_auroc(inside.entropy, outside.entropy)
        return metrics | ({"shifts": under_shifts(problem, members)} if shifts else {})

    def resume(
        self,
        rounds: int | None = None,
        *,
        device: str | torch.device | None = None,
        engine: str = "local",
        workers: int | None = None,
        watchers: Sequence[Watcher] = (),
        progress: bool = True,
        onlooker: Onlooker | None = None,
    ) -> Run:
        """Go on after any stop; on a CPU like the first, the result is bit for bit that of an uninterrupted run.

        Args:
            rounds: extend the run to so many rounds in all.
            device: go on on this one instead of the run's own, with a warning if it is of another kind.
            engine: what carries the messages: ``local``, ``ray:auto``, ...
            workers: visits side by side, where the engine can.
            watchers: told after every round.
            progress: show a bar where somebody would see it.
            onlooker: looks on instead of a bar.

        Returns:
            The run as it is then. Without a folder it is a new one, and this one stays as it was.
        """
        how = how_of(
            engine=engine,
            workers=workers,
            watchers=watchers,
            progress=progress,
            onlooker=onlooker,
            device=as_device(device),
        )
        if rounds is not None:
            check_whole("rounds", rounds, 1, MOST_ROUNDS)
        if self.path is None and device is not None:
            raise UserError(
                "The 'device' of a run in memory stays as it is. Give fedstein.train an 'out' to change it."
            )
        if self.path is None:
            return self._resume_in_memory(rounds, how)
        filled = verbs.resume(self.path, rounds, self._given, how)
        return run_of(filled, self._given)

    def forget(
        self,
        agents: Sequence[int | str],
        method: Forgetting = "take-back",
        out: PathLike | None = None,
        *,
        by: Side | None = None,
        rounds: int | None = None,
        repair: int | None = None,
        handover: bool = True,
        guarded: bool = True,
        keep_parent: bool = False,
        overrides: Sequence[str] = (),
        flower: PathLike | None = None,
        superlink: str | None = None,
        engine: str = "local",
        workers: int | None = None,
        watchers: Sequence[Watcher] = (),
        progress: bool = True,
        onlooker: Onlooker | None = None,
    ) -> Run:
        """Make the model forget agents: a new run without them, and nothing left of them in this one.

        The request is on disk before anything else is done. After any stop, the same call goes on.

        Args:
            agents: who asked to be forgotten: their numbers, or their names where the data or a federation has any.
            method: "take-back", "forget-svgd" or "retrain".
            out: the run folder to make; RUN-without-2-3 if left out.
            by: take-back: the "server" from its escrow, or each "agent".
            rounds: in which the agents forget; chosen to suit if left out.
            repair: rounds of those that stay, after that.
            handover: what is taken back is shared out to those who stay; false subtracts it.
            guarded: false is Forget-SVGD as the letter writes it.
            keep_parent: purge nothing from this run; the audit says so.
            overrides: ``key=value`` of uplink, posterior, evaluation or recording, or ``device=...``.
            flower: the app of a Flower federation: its agents do it.
            superlink: with `flower`: which SuperLink of Flower's config.
            engine: what carries the messages.
            workers: visits side by side, where the engine can.
            watchers: told after every round.
            progress: show a bar where somebody would see it.
            onlooker: looks on instead of a bar.

        Returns:
            The new run.
        """
        path = self._folder("forget")
        how = how_of(engine=engine, workers=workers, watchers=watchers, progress=progress, onlooker=onlooker)
        app, target = maybe_path("flower", flower, "the folder of a Flower app"), maybe_path("out", out, "a new folder")
        overrides = as_overrides([overrides] if isinstance(overrides, str) else overrides)
        for name, number in (("rounds", rounds), ("repair", repair)):
            if number is not None:
                check_whole(name, number, 0, MOST_ROUNDS)
        for name, value in (("handover", handover), ("guarded", guarded), ("keep_parent", keep_parent)):
            if not isinstance(value, bool):
                raise refuse(name, "True or False", value)
        named = _agents(agents)
        identity = federation_of(path, app, superlink, keep_parent)
        who = agents_meant(path, named, self._given) if identity is None else agents_by_name(named, identity)
        target = _beside(path, who) if target is None else target
        options: dict[str, Any] = {
            "by": by, "rounds": rounds, "repair": repair, "handover": handover, "guarded": guarded,
            "keep_parent": keep_parent, **({"overrides": overrides} if overrides else {}),
        }  # fmt: skip
        request = ask(path, who, method, target, self._given, **options)
        how.onlooker.say(request.words())
        after = Run(request.config, path=request.out, lineage=request.lineage, given=self._given)
        if identity is not None and app is not None:
            after.result = forget_in_federation(request, identity, app, superlink)
            return after
        if is_done(request.out):
            complete(request.out)
            after.result = result_of(request.out)
            return remember(after)
        return run_of(verbs.forget(request, self._given, how), self._given)

    def audit(
        self,
        tier: str = "quick",
        data: PathLike | None = None,
        *,
        progress: bool = True,
        onlooker: Onlooker | None = None,
    ) -> Audit:
        """Compare a run that forgot with models that never knew, and write RUN/audit/audit.json and audit.html.

        Args:
            tier: "quick" retrains three models, "full" five and 16 shadow models.
            data: the folder with the agents' files, where the server does not have them.
            progress: show bars where somebody would see them.
            onlooker: looks on instead of a bar.

        Returns:
            Its checks, and the verdict: that of the worst of them.
        """
        from fedstein.report import write_audit

        if not isinstance(tier, str):
            raise refuse("tier", "'quick' or 'full'", tier)
        folder = maybe_path("data", data, "the folder with the agents' files")
        audit = audit_run(self._folder("audit"), tier, onlooker_of(progress, onlooker), folder, self._given)
        write_audit(audit)
        return audit

    def report(self, out: PathLike | None = None) -> Path:
        """Write one HTML file that tells the story of the run, and its figures; RUN/report.html if left out."""
        from fedstein.report import write_report

        return write_report(self._folder("report"), maybe_path("out", out, "an HTML file"), self._given).page

    def export(self, folder: PathLike) -> Exported:
        """Write what was learnt in files that need no fedstein: state_dicts, programs of the mixture, a model card.

        Args:
            folder: to make; it must be new or empty.

        Returns:
            What was written; where a program is missing, `why`.
        """
        from fedstein.export import export_run

        return export_run(self._folder("export"), as_path("folder", folder, "a new folder"), self._given)

    # How it shows itself.

    def __repr__(self) -> str:
        return in_a_line(self)

    def _repr_html_(self) -> str:
        return in_a_table(self)

    # Inside.

    def _folder(self, verb: str) -> Path:
        if self.path is None:
            raise UserError(f"The '{verb}' needs a run folder: give fedstein.train an 'out'.")
        return self.path

    def _load(self, split: str | None = None) -> tuple[Problem, Tensor]:
        """The problem and the members; those in memory if they are there."""
        if self._problem is not None and self._trained is not None and split in (None, self.config.evaluation.split):
            return self._problem, self._trained.members
        if self.path is None:
            raise UserError(f"The 'split' must be '{self.config.evaluation.split}' here. Got {split!r} instead.")
        loaded = load_run(self.path, split, self._given)
        return loaded.problem, loaded.members

    def _resume_in_memory(self, rounds: int | None, how: How) -> Run:
        assert self._trained is not None
        assert self._problem is not None
        done = self._trained.state.round
        wanted = self.config.rounds if rounds is None else rounds
        check_rounds(wanted, done, self.config.rounds)
        config = self.config.lengthened(wanted)
        history = self._trained.history if self._trained.history[-1]["round"] == done else []
        trained = train_in_memory(config, self.lineage, self._problem, how, self._given, self._trained)
        trained.history = [*history, *(line for line in trained.history if line["round"] > done)]
        return Run(config, lineage=self.lineage, given=self._given, trained=trained, problem=self._problem)


def run_of(filled: verbs.Filled, given: Given | None) -> Run:
    """The run of a folder that was just filled."""
    return remember(
        Run(
            filled.config,
            path=filled.path,
            lineage=filled.lineage,
            given=given,
            trained=filled.trained,
            problem=filled.problem,
            result=filled.result,
        )
    )


def remember(run: Run) -> Run:
    """The same run, and what it was given is known to `open` from now on."""
    if run.path is not None and run._given is not None:
        remember_given(run.path, run._given)
    return run


def _agents(agents: Any) -> list[int | str]:
    """Who is named, by numbers or by names; which of them there are is not known here."""
    wanted = "a list of their numbers, for instance [2, 3], or of their names where they have any"
    named: list[int | str] = as_list("agents", agents, wanted)
    if not all(type(agent) in (int, str) for agent in named):
        raise refuse("agents", wanted, agents)
    return named


def _beside(path: Path, agents: Sequence[int]) -> Path:
    return path.resolve().with_name(f"{path.resolve().name}-without-{'-'.join(map(str, agents))}")
