"""A warm executor for a SuperNode: what an agent needs is loaded once, and every message gets a fork of it.

Flower starts a new Python for each message, which takes seconds to import torch. With `--isolation process` a SuperNode
leaves the starting to somebody else: to this. Each message still has a process of its own.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

__all__ = ["main"]


def main(address: str, secret_file: str) -> None:
    """Serve the SuperNode whose Runtime API is at `address`, until the process that started this one ends."""
    from flwr.supercore.superexec import run_superexec as superexec
    from flwr.supercore.superexec.executor.subprocess_executor import SubprocessExecutor
    from flwr.supercore.superexec.executor.types import LaunchResult
    from flwr.supernode.runtime.run_clientapp import run_clientapp

    import fedstein.deploy.flower.agent_store
    import fedstein.deploy.flower.client  # noqa: F401  (loaded before the first message comes)
    from fedstein.deploy.flower.launch import end_with_parent

    parent = os.getpid()

    class Forking(SubprocessExecutor):
        def launch(self, spec: Any) -> LaunchResult:
            if os.fork():
                return LaunchResult.accepted()
            code: Any = 1
            try:
                end_with_parent(signal.SIGKILL)  # without its node it would ask for its message for ever
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                run_clientapp(spec.runtime_api_address, spec.token, insecure=True, parent_pid=parent)
                code = 0
            except SystemExit as end:
                code = end.code
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code if isinstance(code, int) else 1)

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    setattr(superexec, "get_executor", lambda *_, **__: Forking())  # noqa: B010  (there is no option for it)
    secret = Path(secret_file).read_bytes()
    superexec.run_superexec(
        runtime_api_address=address, insecure=True, superexec_auth_secret=secret, parent_pid=os.getppid()
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
