"""Commands for sketches in files: `sketch build`, `import`, `merge`, `release`, `add`, `info`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pianissimo.cli import (
    NUMBER,
    PATH,
    arguments,
    budget_delta_option,
    budget_epsilon_option,
    budget_given,
    echo_json,
    json_option,
    ledger_option,
)

if TYPE_CHECKING:
    from pianissimo.io.sketch_releases import FileRelease
    from pianissimo.sketches import AnySketch

KEYS = ("text", "int64")
_SHOWN_STREAMS = 20

_out_option = click.option("-o", "--out", type=PATH, required=True, help="The sketch file that is made.")
_keys_option = click.option(
    "--keys", type=click.Choice(KEYS), default="text", show_default=True, help="The type of the keys."
)
_name_option = click.option("--name", default="", help="A name for this stream, kept in the lineage of the sketch.")


@click.group()
def sketch() -> None:
    """Find the heavy keys of files in small memory: build or import, merge, release, add.

    A sketch file holds exact counts, so keep it as secret as the rows. What `release` prints may be published.
    """


@sketch.command()
@click.argument("file", type=PATH)
@click.option("--key", required=True, help="The column whose values are counted.")
@click.option("-k", type=NUMBER, default=1024, show_default=True, help="How many counters the sketch has.")
@click.option("--sets", is_flag=True, help="Each row holds a set of keys, and a release hides a whole row.")
@click.option("--user", help="The column of users. A release hides a user with all keys that count of hers.")
@click.option(
    "--max-keys-per-user", type=NUMBER, help="How many keys of one user count, her first ones. It goes with --user."
)
@_keys_option
@_name_option
@_out_option
@json_option
def build(
    *, file: Path, user: str | None, max_keys_per_user: int | None, out: Path, as_json: bool, **options: Any
) -> None:
    """Count the keys of FILE, which is a CSV, JSONL or Parquet file.

    Rows that cannot be counted are listed in a file beside the sketch, with their line and the reason, and with
    nothing of what they hold.
    """
    from pianissimo.io.sketch_files import build_sketch, check_new, write_refused, write_sketch

    check_new(out)
    if (user is None) != (max_keys_per_user is None):
        raise click.UsageError("--user and --max-keys-per-user must be given together, got one of them")
    with arguments():
        built, lines = build_sketch(file, user=user, max_keys_per_user=max_keys_per_user or 1, **options)
    write_sketch(out, built)
    refused = write_refused(out, lines)
    if as_json:
        echo_json({"sketch": str(out), "refused": None if refused is None else str(refused)}, indent=2)
        return
    click.echo(f"{out} holds the sketch; it is as secret as {file}")
    if refused is not None:
        click.echo(f"Rows were refused; see {refused}")


@sketch.command("import")
@click.argument("file", type=PATH)
@click.option("--key", required=True, help="The column of keys.")
@click.option("--count-column", required=True, help="The column of the sketch's counts.")
@click.option("-k", type=NUMBER, required=True, help="How many counters the sketch has.")
@click.option("--total", type=click.IntRange(min=0), required=True, help="How many keys the sketch was fed in all.")
@click.option("--max-keys-per-user", type=NUMBER, default=1, help="How many of them one user may have given.")
@_keys_option
@_name_option
@_out_option
@json_option
def import_(*, file: Path, out: Path, as_json: bool, **options: Any) -> None:
    """Take over a Misra-Gries sketch that another program built: FILE has a row for each of its keys.

    The program must take one away from all k counts where no counter is free, and nothing else. Which keys of count
    zero it keeps does not matter, so that they are shown from a larger count on than those of `build`.
    """
    from pianissimo.io.sketch_files import check_new, import_sketch, write_sketch

    check_new(out)
    with arguments():
        write_sketch(out, import_sketch(file, **options))
    if as_json:
        echo_json({"sketch": str(out)}, indent=2)
    else:
        click.echo(f"{out} holds the sketch; it is as secret as {file}")


@sketch.command()
@click.argument("files", type=PATH, nargs=-1, required=True)
@_out_option
@json_option
def merge(*, files: tuple[Path, ...], out: Path, as_json: bool) -> None:
    """Merge the sketches in FILES, one after the other in the order given.

    Choose the order before you see the data: never by the sizes of the files. Give an empty sketch for a stream
    without rows.
    """
    from pianissimo.io.sketch_files import check_new, merge_sketches, write_sketch
    from pianissimo.io.sketch_marks import inherit_marks

    check_new(out)
    if len(files) < 2:
        raise click.UsageError("FILES must be at least two sketches, got one")
    merged = merge_sketches(files)
    inherit_marks(files, merged, out)
    write_sketch(out, merged)
    if as_json:
        echo_json({"sketch": str(out), "streams": len(merged.lineage.sources)}, indent=2)
    else:
        click.echo(f"{out} holds the merge of {len(merged.lineage.sources)} streams")


@sketch.command()
@click.argument("file", type=PATH)
@click.option("--epsilon", type=float, required=True, help="The epsilon that this release may cost.")
@click.option("--delta", type=float, help="The delta that this release may cost. Needed unless it is --pure.")
@click.option("--pure", is_flag=True, help="Release at epsilon alone, without a delta, from a public list of keys.")
@click.option(
    "--universe",
    metavar="FIRST..LAST|FILE",
    help="The keys that may be shown, whole numbers or a file with one text a line. It goes with --pure.  "
    "[default: all whole numbers of 64 bits]",
)
@click.option(
    "--coverage", type=float, default=0.95, show_default=True, help="The chance that all error bars hold together."
)
@ledger_option
@budget_epsilon_option
@budget_delta_option
@json_option
def release(
    *,
    file: Path,
    delta: float | None,
    pure: bool,
    budget_epsilon: float | None,
    budget_delta: float | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Publish the heavy keys of the sketch in FILE.

    The first release leaves a mark beside FILE. A second release, of this sketch or of one that shares a stream with
    it, is refused unless it is charged to a ledger.
    """
    from pianissimo.io.sketch_releases import release_file

    budget = budget_given(budget_epsilon, budget_delta)
    if budget is not None and options["ledger"] is None:
        raise click.UsageError("--budget-epsilon must be given together with --ledger, got it alone")
    if pure == (delta is not None):
        raise click.UsageError(f"one of --delta and --pure must be given, got {'both' if pure else 'neither'}")
    if options["universe"] is not None and not pure:
        raise click.UsageError("--universe must be given together with --pure, got it alone")
    with arguments():
        released = release_file(file, delta=delta, budget=budget, **options)
    if as_json:
        echo_json(released.to_dict(), indent=2)
    else:
        _show_release(file, released)


@sketch.command()
@click.argument("files", type=PATH, nargs=-1, required=True)
@json_option
def add(*, files: tuple[Path, ...], as_json: bool) -> None:
    """Add up what servers have released: FILES that `sketch release --json` printed, one for each server.

    Each server adds its own noise, so nobody needs to be trusted with a sketch. What a server did not show may be up to
    its "most_hidden" there, so bars grow with the number of servers. Choose --coverage of the releases close to one:
    what they may fail by adds up.
    """
    from pianissimo.cli.render import console, frame_table
    from pianissimo.io.sketch_releases import add_files
    from pianissimo.stream.shown.told_rows import number_shown

    added = add_files(files)
    table = added.table.sort("estimate", "key", descending=[True, False])
    if as_json:
        keys = table.to_dicts()
        echo_json({"coverage": added.coverage, "most_hidden": added.most_hidden, "keys": keys}, indent=2)
        return
    console().print(frame_table(None, table))
    hidden = (
        "" if added.most_hidden is None else f" A key that is not shown has at most {number_shown(added.most_hidden)}."
    )
    click.echo(f"\nAll bars hold together with a chance of {added.coverage:.4g}.{hidden}")


@sketch.command()
@click.argument("file", type=PATH)
@json_option
def info(*, file: Path, as_json: bool) -> None:
    """Show the parameters, the lineage and the releases of the sketch in FILE. No data are shown."""
    from pianissimo.cli.render import console, facts
    from pianissimo.io.sketch_files import read_sketch
    from pianissimo.io.sketch_marks import marks_of
    from pianissimo.io.sketch_releases import hidden_unit

    found, _ = read_sketch(file)
    marks = [mark.to_dict() for mark in marks_of(file.resolve().parent, found)]
    content = {
        "kind": _kind(found),
        "k": found.k,
        "keys": found.key_kind,
        "hides": hidden_unit(found),
        "streams": [name or None for name in found.lineage.names],
        "id": found.lineage.id,
        "lineage": found.lineage.to_plain(),
        "releases": marks,
    }
    if as_json:
        echo_json(content, indent=2)
        return
    del content["lineage"]
    released = "; ".join(_mark_words(mark) for mark in marks) or "never, as far as the marks in its folder tell"
    content |= {"keys": found.key_kind or "none yet", "streams": _streams(found), "releases": released}
    console().print(facts(content))


def _kind(found: "AnySketch") -> str:
    from pianissimo.sketches import MergedSketch, PrivacyAwareMisraGries, StandardMisraGries

    if isinstance(found, MergedSketch):
        return "merged Misra-Gries sketches"
    if isinstance(found, StandardMisraGries):
        return "Misra-Gries of another program"
    return "privacy-aware Misra-Gries" if isinstance(found, PrivacyAwareMisraGries) else "Misra-Gries"


def _streams(found: "AnySketch") -> str:
    names = [name or "(without a name)" for name in found.lineage.names]
    shown = ", ".join(names[:_SHOWN_STREAMS])
    more = f", and {len(names) - _SHOWN_STREAMS} more" if len(names) > _SHOWN_STREAMS else ""
    return f"{len(names)}: {shown}{more}"


def _mark_words(mark: dict[str, Any]) -> str:
    where = "without a ledger" if mark["ledger"] is None else f"entry {mark['entry']} of {mark['ledger']}"
    return f"{mark['time']} at ({mark['epsilon']:g}, {mark['delta']:g}), {where}"


def _show_release(file: Path, released: "FileRelease") -> None:
    from rich.text import Text

    from pianissimo.cli.render import console, frame_table
    from pianissimo.stream.shown.told_rows import number_shown

    rows = released.table
    has_no_high = rows["high"].null_count() == rows.height
    promise = f"({released.epsilon:g}, {released.delta:g})" if released.delta else f"{released.epsilon:g}"
    title = f"{file}: heavy keys at {promise}-differential privacy"
    streams = "1 stream" if released.streams == 1 else f"{released.streams} streams"
    notes = [
        f"It hides {released.unit}; k = {released.k:,}, {streams}; {released.mechanism}.",
        f"Keys are shown from {number_shown(released.shown_from)} on; all bars hold together with a chance of "
        f"{released.coverage:.4g}.",
    ]
    if has_no_high:
        notes.append(
            f"A true count may be above: by up to 1 / {released.k + 1:,} of all keys, whose number is not released."
        )
    if released.charge is not None:
        notes.append("It is charged to the ledger; `pianissimo budget` shows what is left.")
    if released.earlier:
        notes.append("An earlier release of these streams is not in this ledger: it comes on top.")
    shown = frame_table(None, rows.drop("high") if has_no_high else rows)
    console().print(Text(title, style="bold"), shown if rows.height else Text("No key is shown."))
    click.echo("\n" + "\n".join(notes))
