"""`pianissimo sketch`: build a sketch of a file, merge sketches, release one, and say what one is."""

import json
from pathlib import Path
from typing import Any, get_args

import click
import polars as pl
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pianissimo.errors import InputError, ParameterError
from pianissimo.io.sketch_files import (
    FileKeys,
    FileRelease,
    build_sketch,
    check_new,
    inherit_marks,
    marks_of,
    merge_sketches,
    read_sketch,
    release_file,
    write_refused,
    write_sketch,
)
from pianissimo.sketches import AnySketch, MergedSketch, PrivacyAwareMisraGries

_WIDTH_WITHOUT_TERMINAL = 120
_PATH = click.Path(path_type=Path)
_SHOWN_STREAMS = 20

_json_option = click.option("--json", "as_json", is_flag=True, help="JSON alone on standard output.")
_out_option = click.option("-o", "--out", type=_PATH, required=True, help="The new sketch file.")


@click.group()
def sketch() -> None:
    """The heavy keys of files in small memory: build, merge, release.

    A sketch file holds exact counts: it is as secret as the rows. What is released may be published.
    """


@sketch.command()
@click.argument("file", type=_PATH)
@click.option("--key", required=True, help="The column of keys.")
@click.option("-k", type=click.IntRange(min=1), default=1024, show_default=True, help="How many counters.")
@click.option("--sets", is_flag=True, help="A row is a set of keys, and a release hides a whole row.")
@click.option("--keys", type=click.Choice(get_args(FileKeys)), default="text", show_default=True, help="Their type.")
@click.option("--name", default="", help="What the stream is called in the lineage.")
@_out_option
@_json_option
def build(*, file: Path, key: str, k: int, sets: bool, keys: FileKeys, name: str, out: Path, as_json: bool) -> None:
    """Count the keys of FILE, a CSV, JSONL or Parquet file.

    Rows that cannot be counted go to a file beside the sketch, with line and reason and nothing of what they hold.
    """
    check_new(out)
    try:
        built = build_sketch(file, key=key, k=k, sets=sets, keys=keys, name=name)
    except ParameterError as error:
        raise InputError(str(error)) from error
    write_sketch(out, built.sketch)
    refused = write_refused(out, built.refused)
    if as_json:
        _echo_json({"sketch": str(out), "refused": None if refused is None else str(refused)})
        return
    click.echo(f"{out} holds the sketch; it is as secret as {file}")
    if refused is not None:
        click.echo(f"Rows were refused; see {refused}")


@sketch.command()
@click.argument("files", type=_PATH, nargs=-1, required=True)
@_out_option
@_json_option
def merge(*, files: tuple[Path, ...], out: Path, as_json: bool) -> None:
    """Merge the sketches in FILES, one after the other in the order given.

    Choose the order before the data: not by sizes, and with an empty sketch for a stream without rows.
    """
    check_new(out)
    if len(files) < 2:
        raise click.UsageError("FILES must be at least two sketches, got one")
    merged = merge_sketches(files)
    inherit_marks(files, merged, out)
    write_sketch(out, merged)
    if as_json:
        _echo_json({"sketch": str(out), "streams": len(merged.lineage.sources)})
    else:
        click.echo(f"{out} holds the merge of {len(merged.lineage.sources)} streams")


@sketch.command()
@click.argument("file", type=_PATH)
@click.option("--epsilon", type=float, required=True, help="Of this release.")
@click.option("--delta", type=float, required=True, help="Of this release.")
@click.option("--coverage", type=float, default=0.95, show_default=True, help="The chance that all bars hold.")
@click.option("--ledger", help="A file or a postgresql:// URL that the release is charged to.")
@click.option("--budget", type=(float, float), metavar="EPSILON DELTA", help="Of all releases; makes a new ledger.")
@_json_option
def release(
    *,
    file: Path,
    epsilon: float,
    delta: float,
    coverage: float,
    ledger: str | None,
    budget: tuple[float, float] | None,
    as_json: bool,
) -> None:
    """Publish the heavy keys of the sketch in FILE.

    The first release leaves a mark beside FILE. A second one, of the sketch or of one that shares a stream with it, is
    refused unless it is charged to a ledger.
    """
    if budget is not None and ledger is None:
        raise click.UsageError("--budget must be given together with --ledger, got it alone")
    try:
        released = release_file(file, epsilon=epsilon, delta=delta, coverage=coverage, ledger=ledger, budget=budget)
    except ParameterError as error:
        raise InputError(str(error)) from error
    if as_json:
        _echo_json(released.to_dict())
        return
    console = _console()
    title = f"{file}: heavy keys at ({released.epsilon:g}, {released.delta:g})-differential privacy"
    console.print(Text(title, style="bold"), _release_table(released))
    console.print(Text("\n".join(["", *_release_notes(released)])))


@sketch.command()
@click.argument("file", type=_PATH)
@_json_option
def info(*, file: Path, as_json: bool) -> None:
    """Show the parameters and the lineage of the sketch in FILE, and its releases: no data."""
    found, _ = read_sketch(file)
    marks = [mark.to_dict() for mark in marks_of(file.resolve().parent, found)]
    content = {
        "kind": _kind(found),
        "k": found.k,
        "keys": found.key_kind,
        "hides": "one set of keys" if found.sets else "one key",
        "streams": [name or None for name in found.lineage.names],
        "id": found.lineage.id,
        "lineage": found.lineage.to_plain(),
        "releases": marks,
    }
    if as_json:
        _echo_json(content)
        return
    lines = {
        "kind": content["kind"],
        "counters": f"k = {found.k:,}",
        "keys": found.key_kind or "none yet",
        "hides": content["hides"],
        "streams": _streams(found),
        "id": found.lineage.id,
        "released": "; ".join(_mark_words(mark) for mark in marks) or "never, as far as the marks in its folder tell",
    }
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, text in lines.items():
        table.add_row(name, Text(str(text)))
    _console().print(table)


def _kind(found: AnySketch) -> str:
    if isinstance(found, MergedSketch):
        return "merged Misra-Gries sketches"
    return "privacy-aware Misra-Gries" if isinstance(found, PrivacyAwareMisraGries) else "Misra-Gries"


def _streams(found: AnySketch) -> str:
    names = [name or "(without a name)" for name in found.lineage.names]
    shown = ", ".join(names[:_SHOWN_STREAMS])
    more = f", and {len(names) - _SHOWN_STREAMS} more" if len(names) > _SHOWN_STREAMS else ""
    return f"{len(names)}: {shown}{more}"


def _mark_words(mark: dict[str, Any]) -> str:
    where = "without a ledger" if mark["ledger"] is None else f"entry {mark['entry']} of {mark['ledger']}"
    return f"{mark['time']} at ({mark['epsilon']:g}, {mark['delta']:g}), {where}"


def _release_table(released: FileRelease) -> Table:
    table = Table(header_style="dim", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    rows = released.table
    if rows.schema["key"] == pl.Binary:
        rows = rows.with_columns(pl.col("key").bin.encode("hex"))
    if rows["high"].null_count() == rows.height:
        rows = rows.drop("high")
    for column in rows.columns:
        table.add_column(column, justify="left" if column == "key" else "right")
    for key, *numbers in rows.iter_rows():
        # As texts, so that a key is never read as markup, and without what a terminal would obey.
        table.add_row(
            Text(_printable(str(key))), *(f"{number:,.6g}" if number < 1e6 else f"{number:,.0f}" for number in numbers)
        )
    return table


def _printable(text: str) -> str:
    r"""A text with signs that are not shown, such as control characters, spelled out.

    >>> _printable("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def _release_notes(released: FileRelease) -> list[str]:
    streams = "1 stream" if released.streams == 1 else f"{released.streams} streams"
    notes = [
        f"It hides {released.unit}; k = {released.k:,}, {streams}; {released.mechanism}.",
        f"Keys are shown from {released.shown_from:,.6g} on; all bars hold together with a chance of "
        f"{released.coverage:.4g}.",
    ]
    if released.table["high"].null_count() == released.table.height:
        notes.append(
            f"A true count may be above: by up to 1 / {released.k + 1:,} of all keys, whose number is not released."
        )
    if released.charge is not None and released.left is not None:
        cost, left = released.charge.to_dict(), released.left.to_dict()
        notes.append(
            f"It cost rho = {cost['rho']:.4g} and bad mass {cost['bad']:.4g}; "
            f"{left['rho']:.4g} and {left['bad']:.4g} are left."
        )
    if released.earlier:
        notes.append("An earlier release of these streams is not in this ledger: it comes on top.")
    return notes


def _console() -> Console:
    console = Console()
    if not console.is_terminal:
        console.width = _WIDTH_WITHOUT_TERMINAL
    return console


def _echo_json(content: dict[str, Any]) -> None:
    # As bytes: JSON is UTF-8, whatever the terminal's encoding is.
    click.echo(json.dumps(content, indent=2, ensure_ascii=False).encode())
