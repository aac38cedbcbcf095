"""`python -m fedstein.sweeps.work`: the process of one step. A JSON object comes in, one JSON line goes out.

    in     {"folder": ..., "train": config}    or    {"folder": ..., "forget": {"parent": ..., "agents": [...], ...}}
    out    {"status": "finished" | "interrupted" | "diverged" | "failed" | "refused", "reason": "..."}

Whoever started it acts on the status; the reason is for people. SIGTERM and Ctrl-C end it after its round, as they do
with `fedstein train`.
"""

from __future__ import annotations

import os
import shutil
import sys
import traceback

from fedstein.errors import DivergedError, FedsteinError, UserError
from fedstein.registry import whose_fault
from fedstein.runs import verbs
from fedstein.runs.folder import is_half_made
from fedstein.runs.forget.request import ask
from fedstein.runs.stopping import StopAfterRound
from fedstein.store import in_use
from fedstein.sweeps.jobs import Ending
from fedstein.sweeps.steps import Forget, Step

__all__ = ["do_step", "main"]

_CODES = {"finished": 0, "interrupted": 130, "refused": 2}  # as those of the command; anything else is 1


def do_step(step: Step, how: verbs.How = verbs.How()) -> Ending:  # noqa: B008  (frozen)
    """Begin a step or go on with it, in this process. Whatever becomes of it is an ending: nothing is raised."""
    try:
        filled = _fill(step, how)
        return Ending("interrupted" if filled.trained.interrupted else "finished")
    except KeyboardInterrupt:
        return Ending("interrupted")
    except UserError as error:
        return Ending("refused", str(error))
    except DivergedError as error:
        return Ending("diverged", str(error))
    except (FedsteinError, OSError) as error:
        return Ending("failed", str(error) or type(error).__name__)
    except Exception as error:
        traceback.print_exc()
        return Ending("failed", f"unexpected {type(error).__name__}: {error}. {whose_fault(error)}")


def _fill(step: Step, how: verbs.How) -> verbs.Filled:
    if isinstance(step.work, Forget):
        work = step.work
        return verbs.forget(ask(work.parent, work.agents, work.method, step.folder, **work.options), how=how)
    if (step.folder / "config.toml").is_file():
        return verbs.resume(step.folder, how=how)
    if in_use(step.folder):
        raise UserError(f"The folder {step.folder} is in use by another process.")
    if is_half_made(step.folder):
        shutil.rmtree(step.folder)
    return verbs.train(step.work, step.folder, how=how)


def _say(text: str) -> None:
    print(f"fedstein: {text}", file=sys.stderr)


def main() -> int:
    """Do what standard input says."""
    # The line is all that may be on standard output, whatever a library prints.
    line = os.dup(1)
    os.dup2(2, 1)
    try:
        step = Step.from_json(sys.stdin.read())
    except UserError as error:
        ending = Ending("refused", str(error))
    else:
        stop = StopAfterRound(_say, begun=(step.folder / "config.toml").is_file)
        ending = do_step(step, verbs.How(watchers=(stop,)))
    os.write(line, ending.to_json().encode() + b"\n")
    return _CODES.get(ending.status, 1)


if __name__ == "__main__":
    sys.exit(main())
