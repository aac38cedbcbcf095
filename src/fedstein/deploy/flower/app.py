"""The app that `fedstein flower init` writes: thin, because what Flower ships wins over what is installed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedstein.errors import UserError
from fedstein.settings import Config, to_toml

__all__ = ["write_app"]

_PYPROJECT = """\
# A Flower app that imports the installed fedstein. Run it with: flwr run {folder} SUPERLINK --stream
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "fedstein-app"
version = "1.0.0"
description = "Bayesian federated learning within a bit budget, with erasure"
license = "Apache-2.0"
dependencies = []  # fedstein[flower] must be installed on every machine: nothing is installed when a run begins

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "fedstein"

[tool.flwr.app.components]
serverapp = "fedstein_app:server"
clientapp = "fedstein_app:client"

# Override any of these with: flwr run ... --run-config 'deadline=60.0 set="rounds=50"'
[tool.flwr.app.config]
run = "{run}"  # the run folder, on the server's machine; a run that is there is gone on with
agents = "{agents}"  # their names, in order, as their SuperNodes were registered; empty in a simulation
state = "{state}"  # simulations only: where the simulated agents live
deadline = 600.0  # seconds that a round waits for its agents
retries = 3  # how often an agent that failed is asked again in a round
set = ""  # overrides of config.toml: "rounds=50 uplink.budget=0.5d"
"""

_APP = '''\
"""Both ends of the federation. What they do is in the installed fedstein; config.toml says with which settings."""

from pathlib import Path

from fedstein.deploy.flower import client_app, server_app

client = client_app(Path(__file__).parent)
server = server_app(Path(__file__).parent)
'''


def write_app(folder: Path, config: Config, agents: Sequence[str], run: Path) -> list[Path]:
    """Write a Flower app into a new folder; the files."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"The 'DIR' must be a new or empty folder. Got {str(folder)!r}.")
    run = run.resolve()
    if set(str(run)) & set('"\\\n'):
        raise UserError(f"The '--run' must be a plain path. Got {str(run)!r}.")
    folder.mkdir(parents=True, exist_ok=True)
    state = run.with_name(f"{run.name}-agents")
    content = {
        "pyproject.toml": _PYPROJECT.format(folder=folder.name, run=run, agents=",".join(agents), state=state),
        "fedstein_app.py": _APP,
        "config.toml": to_toml(config),
    }
    for name, text in content.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in content]
