"""`python -m fedstein`, and the command `fedstein`: Ctrl-C ends it in one line from the first moment on."""

from __future__ import annotations

import os
import signal

__all__ = ["main"]


def leave_at_once(*_: object) -> None:
    """While imports are under way there is nothing to keep, and raising inside them would be swallowed, or worse."""
    os.write(2, b"fedstein: stopped\n")
    os._exit(130)


def main() -> None:
    """Run the command line and exit."""
    signal.signal(signal.SIGINT, leave_at_once)
    from fedstein.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
