"""The command `fedstein`: its verbs, and what becomes of errors.

Exit codes: 0 success, 2 a mistake in what the user gave, 1 anything else, 130 after Ctrl-C.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import Annotated

import typer

from fedstein.cli.audit import audit
from fedstein.cli.data import app as data_app
from fedstein.cli.evaluate import evaluate, predict
from fedstein.cli.export import export
from fedstein.cli.flower import app as flower_app
from fedstein.cli.forget import forget
from fedstein.cli.methods import components, methods
from fedstein.cli.plan import plan
from fedstein.cli.report import compare, report
from fedstein.cli.reproduce import reproduce
from fedstein.cli.sweep import sweep
from fedstein.cli.train import resume, train
from fedstein.cli.watch import watch
from fedstein.errors import FedsteinError, UserError
from fedstein.registry import whose_fault

__all__ = ["app", "main"]

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.command()(train)
app.command()(resume)
app.command()(forget)
app.command()(audit)
app.command()(evaluate)
app.command()(watch)
app.command()(report)
app.command()(compare)
app.command()(sweep)
app.command()(reproduce)
app.command()(predict)
app.command()(export)
app.command()(methods)
app.command()(components)
app.command()(plan)
app.add_typer(data_app, name="data")
app.add_typer(flower_app, name="flower")


def _print_version(wanted: bool) -> None:
    if wanted:
        from fedstein.version import __version__

        print(f"fedstein {__version__}")
        raise typer.Exit


@app.callback()
def _about(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Bayesian federated learning on thin uplinks."""


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    print(f"fedstein: {message}", file=sys.stderr)


def main() -> None:
    """Run the command line and exit."""
    warnings.showwarning = _show_warning
    try:
        code = app(standalone_mode=False)
    except (typer.Abort, KeyboardInterrupt):
        print("fedstein: stopped", file=sys.stderr)
        code = 130
    except UserError as error:
        print(f"fedstein: {error}", file=sys.stderr)
        code = 2
    except (FedsteinError, OSError) as error:
        print(f"fedstein: {error}", file=sys.stderr)
        code = 1
    except Exception as error:
        # typer's own usage errors know how to show themselves; their class has moved between its versions.
        if hasattr(error, "show"):
            error.show()
            code = 2
        elif os.environ.get("FEDSTEIN_TRACEBACK"):
            raise
        else:
            print(f"fedstein: unexpected {type(error).__name__}: {error}", file=sys.stderr)
            print(f"{whose_fault(error)} FEDSTEIN_TRACEBACK=1 shows where.", file=sys.stderr)
            code = 1
    sys.exit(code if isinstance(code, int) else 0)
