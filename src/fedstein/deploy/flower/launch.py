"""Starting Flower's own commands: never with its telemetry or its look for updates."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from fedstein.errors import UserError

__all__ = ["command", "end_with_parent", "environment", "free_port", "run_app"]

SWITCHES = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """For every process of Flower that is started from here; it finds the commands of this environment first."""
    here = str(Path(sys.executable).parent)
    return {**os.environ, **SWITCHES, "PATH": f"{here}{os.pathsep}{os.environ.get('PATH', '')}", **(more or {})}


def command(name: str) -> str:
    """The path of one of Flower's commands."""
    path = shutil.which(name, path=environment()["PATH"])
    if path is None:
        raise UserError(f"The command '{name}' is not there: pip install 'fedstein[flower]'.")
    return path


def run_app(app: Path, superlink: str | None, settings: Mapping[str, str]) -> int:
    """`flwr run`, until it ends; what the run says goes to stderr."""
    given = [f'{key}="{value}"' for key, value in settings.items()]
    words = [command("flwr"), "run", str(app), *([superlink] if superlink else []), "--stream"]
    words += ["--run-config", " ".join(given)]
    return subprocess.run(words, env=environment(), stdout=sys.stderr, stderr=sys.stderr, check=False).returncode


def end_with_parent(number: int = signal.SIGTERM) -> None:
    """On Linux: this process is sent a signal when the one that started it ends, however that ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, number)  # PR_SET_PDEATHSIG


def free_port() -> int:
    """A port on loopback that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
