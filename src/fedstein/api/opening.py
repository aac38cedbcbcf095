"""Opening a run that is in a folder; runs beside each other, and many at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import nn

from fedstein.api.arguments import PathLike, as_list, as_path, refuse
from fedstein.api.giving import given_to, take
from fedstein.api.run import Run, remember
from fedstein.api.working import check_workers
from fedstein.data import Held
from fedstein.devices import device_or_cpu
from fedstein.errors import UserError
from fedstein.inference import GaussianPrior, Prior
from fedstein.likelihoods import Likelihood
from fedstein.models import Loss, cross_entropy
from fedstein.runs.folder import lineage_of, load_run_config
from fedstein.runs.given import check_given

if TYPE_CHECKING:
    from fedstein.report import Comparison
    from fedstein.sweeps import Sweep

__all__ = ["compare", "open", "sweep"]


def open(
    path: PathLike,
    *,
    careful: bool = True,
    module: nn.Module | None = None,
    agents: Sequence[Any] | Held | None = None,
    test: Any = None,
    loss: Loss = cross_entropy,
    likelihood: Likelihood | None = None,
    prior: Prior | None = None,
) -> Run:
    """A run that is in a folder.

    Args:
        path: the folder.
        careful: warn if its config was edited since it began.
        module: for a run of `fedstein.train`: the same module again, checked by its structure. In the process that
            has trained it, it need not be given.
        agents: the same data again; None for an agent that was erased.
        test: the same test data again.
        loss: the same loss again.
        likelihood: the same likelihood again; that of the run's config if left out.
        prior: the same prior again, where it was not Gaussian.
    """
    path = as_path("path", path, "a run folder")
    config, lineage = load_run_config(path, careful), lineage_of(path)
    given = given_to(path) if config.is_given else None
    if (module is None) != (agents is None):
        raise UserError("Give both 'module' and 'agents', or neither.")
    if module is None and (test is not None or prior is not None or loss is not cross_entropy):
        raise UserError("The 'test', 'loss' and 'prior' need 'module' and 'agents' beside them. Give these as well.")
    if module is not None and agents is not None:
        if not config.is_given:
            raise UserError(f"The run '{path}' was made from settings alone: it needs no 'module' and no 'agents'.")
        if isinstance(prior, GaussianPrior) and prior.std != config.prior.std:
            raise UserError(f"The 'prior' must be the run's, of std {config.prior.std:g}. Got {prior.std:g} instead.")
        meant = loss if loss is not cross_entropy else config.likelihood if likelihood is None else likelihood
        model, names, device = config.model, config.data.class_names, device_or_cpu(config.device)
        given = take(module, agents, test, meant, prior, model.precision, model.way, names, device)
        if len(given.agents) != config.data.agents:
            raise UserError(f"The 'agents' must be {config.data.agents} data sets. Got {len(given.agents)}.")
    if given is not None:  # also what this process remembers: the folder may be another one by now
        check_given(path, given, config, lineage.erased)
    return remember(Run(config, path=path, lineage=lineage, given=given, result={}))


def compare(runs: Sequence[Run | PathLike], out: PathLike = "comparison.html") -> Comparison:
    """Write one HTML file that overlays runs, and its figures; those that differ only in the seed are one setting."""
    from fedstein.report import write_comparison

    listed = as_list("runs", runs, "a list of runs or of run folders")
    folders = [
        run._folder("compare") if isinstance(run, Run) else as_path(f"runs[{number}]", run, "a run or a run folder")
        for number, run in enumerate(listed)
    ]
    return write_comparison(folders, as_path("out", out, "an HTML file"))


def sweep(
    table: Mapping[str, Any] | PathLike, out: PathLike, *, workers: int | None = None, ray: str | None = None
) -> Sweep:
    """Do many runs, side by side; given again, it goes on with what is left, and a failed run stops no other.

    Args:
        table: as in SWEEP.toml (docs/sweeps.md), or that file.
        out: where the run folders go.
        workers: runs side by side; one a core if left out.
        ray: the address of a Ray cluster.
    """
    from fedstein.sweeps import run_sweep

    source = table if isinstance(table, Mapping) else as_path("table", table, "a table, or a TOML file")
    check_workers(workers)
    if ray is not None and not isinstance(ray, str):
        raise refuse("ray", "an address: 'auto', 'local' or 'HOST:PORT'", ray)
    return run_sweep(source, as_path("out", out, "a folder"), workers=workers, ray=ray)
