"""All that prints in a terminal. This module has what the commands share.

Nothing here, in `main` or in the modules of commands imports the library before a command runs: help must be quick.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pianissimo.errors import ParameterError, SpecError

if TYPE_CHECKING:
    from pianissimo.stream import StreamPlan
    from pianissimo.stream.spec import StreamSpec

PATH = click.Path(path_type=Path)
NUMBER = click.IntRange(min=1)

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else, on standard output.")


def named_place(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    """A folder or a URL as it is typed, or, of `env:NAME`, what that variable holds: `ps` shows what is typed."""
    if text is not None and text.endswith(".toml") and Path(text).is_file():
        folder = Path(text).with_suffix(".state")
        raise click.UsageError(
            f"a folder or a URL must be given, got the stream file {text}; it is kept in {folder} "
            "unless --state said another"
        )
    if text is None or not text.startswith("env:"):
        return text
    found = os.environ.get(text.removeprefix("env:"))
    if not found:
        raise click.UsageError(f"the variable {text.removeprefix('env:')} must hold a folder or a URL, got nothing")
    return found


state_argument = click.argument("state", metavar="DIR", callback=named_place)
secret_option = click.option(
    "--secret",
    metavar="PATH|env:NAME|command:WORDS",
    help="Where the secret of a durable stream is: a file, an environment variable, or a program that prints it.  "
    "[default: DIR.secret]",
)
witness_option = click.option(
    "--witness",
    type=PATH,
    help="The file that remembers the last tick that was released. Keep it on another disk.  [default: DIR.witness]",
)
ledger_option = click.option(
    "--ledger",
    metavar="PLACE",
    callback=named_place,
    help="The ledger that is charged: a file, the folder of a durable stream, or a postgresql:// URL.",
)
ledger_key_option = click.option(
    "--ledger-key", metavar="PATH", help="The file with the key of that ledger.  [default: beside the ledger]"
)
budget_epsilon_option = click.option(
    "--budget-epsilon",
    type=float,
    help="The epsilon that everything charged to this ledger may cost together, for ever. Needed for a new ledger.",
)
show_refused_option = click.option(
    "--show-refused",
    is_flag=True,
    help="Tell how many rows were refused, by reason: exact, not private, and for the owner's eyes only.",
)
budget_delta_option = click.option(
    "--budget-delta", type=float, help="The delta that goes with --budget-epsilon. Both are given together."
)


@contextmanager
def arguments() -> Iterator[None]:
    """What the library refuses in here came from an argument, which must be mended first."""
    try:
        yield
    except ParameterError as error:
        raise SpecError(str(error)) from error


def plan_of(spec: "StreamSpec", file: Path) -> "StreamPlan":
    """The plan of the stream in a file, which an error names."""
    try:
        return spec.stream.plan()
    except ParameterError as error:
        raise SpecError(f"{file}: {error}") from error


def echo_json(content: Any, indent: int | None = None) -> None:
    """Print plain data as JSON."""
    from pianissimo.stream.calendar import json_moment

    # As bytes: JSON is UTF-8, whatever the terminal's encoding is.
    click.echo(json.dumps(content, indent=indent, ensure_ascii=False, default=json_moment).encode())


def budget_given(epsilon: float | None, delta: float | None) -> tuple[float, float] | None:
    """The budget that two flags give together, or None."""
    if epsilon is not None and delta is not None:
        return epsilon, delta
    if epsilon is None and delta is None:
        return None
    raise click.UsageError("--budget-epsilon and --budget-delta must be given together, got one of them")
