"""Commands for data that lie still: `top-k` asks a table, `budget` shows a ledger, `sketch` sums up files."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

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
    from pianissimo.io.sketch_files import FileRelease
    from pianissimo.ledger import LastEntry
    from pianissimo.sketches import AnySketch
    from pianissimo.table import TableAnswer

KEYS = ("text", "int64")
_SHOWN_STREAMS = 20

_out_option = click.option("-o", "--out", type=PATH, required=True, help="The sketch file that is made.")


@click.command("top-k")
@click.argument("url")
@click.argument("table")
@click.argument("column")
@click.option("-k", type=NUMBER, default=10, show_default=True, help="How many labels come back at most.")
@click.option("--user", required=True, help="The column that says to which user a row belongs.")
@click.option(
    "--ledger", help="The ledger that is charged: a file or a postgresql:// URL.  [default: a file beside the data]"
)
@click.option(
    "--key", type=PATH, help="The file with the key of the ledger.  [default: beside a ledger that is a file]"
)
@click.option(
    "--witness",
    metavar="COUNT:DIGEST",
    help="The witness that `pianissimo budget` showed. A ledger that is older than it is refused.",
)
@click.option("--budget-epsilon", type=float, required=True, help="The epsilon of all answers together, for ever.")
@click.option("--budget-delta", type=float, required=True, help="The delta of all answers together, for ever.")
@click.option("--where", help="Count only the rows for which this holds, such as \"country = 'DE'\".")
@click.option(
    "--candidates",
    type=NUMBER,
    help="How many of the largest labels are looked at.  [default: chosen for you]",
)
@click.option("--max-keys-per-user", type=NUMBER, help="How many labels of one user count.  [default: all]")
@click.option("--counts", is_flag=True, help="Return a count with each label. Each costs one more step.")
@click.option(
    "--method",
    type=click.Choice(("limited", "strict", "optimal", "laplace", "fixed")),
    default="limited",
    show_default=True,
    help="How labels are chosen; docs/ask_a_table.md says when which is best.",
)
@click.option("--steps", type=NUMBER, help="How many steps the budget is divided into, for all time.  [default: 200]")
@click.option("--questions", type=NUMBER, help="How many questions may be asked, for all time.  [default: 100]")
@click.option("--explain", is_flag=True, help="Show the plan and the SQL. Nothing is asked and nothing is paid.")
@json_option
def top_k(
    *,
    url: str,
    table: str,
    column: str,
    k: int,
    user: str,
    budget_epsilon: float,
    budget_delta: float,
    explain: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Ask TABLE of the database at URL for the labels of COLUMN that most users have.

    You pay for what comes back: one step for each label, and one if the list ends early because no further label
    stands out from the noise.
    """
    from pianissimo.budget import Budget
    from pianissimo.table import StepAllowance, Table, TableLedger

    question = {name: options.pop(name) for name in ("where", "candidates", "max_keys_per_user", "counts", "method")}
    question["candidates"] = question["candidates"] or "auto"
    charged = TableLedger(options.pop("ledger"), key=options.pop("key"), witness=options.pop("witness"))
    cut = {name: value for name, value in options.items() if value is not None}
    with arguments():
        allowance = StepAllowance.of(Budget(budget_epsilon, budget_delta), **cut)
    with arguments(), Table(url, table, user=user, budget=allowance, ledger=charged) as asked:
        if explain:
            plan = asked.plan.top_k(column, k, **question)
            if as_json:
                echo_json(plan.to_dict(), indent=2)
            else:
                click.echo(str(plan))
            return
        answer = asked.top_k(column, k, **question)
    if as_json:
        echo_json(answer.to_dict(), indent=2)
    else:
        _show_answer(f"{column} by {user}", answer)


def _show_answer(title: str, answer: "TableAnswer") -> None:
    """The answer with ranks, what it cost, and what is left."""
    from pianissimo.cli.render import console, frame_table

    def steps(number: int) -> str:
        return "1 step" if number == 1 else f"{number} steps"

    terminal = console()
    terminal.print(frame_table(title, answer.table.with_row_index("rank", offset=1)))
    click.echo(
        f"\nIt cost {steps(answer.cost.steps)}, {answer.cost.share:.2%} of the budget; {steps(answer.left.steps)} "
        f"and {answer.left.calls} questions are left, {answer.left.share:.2%}."
    )
    if answer.met_threshold:
        click.echo("No further label stood out from the noise.")
    if answer.plan.note:
        click.echo(f"This is {answer.plan.note}.")


@click.command()
@click.argument("place")
@click.option("--key", type=PATH, help="The file with the key of the ledger.  [default: PLACE.key, if there is one]")
@click.option(
    "--witness",
    metavar="COUNT:DIGEST",
    help="The witness that this command showed before. It finds out whether entries were cut off since.",
)
@click.option("--explain", is_flag=True, help="Also show what the ledger adds up: rho and bad mass.")
@json_option
def budget(*, place: str, key: Path | None, witness: str | None, explain: bool, as_json: bool) -> None:
    """Show the ledger at PLACE: a file, the folder of a durable stream, or a postgresql:// URL.

    It shows who was charged for what, when (UTC), what it cost and what is left, in epsilon and delta. The exit code is
    1 if the ledger cannot be verified.
    """
    from pianissimo.cli.render import console, history_tables
    from pianissimo.io.inspect import shown_ledger
    from pianissimo.ledger import Ledger, history, key_file

    beside = Path(f"{place}.key")
    if key is None and "://" not in place and beside.exists():
        key = beside
    secret = None if key is None else key_file(key, create=False)
    if secret is None:
        place, secret = shown_ledger(place)
    with Ledger.open(place, key=secret, read_only=True) as ledger:
        content = history(ledger, *_witnesses(witness, key))
    if as_json:
        echo_json(content, indent=2)
    else:
        console().print(history_tables(content, explain=explain))
    if not content["verified"]:
        sys.exit(1)


def _witnesses(given: str | None, key: Path | None) -> "list[LastEntry]":
    """What was seen before: as it is given, and as the file beside the key says."""
    from pianissimo.ledger import LastEntry, LastSeen

    local = None if key is None else LastSeen(Path(f"{key}.head")).read()
    return [head for head in (None if given is None else LastEntry.parse(given), local) if head is not None]


@click.group()
def sketch() -> None:
    """Find the heavy keys of files in small memory: build, merge, release.

    A sketch file holds exact counts, so keep it as secret as the rows. What `release` prints may be published.
    """


@sketch.command()
@click.argument("file", type=PATH)
@click.option("--key", required=True, help="The column whose values are counted.")
@click.option("-k", type=NUMBER, default=1024, show_default=True, help="How many counters the sketch has.")
@click.option("--sets", is_flag=True, help="Each row holds a set of keys, and a release hides a whole row.")
@click.option("--keys", type=click.Choice(KEYS), default="text", show_default=True, help="The type of the keys.")
@click.option("--name", default="", help="A name for this stream, kept in the lineage of the sketch.")
@_out_option
@json_option
def build(
    *, file: Path, key: str, k: int, sets: bool, keys: Literal["text", "int64"], name: str, out: Path, as_json: bool
) -> None:
    """Count the keys of FILE, which is a CSV, JSONL or Parquet file.

    Rows that cannot be counted are listed in a file beside the sketch, with their line and the reason, and with
    nothing of what they hold.
    """
    from pianissimo.io.sketch_files import build_sketch, check_new, write_refused, write_sketch

    check_new(out)
    with arguments():
        built, lines = build_sketch(file, key=key, k=k, sets=sets, keys=keys, name=name)
    write_sketch(out, built)
    refused = write_refused(out, lines)
    if as_json:
        echo_json({"sketch": str(out), "refused": None if refused is None else str(refused)}, indent=2)
        return
    click.echo(f"{out} holds the sketch; it is as secret as {file}")
    if refused is not None:
        click.echo(f"Rows were refused; see {refused}")


@sketch.command()
@click.argument("files", type=PATH, nargs=-1, required=True)
@_out_option
@json_option
def merge(*, files: tuple[Path, ...], out: Path, as_json: bool) -> None:
    """Merge the sketches in FILES, one after the other in the order given.

    Choose the order before you see the data: never by the sizes of the files. Give an empty sketch for a stream
    without rows.
    """
    from pianissimo.io.sketch_files import check_new, inherit_marks, merge_sketches, write_sketch

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
@click.option("--delta", type=float, required=True, help="The delta that this release may cost.")
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
    epsilon: float,
    delta: float,
    coverage: float,
    ledger: str | None,
    budget_epsilon: float | None,
    budget_delta: float | None,
    as_json: bool,
) -> None:
    """Publish the heavy keys of the sketch in FILE.

    The first release leaves a mark beside FILE. A second release, of this sketch or of one that shares a stream with
    it, is refused unless it is charged to a ledger.
    """
    from pianissimo.io.sketch_files import release_file

    budget = budget_given(budget_epsilon, budget_delta)
    if budget is not None and ledger is None:
        raise click.UsageError("--budget-epsilon must be given together with --ledger, got it alone")
    with arguments():
        released = release_file(file, epsilon=epsilon, delta=delta, coverage=coverage, ledger=ledger, budget=budget)
    if as_json:
        echo_json(released.to_dict(), indent=2)
    else:
        _show_release(file, released)


@sketch.command()
@click.argument("file", type=PATH)
@json_option
def info(*, file: Path, as_json: bool) -> None:
    """Show the parameters, the lineage and the releases of the sketch in FILE. No data are shown."""
    from pianissimo.cli.render import console, facts
    from pianissimo.io.sketch_files import marks_of, read_sketch

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
        echo_json(content, indent=2)
        return
    del content["lineage"]
    released = "; ".join(_mark_words(mark) for mark in marks) or "never, as far as the marks in its folder tell"
    content |= {"keys": found.key_kind or "none yet", "streams": _streams(found), "releases": released}
    console().print(facts(content))


def _kind(found: "AnySketch") -> str:
    from pianissimo.sketches import MergedSketch, PrivacyAwareMisraGries

    if isinstance(found, MergedSketch):
        return "merged Misra-Gries sketches"
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

    rows = released.table
    has_no_high = rows["high"].null_count() == rows.height
    title = f"{file}: heavy keys at ({released.epsilon:g}, {released.delta:g})-differential privacy"
    streams = "1 stream" if released.streams == 1 else f"{released.streams} streams"
    notes = [
        f"It hides {released.unit}; k = {released.k:,}, {streams}; {released.mechanism}.",
        f"Keys are shown from {released.shown_from:,.6g} on; all bars hold together with a chance of "
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
    console().print(Text(title, style="bold"), frame_table(None, rows.drop("high") if has_no_high else rows))
    click.echo("\n" + "\n".join(notes))
