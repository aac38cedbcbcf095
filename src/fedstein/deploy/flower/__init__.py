"""fedstein as a Flower app, for agents on machines of their own (`fedstein[flower]`); docs/between-machines.md.

The app that `fedstein flower init` writes imports nothing but these two. Each imports its own end only when it is
made: without the extra, the rest of fedstein works, and an agent never loads the server.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp

__all__ = ["client_app", "server_app"]


def client_app(folder: Path) -> ClientApp:
    """The agent's end of the app in `folder`."""
    from fedstein.deploy.flower.client import client_app as make

    return make(folder)


def server_app(folder: Path) -> ServerApp:
    """The server's end of the app in `folder`."""
    from fedstein.deploy.flower.server import server_app as make

    return make(folder)
