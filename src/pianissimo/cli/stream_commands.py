"""Commands that begin with a stream file: `plan`, `check` and `run`."""

import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from pianissimo.checks import number_or_text
from pianissimo.cli import (
    NUMBER,
    PATH,
    arguments,
    budget_delta_option,
    budget_epsilon_option,
    budget_given,
    echo_json,
    json_option,
    ledger_key_option,
    ledger_option,
    named_place,
    plan_of,
    secret_option,
    show_refused_option,
    witness_option,
)
from pianissimo.cli.serve_commands import served_beside, tokens_option

if TYPE_CHECKING:
    from pianissimo.io.runs import RunSummary
    from pianissimo.stream import Stream

FORMATS = ("parquet", "jsonl", "csv")


@click.command()
@click.argument("file", type=PATH, required=False)
@click.option("--explain", is_flag=True, help="Also show mechanisms, noise, theorems, and what else would have fitted.")
@click.option("--matrix", is_flag=True, help="Without FILE: what can be asked of whom, and why not where it cannot.")
@json_option
def plan(*, file: Path | None, explain: bool, matrix: bool, as_json: bool) -> None:
    """Show what the stream in FILE promises, before any data are read.

    For each query it says how far answers will be from the truth, what that is the truth about, and what is hidden.
    """
    from pianissimo.cli.render import console
    from pianissimo.stream import plan_tables
    from pianissimo.stream.spec import load_spec

    if matrix == (file is not None):
        raise click.UsageError("FILE or --matrix must be given, got both or neither")
    if file is None:
        from pianissimo.stream.matrix import cells, matrix_table

        asked = cells()
        if as_json:
            told = [{"question": each.question, "unit": each.unit, "time": each.time} for each in asked]
            answers = [{"answer": each.answer, "reason": each.refusal} for each in asked]
            echo_json([one | other for one, other in zip(told, answers, strict=True)], indent=2)
        else:
            console().print(matrix_table(asked))
        return
    content = plan_of(load_spec(file), file).to_dict()
    if as_json:
        echo_json(content, indent=2)
    else:
        console().print(plan_tables(content, explain=explain))


_CHECKED = {
    "nulls": " without a value that it counts",
    "outside": " with a value outside its range",
    "not_listed": " with a label that its domain does not list",
    "cut_share": " of the sum, by cutting values to its range",
    "unread_share": " of what the column adds up to is in texts that are no numbers",
}
"""What `check` says of its numbers, beside how many rows have it."""


def _number(value: object) -> object:
    return f"{value:,.15g}" if isinstance(value, int | float) else value


@click.command()
@click.argument("file", type=PATH)
@json_option
def check(*, file: Path, as_json: bool) -> None:
    """Look at the data of the stream in FILE as a run would read them. Nothing is released, and nothing is charged.

    What it shows is exact and NOT private: it is for the owner of the data. The exit code is 2 if the data cannot be
    read as FILE says; each fault names what to change there.
    """
    from pianissimo.cli.render import console, facts
    from pianissimo.io.source_check import NOT_PRIVATE, check_source
    from pianissimo.io.source_sizes import counted_text
    from pianissimo.stream.spec import load_spec

    spec = load_spec(file)
    plan_of(spec, file)
    found = check_source(spec)
    if as_json:
        echo_json(found, indent=2)
    else:
        click.echo(f"{NOT_PRIVATE}\n")
        names = ("rows", "first_time", "last_time") if found["rows"] is not None else ()
        lines: dict[str, object] = {name: _number(found[name]) for name in names}
        lines |= {f"rows per tick, {name}": _number(each) for name, each in (found["rows_per_tick"] or {}).items()}
        lines |= {f"columns: {name}": each for name, each in found["columns"].items()}
        for title in ("refused", "nulls", "outside", "not_listed"):
            meaning = _CHECKED.get(title, "")
            lines |= {
                f"{title}: {name}": f"{counted_text(each, 'row', 'rows')}{meaning}"
                for name, each in found[title].items()
            }
        for title, form in (("cut_share", "+.1%"), ("unread_share", ".1%")):
            lines |= {f"{title}: {name}": f"{each:{form}}{_CHECKED[title]}" for name, each in found[title].items()}
        for name, caps in found["above_cap"].items():
            lines[f"above_cap: {name}"] = "; ".join(
                f"above {cap:,.15g}: {counted_text(users, 'user', 'users')}, {more:,} {what} beyond"
                for (_, cap), (_, users), (what, more) in map(dict.items, caps)
            )
        lines |= {f"plan: {name}": " ".join(words) for name, words in found["plan"].items()}
        console().print(facts(lines))
        for word in ("note", "fault"):
            for text in found[f"{word}s"]:
                click.echo(f"{click.style(f'{word}:', bold=True)} {text}")
    if found["faults"]:
        sys.exit(2)


@click.command()
@click.argument("file", type=PATH)
@click.option("--out", type=PATH, help="A folder that gets the releases as files.")
@click.option(
    "--format", type=click.Choice(FORMATS), default="parquet", show_default=True, help="The file format in that folder."
)
@click.option(
    "--state",
    metavar="DIR",
    callback=named_place,
    help="Keep the stream in this folder, at this postgresql:// URL, or where the variable of env:NAME says: others "
    "can see what is typed.  [default: beside FILE, ending in .state]",
)
@click.option(
    "--in-memory",
    is_flag=True,
    help="Keep nothing but the releases in --out. If it is stopped it cannot go on, and what it released is paid for.",
)
@secret_option
@witness_option
@click.option(
    "--take-over",
    is_flag=True,
    help="Take the stream from another process that hangs. That process writes nothing from then on.",
)
@click.option(
    "--retention",
    metavar="LENGTH",
    help="Keep so much of the last ticks whole, such as 30d or a number of ticks, and of those before what later ones "
    "depend on.  [default: run.retention of FILE, or all]",
)
@ledger_option
@ledger_key_option
@budget_epsilon_option
@budget_delta_option
@click.option(
    "--health", type=PATH, help="A file that says how the process is, written anew all the time.  [DIR/health.json]"
)
@click.option("--metrics", metavar="HOST:PORT", help="Serve figures for Prometheus here. They show no data.")
@click.option(
    "--serve", metavar="HOST:PORT", help="Show what is released here, as `pianissimo serve` does; open to this machine."
)
@click.option("--operator", metavar="HOST:PORT", help="Listen here for those who run the stream; needs their token.")
@tokens_option
@show_refused_option
@click.option(
    "--longest-leap",
    metavar="TICKS",
    type=NUMBER,
    help="How many ticks the clock may be ahead of the last release. If it is further ahead, the command refuses, as "
    "the clock may be wrong.  [default: an eighth of the horizon, a minute at least, 1440 ticks at most]",
)
@click.option(
    "--workers",
    metavar="WHO",
    help="Who reads and counts: inline, processes or how many of them, spark, or a Spark master such as "
    "spark://HOST:7077. The releases are the same.  [default: as FILE says, else inline]",
)
@click.option("--quiet", is_flag=True, help="Print alarms and trends only: no plan, no progress, no closing words.")
@json_option
def run(
    *,
    file: Path,
    out: Path | None,
    format: Literal["parquet", "jsonl", "csv"],  # noqa: A002
    state: str | None,
    in_memory: bool,
    budget_epsilon: float | None,
    budget_delta: float | None,
    quiet: bool,
    as_json: bool,
    tokens: Path,
    serve: str | None,
    operator: str | None,
    **wiring: Any,
) -> None:
    """Release the stream in FILE, tick after tick.

    FILE names the data. Rows that cannot be read are listed in a file beside the releases. Alarms and trends are
    printed when they were stored, a line each.

    Every tick is stored, beside FILE unless --state says where: if the command is stopped or killed, type it again and
    it goes on. A run --in-memory is for complete files alone, and takes none of the options from --secret to
    --workers.
    """
    from pianissimo.io.runs import stop_on_signals

    # First of all: a signal while the plan is made ends the command as one that comes later does.
    stop = None if in_memory else click.get_current_context().with_resource(stop_on_signals())
    from pianissimo.budget import Budget
    from pianissimo.cli.render import console, echo_ring, progress_bar
    from pianissimo.durable.place import Place
    from pianissimo.io.runs import is_known, run_durably, run_file
    from pianissimo.storage.connection import shown_place
    from pianissimo.stream import plan_tables
    from pianissimo.stream.shown.legends import JUST_REPORTED, share_text
    from pianissimo.stream.source_spec import LiveSource
    from pianissimo.stream.spec import load_spec

    budget = budget_given(budget_epsilon, budget_delta)
    spec = load_spec(file)
    retention = wiring.get("retention")
    if retention is not None:
        wiring["retention"] = number_or_text(retention)
    given = {"state": state, "budget": budget, "serve": serve, "operator": operator, **wiring}
    unfit = [name for name, value in given.items() if value] if in_memory else []
    if unfit:
        raise click.UsageError(f"--in-memory must be given without --{unfit[0].replace('_', '-')}, got both")
    if in_memory and (isinstance(spec.source, LiveSource) or spec.sinks):
        raise click.UsageError("--in-memory must be left out where the source goes on or the file has sinks, got it")
    if in_memory and out is None:
        raise click.UsageError("--out must be given with --in-memory, got nothing")
    state = state or str(file.with_suffix(".state"))
    with arguments():
        goes_on = not in_memory and is_known(Place.of(state, witness=wiring["witness"]))
    if not goes_on:
        content = plan_of(spec, file).to_dict()
        if not quiet:
            console(stderr=as_json).print(plan_tables(content))
        for line in _spends_anew(spec.stream, file, state, in_memory=in_memory, quiet=quiet):
            click.echo(f"\n{line}", err=quiet or as_json)
    elif not quiet:
        click.echo(f"The stream goes on; its plan: pianissimo plan {file}", err=as_json)

    def rang_as_json(tick: int, query: str, row: Mapping[str, Any]) -> None:
        echo_json({"tick": tick, "query": query, **row})

    rang = rang_as_json if as_json else echo_ring
    if any(query.watched for query in spec.stream.queries) and not (quiet or as_json):
        share = share_text(spec.stream.coverage)
        click.echo(f"\nAlarms and trends have a line each: about how many (low to high). {share} hold the true number.")
        click.echo(JUST_REPORTED)
    hidden = quiet or (as_json and sys.stdout.isatty())
    with progress_bar(hidden=hidden) as progress, arguments():
        if in_memory and out is not None:
            place = str(out)
            done = run_file(spec, out, format=format, progress=progress, rang=rang)
        else:
            place = shown_place(state)
            wiring |= {"out": out, "format": format, "progress": progress, "rang": rang, "stop": stop}
            if serve is not None or operator is not None:
                wiring["beside"] = partial(served_beside, state, tokens, serve, operator)
            done = run_durably(spec, state, ledger_budget=None if budget is None else Budget(*budget), **wiring)
    loop, refused = done.loop, None if done.refused is None else str(done.refused)
    if as_json:
        told = {"ticks": loop.tick, "first_tick": loop.first_tick, "stopped": loop.stopped, "refused": refused}
        echo_json({**told, "state": None if in_memory else place, "folder": None if out is None else str(out)})
        return
    if not quiet:
        click.echo(_told(done, place, out))
    if refused is not None:
        click.echo(f"Rows were refused; see {refused}", err=quiet)
    if not quiet and loop.tick:
        click.echo(f"Look at the last one: pianissimo releases {place} --last 1")


def _spends_anew(stream: "Stream", file: Path, state: str, *, in_memory: bool, quiet: bool) -> Iterator[str]:
    """That a stream which begins spends its budget; and where one of its name has begun before, that this is another.

    Which events both count nobody can tell by the stores. The same file with another --state mostly counts the same.
    """
    from pianissimo.io.inspect import streams_beside
    from pianissimo.storage.connection import is_server, shown_place

    spent = f"epsilon {float(stream.budget.epsilon):g} and delta {float(stream.budget.delta):g}"
    own = None if in_memory or is_server(state) else Path(state)
    before = streams_beside([file.parent, *([] if own is None else [own.parent])], stream.name, but=own)
    if before:
        known = before[0].relative_to(Path.cwd()) if before[0].is_relative_to(Path.cwd()) else before[0]
        others = f", and in {len(before) - 1} more" if len(before) > 1 else ""
        yield (
            f"Warning: stream {stream.name!r} was begun before, in {known}{others}. This is another one: over the same "
            f"events it spends {spent} once more.\nTo go on with the earlier one: pianissimo run {file} --state {known}"
        )
    elif not quiet:
        kept = "" if in_memory else f" It is kept in {shown_place(state)}; the same command goes on with it."
        yield f"This is a new stream, and spends {spent}.{kept}"


def _told(done: "RunSummary", place: str, out: Path | None) -> str:
    """What is said of a run when it has ended."""
    loop = done.loop
    if not done.created and loop.tick == 0:
        return "\nIt was told to stop before the stream was begun; nothing was charged or released"
    begun = "began" if done.created else f"went on at tick {loop.first_tick}"
    begun = begun if loop.first_tick <= loop.last_tick else "had ended before"
    many = "all" if loop.tick == loop.last_tick else f"{loop.tick} of"
    folder = "" if out is None or str(out) == place else f", and as files in {out}"
    stopped = "\nIt was told to stop; the same command goes on." if loop.stopped else ""
    return f"\nThe stream {begun}; {many} {loop.last_tick} ticks are released in {place}{folder}{stopped}"
