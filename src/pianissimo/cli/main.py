"""`pianissimo` in a terminal: the group of all commands, their exit codes, and what starts the program.

With `--json` standard output holds JSON and nothing else. A second SIGINT or SIGTERM ends the process by that signal.
"""

import io
import os
import sys
from pathlib import Path
from typing import Any

import click

import pianissimo
from pianissimo.cli import BadFileError
from pianissimo.cli.data_commands import budget, sketch, top_k
from pianissimo.cli.durable_commands import recover, rotate_secret, status, verify
from pianissimo.cli.stream_commands import audit, demo, plan, releases, run
from pianissimo.errors import InputError, LeaseError, PianissimoError, RefusalError, SpecError, StoreError

_EXIT_CODES = """\b
Exit codes:
  0  it is done, or it was told to stop
  1  an error that no other code names; for audit and budget: a promise or a ledger does not hold
  2  a file or an argument must be mended first; nothing was released
  3  a durable stream refuses to go on as it is; the message says what to type
  4  another process runs this stream
  5  the store cannot be read or written now; the same command may be tried again
"""


class _Stopped(click.ClickException):
    """A durable stream that does not go on."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        return self.code


class _Commands(click.Group):
    """Commands whose errors end as a message on standard error, not as a traceback."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except (SpecError, InputError) as error:
            raise BadFileError(str(error)) from error
        except (RefusalError, LeaseError, StoreError) as error:
            code = 3 if isinstance(error, RefusalError) else 4 if isinstance(error, LeaseError) else 5
            raise _Stopped(str(error), code) from error
        except PianissimoError as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EXIT_CODES)
@click.version_option(pianissimo.__version__, prog_name="pianissimo")
def cli() -> None:
    """Statistics of event streams, released again and again, under one privacy promise."""


for _command in (demo, plan, run, releases, status, verify, recover, rotate_secret, budget, top_k, sketch, audit):
    cli.add_command(_command)


def main() -> None:
    """Run the command line."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            # It was closed when this process was started. Its number must not be taken by a file that is opened next.
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # an old terminal shows "?" for a sign it does not have
    cli()
