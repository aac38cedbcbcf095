"""The whole thing on one machine: separate processes, folders and keys, as it would be between machines.

Certificates, a SuperLink, three agents with their own data, training within a budget, an erasure by the agent itself,
an audit, and a comparison with the same in one process: the particles must be the same, bit for bit.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from fedstein.deploy.flower.keys import make_agent_key, make_certificates
from fedstein.deploy.flower.launch import command, environment, free_port
from fedstein.errors import UserError

__all__ = ["Federation", "federation", "run_trial"]

Say = Callable[[str], None]


class Federation:
    """A SuperLink and the nodes that were started here; every process is a child of this one."""

    def __init__(self, folder: Path, simulated: bool = False) -> None:
        self.folder, self.simulated = folder, simulated
        self.port = free_port()
        self.keys = folder / "keys"
        self.home = folder / "flwr"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        if not simulated:
            make_certificates(self.keys, ["localhost", "127.0.0.1"])
        self.home.mkdir(parents=True)
        trust = "insecure = true" if simulated else f'root-certificates = "{self.keys / "ca.crt"}"'
        (self.home / "config.toml").write_text(
            f'[superlink]\ndefault = "trial"\n\n[superlink.trial]\naddress = "127.0.0.1:{self.port}"\n{trust}\n'
        )

    def start_link(self) -> None:
        """The SuperLink on loopback, with TLS, authentication and a database; a simulation needs none of them."""
        if self.simulated:
            words = ["flower-superlink", "--host", "127.0.0.1", "--port", str(self.port), "--insecure", "--simulation"]
            self.start("superlink", [*words, "--disable-runtime-dependency-installation"])
            self.wait_for_port()
            return
        words = ["flower-superlink", "--host", "127.0.0.1", "--port", str(self.port), "--enable-supernode-auth"]
        words += ["--ssl-ca-certfile", "keys/ca.crt", "--ssl-certfile", "keys/server.crt"]
        words += ["--ssl-keyfile", "keys/server.key", "--database", "link.db"]
        self.start("superlink", [*words, "--disable-runtime-dependency-installation"])
        self.wait_for_port()

    def register(self, name: str) -> None:
        """Make an agent's key, and let the SuperLink know it under the agent's name."""
        make_agent_key(self.keys, name)
        self.flwr("supernode", "register", f"keys/{name}.pub", "trial", "--name", name)

    def start_node(self, name: str, data: Path, modules: Sequence[str] = ()) -> None:
        """An agent: its own key, its own data, its own folder, and the networks by name that it lets run."""
        words = [sys.executable, "-m", "fedstein", "flower", "node", "--agent", name, "--data", str(data)]
        words += ["--state", f"state/{name}", "--superlink", f"127.0.0.1:{self.port}"]
        words += [word for module in modules for word in ("--module", module)]
        self.start(name, [*words, "--ca", "keys/ca.crt", "--key", f"keys/{name}"])

    def start(self, name: str, words: Sequence[str]) -> None:
        """A process of the trial; what it says goes to a log file."""
        words = [command(words[0]) if os.sep not in words[0] else words[0], *words[1:]]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                words, cwd=self.folder, env=self.environment(), stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def flwr(self, *words: str, check: bool = True) -> str:
        """One of Flower's own commands; what it prints."""
        return self.run([command("flwr"), *words], check)

    def fedstein(self, *words: str | Path, check: bool = True) -> str:
        """One of ours."""
        return self.run([sys.executable, "-m", "fedstein", *map(str, words)], check)

    def run(self, words: Sequence[str], check: bool) -> str:
        """A command in the trial's folder."""
        done = subprocess.run(
            words, cwd=self.folder, env=self.environment(), capture_output=True, text=True, check=False
        )
        if check and done.returncode:
            raise UserError(f"{' '.join(words[:4])} has failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        return done.stdout

    def environment(self) -> dict[str, str]:
        """A home of Flower's own, and one thread, so that results can be compared bit for bit."""
        return environment({"FLWR_HOME": str(self.home), "OMP_NUM_THREADS": "1"})

    def wait_for_port(self, seconds: float = 60.0) -> None:
        """Until the SuperLink listens."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.processes["superlink"].poll() is not None:
                break
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.2)
        raise UserError(f"The SuperLink does not listen; look at {self.folder / 'superlink.log'}.")

    def stop(self) -> None:
        """End what was started here."""
        for process in reversed(list(self.processes.values())):
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def federation(folder: Path, simulated: bool = False) -> Iterator[Federation]:
    """A trial's processes; they end with the block."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"The 'DIR' must be a new or empty folder. Got {str(folder)!r}.")
    folder.mkdir(parents=True, exist_ok=True)
    here = Federation(folder.resolve(), simulated)
    with ExitStack() as stack:
        stack.callback(here.stop)
        yield here


def run_trial(folder: Path, names: Sequence[str], overrides: Sequence[str], say: Say) -> dict[str, Any]:
    """Everything, once; what came of it."""
    with federation(folder) as here:
        began = time.monotonic()

        def tell(text: str) -> None:
            say(f"{time.monotonic() - began:6.1f} s  {text}")

        sets = [word for override in overrides for word in ("--set", override)]
        here.fedstein("data", "split", "data", "--set", f"data.agents={len(names)}", *sets)
        (here.folder / "server").mkdir()
        (here.folder / "data" / "test.npz").rename(here.folder / "server" / "test.npz")
        tell(f"data: one file for each of {len(names)} agents; the server has test.npz only")
        own = [override for override in overrides if not override.startswith("data.")]
        own += ["data.name=folder", f"data.path={here.folder / 'server'}"]
        app = ["flower", "init", "app", "--agents", ",".join(names), "--run", "server/run"]
        here.fedstein(*app, *(word for override in own for word in ("--set", override)))
        tell("app: written by fedstein flower init")
        here.start_link()
        for name in names:
            here.register(name)
        tell("SuperLink: TLS and authentication; each agent's key is registered under its name")
        for number, name in enumerate(names):
            here.start_node(name, here.folder / "data" / f"agent-{number}.npz")
        before = time.monotonic()
        here.flwr("run", "app", "trial", "--stream")
        run = here.folder / "server" / "run"
        result = json.loads((run / "result.json").read_text())
        seconds = (time.monotonic() - before) / result["rounds"]
        tell(
            f"trained: {result['rounds']} rounds, {seconds:.1f} s each; accuracy {result['accuracy']:.4f}, "
            f"the largest upload {result['max_upload_bits']:,} of {result['budget_bits']:,} bits"
        )
        leaving = names[-1]
        forget = ["--agents", str(len(names) - 1), "--method", "take-back", "--by", "agent", "--json"]
        forgot = json.loads(
            here.fedstein("forget", run, *forget, "--out", "server/after", "--flower", "app", "--superlink", "trial")
        )
        tell(
            f"forgot {leaving}: {forgot['rounds']} rounds; the agent "
            + ("has confirmed that its memory is deleted" if forgot["confirmed"] else "has NOT confirmed")
        )
        left = sorted(file.name for file in (here.folder / "state" / leaving).rglob("*.safetensors"))
        tell(f"left of it on its own disk: {len(left)} files of memory")
        here.fedstein("flower", "purge", "link.db")
        tell("purged: what the SuperLink's database had deleted")
    (folder / "server" / "test.npz").rename(folder / "data" / "test.npz")
    here.fedstein("train", "server/run/config.toml", "--set", f"data.path={here.folder / 'data'}", "--out", "one/run")
    here.fedstein("forget", "one/run", *forget, "--out", "one/after", "--keep-parent")
    same = _same(here.folder / "server" / "after", here.folder / "one" / "after")
    tell(f"in one process: {'the same particles, bit for bit' if same else 'OTHER particles'}")
    audit = json.loads(here.fedstein("audit", "server/after", "--data", "data", "--json"))
    tell(
        f"audit: {audit['verdict']}, {sum(check['status'] == 'pass' for check in audit['checks'])} of "
        f"{len(audit['checks'])} checks passed; {audit['report']}"
    )
    return {
        "folder": str(here.folder),
        "same": same,
        "seconds_a_round": seconds,
        "accuracy": result["accuracy"],
        "max_upload_bits": result["max_upload_bits"],
        "budget_bits": result["budget_bits"],
        "confirmed": forgot["confirmed"],
        "audit": audit["verdict"],
    }


def _same(one: Path, other: Path) -> bool:
    newest = [sorted((run / "checkpoints").glob("*.safetensors"))[-1] for run in (one, other)]
    return newest[0].name == newest[1].name and newest[0].read_bytes() == newest[1].read_bytes()
