"""An agent's machine: a SuperNode and its executor, started again whenever one of them ends.

A SuperNode that was killed is refused until its last heartbeat has lapsed, and exits: someone has to try again.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from fedstein.by_name import origin
from fedstein.data import load_own
from fedstein.deploy.flower.keys import check_name
from fedstein.deploy.flower.launch import command, end_with_parent, environment, free_port
from fedstein.devices import device_here
from fedstein.errors import UserError
from fedstein.models.named import importable
from fedstein.store.lock import take_lock

__all__ = ["Node", "serve_node"]

PAUSE = 5.0  # seconds before what has ended is started again
POLL = 0.25  # seconds between the executor's looks for a message: each costs its machine a request


@dataclass(frozen=True)
class Node:
    """Who an agent is, what it has, and whom it works for."""

    agent: str
    data: Path
    state: Path
    superlink: str
    ca: Path | None  # None: without TLS, for trials only
    key: Path | None
    modules: tuple[str, ...] = ()  # networks by name that the server may ask for
    device: str = "cpu"  # on which it computes


def serve_node(node: Node, say: Callable[[str], None]) -> None:
    """Take part, until SIGTERM or Ctrl-C."""
    check_name(node.agent)
    for word, path in (("--data", node.data), ("--ca", node.ca), ("--key", node.key)):
        if path is not None and not path.is_file():
            raise UserError(f"The '{word}' must be a file. Got {str(path)!r}.")
    if (node.ca is None) != (node.key is None):
        raise UserError("The '--ca' and '--key' must be given both: a key is only shown over TLS.")
    host, _, port = node.superlink.rpartition(":")
    if not host or not port.isdecimal() or "/" in node.superlink:
        raise UserError(f"The '--superlink' must be HOST:PORT. Got {node.superlink!r}.")
    device = device_here(node.device)
    own = load_own(node.data)  # what is wrong with it is told here, and not only when the first order comes
    say(f"agent {node.agent}: {len(own):,} examples of shape {tuple(own.x.shape[1:])} in {node.data}")
    if device.type != "cpu":
        say(f"agent {node.agent}: computes on {device}")
    for name in node.modules:
        importable(name)
        say(f"agent {node.agent}: lets the server use '{name}', from {origin(name).file}")
    address = f"127.0.0.1:{free_port()}"
    secret = node.state / "executor.secret"
    words = {
        "executor": [sys.executable, "-m", "fedstein.deploy.flower.executor", address, str(secret)],
        "SuperNode": _supernode(node, address, secret),
    }
    try:
        node.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise UserError(f"The '--state' must be a folder. Got {str(node.state)!r}: {error.strerror}.") from error
    lock = take_lock(node.state)
    secret.unlink(missing_ok=True)
    with os.fdopen(os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secrets.token_hex(32).encode())
    stop = _Stop()
    running: dict[str, subprocess.Popen[bytes]] = {}
    again = dict.fromkeys(words, 0.0)
    try:
        while not stop.asked:
            for name, line in words.items():
                if name in running and (code := running[name].poll()) is not None:
                    say(f"the {name} of agent {node.agent} has ended (code {code}): it is started again")
                    del running[name]
                    again[name] = time.monotonic() + PAUSE
                if name not in running and time.monotonic() >= again[name]:
                    more = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": str(POLL)}
                    running[name] = subprocess.Popen(line, env=environment(more), preexec_fn=end_with_parent)
            time.sleep(0.2)
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
        secret.unlink(missing_ok=True)
        os.close(lock)


def _supernode(node: Node, address: str, secret: Path) -> list[str]:
    plain = [("--agent", node.agent), ("--data", str(node.data)), ("--state", str(node.state))]
    for word, value in [*plain, *(("--module", name) for name in node.modules)]:
        if set(value) & set('"\\\n ') or not value.isprintable():
            raise UserError(f"The '{word}' must be plain text without spaces or quotes. Got {value!r}.")
    host, port = address.split(":")
    words = [command("flower-supernode"), "--superlink", node.superlink, "--isolation", "process"]
    words += ["--host", host, "--port", port, "--superexec-auth-secret-file", str(secret)]
    data, state = node.data.resolve(), node.state.resolve()
    modules = f' modules="{",".join(node.modules)}"' if node.modules else ""
    words += ["--node-config", f'agent="{node.agent}" data="{data}" state="{state}" device="{node.device}"{modules}']
    if node.ca is None or node.key is None:
        return [*words, "--insecure"]
    return [*words, "--root-certificates", str(node.ca), "--auth-supernode-private-key", str(node.key)]


class _Stop:
    def __init__(self) -> None:
        self.asked = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
