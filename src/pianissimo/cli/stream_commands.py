"""Commands for streams: `plan`, `check`, `run`, `releases`; durable: `status`, `verify`, `recover`, and its keys."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import partial
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
    ledger_key_option,
    ledger_option,
    named_place,
    plan_of,
    secret_option,
    state_argument,
    witness_option,
)
from pianissimo.cli.serve_commands import served_beside, tokens_option
from pianissimo.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from pianissimo.io.runs import RunSummary
    from pianissimo.stream import Stream
    from pianissimo.stream.calendar import TickCalendar

show_refused_option = click.option(
    "--show-refused",
    is_flag=True,
    help="Tell how many rows were refused, by reason: exact, not private, and for the owner's eyes only.",
)
FORMATS = ("parquet", "jsonl", "csv")
_MEANING = {
    "incarnation": "(the random name of this life of the stream; its noise is bound to it)",
    "incarnations": "(lives so far; `recover` begins a new one)",
    "sealed_tick": "(events up to here are stored for good)",
    "visible_tick": "(readers and sinks may have seen releases up to here)",
    "witnessed_tick": "(the witness file has seen this one)",
    "last_tick": "(the end of the horizon)",
    "snapshot_tick": "(a start counts what came after it again)",
    "removed_tick": "(retention removed ticks up to here)",
    "key_epoch": "(how often the secret was rotated)",
    "key_id": "(tells secrets apart; it says nothing of the secret)",
    "lease_epoch": "(how often a process took the stream, to write it alone)",
    "lease_owner": "(the last process that did)",
    "lag": "(ticks that are over by the clock and not released)",
}
"""What `status` says of its fields."""


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
        told = {name: found[name] for name in names} | (found["rows_per_tick"] or {})
        lines = {
            f"rows per tick, {name}" if name in (found["rows_per_tick"] or {}) else name: each
            for name, each in told.items()
        }
        for title in ("columns", "refused", "nulls", "outside", "not_listed"):
            lines |= {f"{title}: {name}": each for name, each in found[title].items()}
        lines |= {f"cut_share: {name}": f"{each:+.1%}" for name, each in found["cut_share"].items()}
        lines |= {f"unread_share: {name}": f"{each:.1%}" for name, each in found["unread_share"].items()}
        for name, caps in found["above_cap"].items():
            lines[f"above_cap: {name}"] = "; ".join(
                f"above {cap:,}: {counted_text(users, 'user', 'users')}, {more:,} {what} beyond"
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
    from pianissimo.stream.legends import JUST_REPORTED, share_text
    from pianissimo.stream.spec import LiveSource, load_spec

    budget = budget_given(budget_epsilon, budget_delta)
    spec = load_spec(file)
    retention = wiring.get("retention")
    if retention is not None and retention.isdecimal():
        wiring["retention"] = int(retention)
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


@click.command()
@click.argument("place", metavar="DIR", callback=named_place)
@click.option("--query", metavar="NAME", help="Show this query only.")
@click.option("--tick", type=NUMBER, help="Show this tick only.")
@click.option("--last", type=NUMBER, help="Show this many of the last ticks.")
@click.option("--window", help="Show what this time up to each tick added, such as 24h or a number of ticks.")
@json_option
def releases(
    *, place: str, query: str | None, tick: int | None, last: int | None, window: str | None, as_json: bool
) -> None:
    """Show what was released into the folder DIR, or by the durable stream in DIR or at a postgresql:// URL.

    All queries and all ticks are shown unless you choose. For an alarm or a trend, one table shows the ticks at which
    it rang. With --window the totals of a durable stream are subtracted, and the bars are those of the difference.
    """
    from rich.text import Text

    from pianissimo.cli.render import console, moment_text, release_table, rings_table
    from pianissimo.demo.pharmacy import is_demo, pharmacy_stream, read_demo
    from pianissimo.io import last_tick, read_plan, read_releases
    from pianissimo.io.inspect import is_state, seen_releases
    from pianissimo.queries.watching import EXHAUSTED
    from pianissimo.stream.legends import legend
    from pianissimo.stream.plan_table import WATCHED, about_told, in_window, never_below_zero

    if tick is not None and last is not None:
        raise click.UsageError("--tick or --last must be given alone, got both")
    folder = Path(place)
    length = int(window) if window is not None and window.isdecimal() else window
    left_out: dict[str, str] = {}
    coverage: float | None = None
    with arguments():
        if is_demo(folder) and window is None:
            coverage = pharmacy_stream(1).coverage
            tables, seen, plan = read_demo(folder), 0, dict[str, Any]()
        elif is_state(place):
            found = seen_releases(place, window=length, chosen=partial(_chosen_ticks, tick=tick, last=last))
            tables, seen, plan, left_out = found.tables, found.tick, found.plan, found.without_windows
        else:
            # The last tick first: of those before it, a folder that is written meanwhile holds all.
            seen = last_tick(folder)
            tables, plan = read_releases(place, window=length), read_plan(folder)
    if query in left_out:
        raise InputError(f"query must have windows of {window}, got {query!r}: {left_out[query]}")
    planned = {each["name"]: each for each in plan.get("queries", [])}
    if length is not None:
        when = f"in the last {length} ticks" if isinstance(length, int) else f"in the last {length}"
        planned = {name: in_window(each, when) for name, each in planned.items()}
    if query is not None and query not in tables.keys() | planned.keys():
        raise InputError(f"query must be one of {', '.join(tables) or 'none'}, got {query!r}")
    every = {name: each["every"] for name, each in planned.items()}
    # A tick at which no label passed its threshold and no alarm rang has no row, and was released all the same.
    end = seen or max((number for table in tables.values() for number in table["tick"].tail(1)), default=0)
    ticks = _chosen_ticks(end, tick=tick, last=last)
    watched = [] if as_json else [name for name, each in planned.items() if each["kind"] in WATCHED]
    terminal = console()
    calendar, coverage = _calendar(plan), plan.get("coverage", coverage)
    zone = None if calendar is None else plan["time_zone"]
    for number, name, rows in _chosen(tables, query, ticks, every):
        times = {} if calendar is None else dict(zip(("start", "end"), calendar.span(number, number), strict=True))
        if rows.height and "since" in rows.columns:
            times["since"] = rows["since"][0]
        shown = rows.drop("since", strict=False)
        cap = rows["cap"][0] if rows.height and "cap" in rows.columns else None
        about = about_told(planned[name], cap) if name in planned else ""
        if as_json:
            told = {"tick": number, **times, **({} if window is None else {"window": length}), "query": name}
            echo_json({**told, **({"about": about} if about else {}), "release": shown.to_dicts()})
        elif name not in watched and (name != EXHAUSTED or query == EXHAUSTED):
            when = "".join(f", {word} {moment_text(moment, zone)}" for word, moment in times.items())
            title = f"{name}, tick {number}{when}{'' if window is None else f', window {window}'}"
            below = legend(name, shown, coverage, planned.get(name))
            threshold = planned.get(name, {}).get("threshold")
            # What is of no query, such as above_cap, counts users; where no plan is known, nothing is cut.
            is_cut = never_below_zero(planned[name]) if name in planned else bool(planned)
            if threshold and not rows.height:
                least = f"{threshold['least']:,}"
                answer: Any = Text(f"No label is shown: none has reached its threshold, {least} or more.")
            else:
                own = planned.get(name)
                answer = release_table(None, shown, never_below_zero=is_cut, legend=below, query=own)
            terminal.print(Text(title, style="bold"), answer, Text(), sep="\n")
    for name in watched:
        if name in tables and query in (None, name):
            below = legend(name, tables[name], coverage, planned.get(name))
            terminal.print(
                rings_table(name, tables[name], ticks, tables.get(EXHAUSTED), legend=below, zone=zone), Text()
            )
    for name, reason in left_out.items() if query is None else ():
        click.echo(f"{name} has no windows of {window}: {reason}", err=as_json)


def _calendar(plan: Mapping[str, Any]) -> "TickCalendar | None":
    """When the ticks of a plan begin and end, if it says so."""
    from pianissimo.stream.calendar import TickCalendar

    return TickCalendar(plan["origin"], plan["tick"], plan["time_zone"]) if "origin" in plan else None


def _chosen_ticks(end: int, *, tick: int | None, last: int | None) -> range:
    """The ticks that were asked for, of those up to `end`."""
    if tick is not None and tick > end:
        raise InputError(f"tick must be at most {end}, the last one released, got {tick}")
    first = tick or (1 if last is None else max(1, end - last + 1))
    return range(first, (tick or end) + 1)


def _chosen(
    tables: Mapping[str, "pl.DataFrame"], query: str | None, shown: range, every: Mapping[str, int]
) -> Iterator[tuple[int, str, "pl.DataFrame"]]:
    """The tables of the ticks and queries that were asked for, tick after tick, where they were published."""
    import polars as pl

    # Rows are in the order of their ticks, so those of one are a slice.
    edges = pl.Series([*shown, shown.stop], dtype=pl.Int64)
    bounds = {name: table["tick"].search_sorted(edges, side="left") for name, table in tables.items()}
    for place, number in enumerate(shown):
        for name, table in tables.items():
            if query in (None, name) and number % every.get(name, 1) == 0:
                begin, stop = bounds[name][place], bounds[name][place + 1]
                yield number, name, table.slice(begin, stop - begin).drop("tick", "start", "end", strict=False)


@click.command()
@state_argument
@witness_option
@show_refused_option
@json_option
def status(*, state: str, witness: Path | None, show_refused: bool, as_json: bool) -> None:
    """Show where the stream in DIR stands: ticks, sinks, and the process that runs it.

    No data are shown, unless the owner asks for refused rows.
    """
    from pianissimo.cli.render import console, facts, silence
    from pianissimo.io.inspect import read_status

    found = asdict(read_status(state, witness=witness, show_refused=show_refused))
    if as_json:
        echo_json(found, indent=2)
        return
    sinks, exhausted, refused = found.pop("sinks"), found.pop("exhausted"), found.pop("refused") or {}
    lines = {name: f"{value}  {_MEANING[name]}" if name in _MEANING else value for name, value in found.items()}
    lines |= {
        f"sink {name}": f"has ticks up to {each['last_tick']}, lacks {each['undelivered']}"
        for name, each in sinks.items()
    }
    lines |= {f"silence of {name}": f"means {silence(most)}" for name, most in exhausted.items()}
    lines |= {f"refused {place}": f"{count:,} rows: {why}" for place, (why, count) in enumerate(refused.items(), 1)}
    console().print(facts(lines))


@click.command()
@state_argument
@secret_option
@witness_option
@click.option("--out", type=PATH, help="A folder of releases that is compared with what is stored.")
@json_option
def verify(*, state: str, secret: str | None, witness: Path | None, out: Path | None, as_json: bool) -> None:
    """Check the stream in DIR: every record, its ledger and its witness. Its last releases are made again.

    Nothing is written. The exit code is 3 if something is not as it was written; the message says what it is.
    """
    from pianissimo.cli.render import progress_bar
    from pianissimo.io import inspect

    with progress_bar("seals", hidden=as_json) as progress:
        asked = inspect.stored_request(state)
        found = inspect.verify(asked, state, secret=secret, witness=witness, progress=progress)
    if out is not None:
        inspect.verify_folder(state, out)
    if as_json:
        echo_json({"verified": True, **asdict(found)})
        return
    same = "computed again from what is sealed, with the same result"
    again = {
        0: "the last state was just stored, so no release had to be computed again",
        1: f"the last release was {same}",
    }.get(found.derived, f"the last {found.derived} releases were {same}")
    click.echo(f"verified: {found.seals} seals and {found.releases} releases are as they were written; {again}")
    if found.windows_from is not None:
        click.echo(
            f"note: there are no checkpoints before tick {found.windows_from}, so no window begins there: an earlier "
            "version began the stream, or they are gone"
        )
    if found.removed:
        click.echo(
            f"retention removed {found.removed} ticks before: their digests are whole and in order; what they released "
            "can no longer be checked"
        )


@click.command()
@state_argument
@secret_option
@witness_option
@click.option(
    "--accept-rollback",
    is_flag=True,
    help="The store is older than its witness, or it is gone, and no newer one exists. Go on after the last tick that "
    "the witness has seen.",
)
@click.option(
    "--accept-lost-witness",
    is_flag=True,
    help="The witness is gone for good. Go on with a new one; the stream is charged once more.",
)
@click.option(
    "--old-secret",
    metavar="PATH|env:NAME|command:WORDS",
    help="The secret that the restored store had. Give it if the secret was rotated since that store was copied.",
)
@click.option("--file", type=PATH, help="The stream file. Give it if the store itself is gone.")
@click.option(
    "--out", type=PATH, help="A folder that got releases. Give it: it may hold later ticks than the store does."
)
@ledger_option
@ledger_key_option
@json_option
def recover(
    *,
    state: str,
    file: Path | None,
    out: Path | None,
    ledger: str | None,
    ledger_key: str | None,
    secret: str | None,
    old_secret: str | None,
    witness: Path | None,
    accept_rollback: bool,
    accept_lost_witness: bool,
    as_json: bool,
) -> None:
    """Accept that something is lost, if the stream in DIR refuses to start because of it.

    First try to bring back what is missing: the newest store, or the witness. Use this command only if it is gone for
    good.

    The stream then begins a new life after the last tick that anybody may have seen, and its noise is new. Earlier
    releases stay. Totals begin anew: they count the events after the last tick of which it is known where it was read
    to. Every release says which tick that is ("since").

    The new life is charged to the budget once more, because events may be shown a second time. One case is free: the
    unit is the event, and the store is older than a witness that is whole.
    """
    from pianissimo.durable import recover as recovery
    from pianissimo.durable.key_ring import read_secret
    from pianissimo.durable.place import wire
    from pianissimo.durable.start import Request
    from pianissimo.io import last_tick, read_plan
    from pianissimo.io.inspect import stored_request
    from pianissimo.stream.spec import load_spec

    if accept_rollback == accept_lost_witness:
        raise click.UsageError("one of --accept-rollback and --accept-lost-witness must be given")
    if file is None:
        request = stored_request(state)
    else:
        spec = load_spec(file)
        request = Request(spec.stream)
        ledger, ledger_key = ledger or spec.ledger.place, ledger_key or spec.ledger.key
    wiring = wire(state, secret=secret, witness=witness, ledger=ledger, ledger_key=ledger_key)
    if out is not None:
        read_plan(out)  # a folder that holds no releases would say that nothing was shown
    shown = 0 if out is None else last_tick(out)
    if accept_lost_witness:
        done = recovery.accept_lost_witness(request, wiring, shown=shown)
    else:
        earlier = None if old_secret is None else read_secret(old_secret, beside=Path(old_secret), create=False)
        done = recovery.accept_rollback(request, wiring, shown=shown, old_secret=earlier)
    if as_json:
        echo_json(asdict(done))
        return
    charge = "it was charged anew" if done.charged else "the charge that was made covers it"
    click.echo(
        f"a new life begins after tick {done.last_tick}; {done.lost} released ticks are not in this store; {charge}\n"
        f"totals begin anew: they count the events after tick {done.since}"
    )


@click.command("rotate-secret")
@state_argument
@secret_option
@witness_option
@click.option("--new", metavar="PATH", required=True, type=PATH, help="The file that is made for the new secret.")
def rotate_secret(*, state: str, secret: str | None, witness: Path | None, new: Path) -> None:
    """Give the stream in DIR a new secret, which holds from the next tick on.

    The new secret is written to a file of its own. Start the stream with it from then on. What was sealed before needs
    the old secrets: they stay in the store, encrypted under the new one.
    """
    from pianissimo.durable.durable_stream import open_stream
    from pianissimo.durable.key_ring import read_secret
    from pianissimo.durable.place import Place
    from pianissimo.io.inspect import stored_request
    from pianissimo.storage.files import check_key_path

    check_key_path("--new", new)
    if new.exists():
        raise click.UsageError(f"--new must be a file that is not there yet, got {new}")
    asked = stored_request(state)
    with open_stream(asked.stream, state, secret=secret, witness=witness) as live:
        live.rotate_secret(read_secret(new, beside=new, create=True))
        tick = live.tick_number + 1
    default = Place.of(state, witness=witness).secret
    click.echo(f"from tick {tick} on the secret is the one in {new}; start the stream with it, or move it to {default}")


@click.command("names-key")
@state_argument
@secret_option
@click.option("--out", metavar="PATH", required=True, type=PATH, help="The file that is made for the names key.")
def names_key(*, state: str, secret: str | None, out: Path) -> None:
    """Write the names key of the stream in DIR to a file of its own, for those who gather users elsewhere.

    From it users and distinct values have their names. No noise can be made of it, and the secret cannot be found from
    it; whoever has it and the data can tell who is who. It stays the same when the secret is rotated.
    """
    from pianissimo.durable.start import write_names_key

    write_names_key(state, secret, out)
    click.echo(f"the names key is in {out}; give it to those who gather, as names = 'env:NAME' or a path")


@click.command("shards-key")
@state_argument
@secret_option
@click.option("--out", metavar="PATH", required=True, type=PATH, help="The file that is made for the shards key.")
def shards_key(*, state: str, secret: str | None, out: Path) -> None:
    """Write the shards key of the stream in DIR to a file of its own, for executors that have its shards.

    It opens the keys of shards that come with what executors are asked, of the shards they are asked about. No key
    and no noise follow from it alone. Guard it as the secret: with it, what the driver sends can be opened.
    """
    from pianissimo.durable.start import write_shards_key

    write_shards_key(state, secret, out)
    click.echo(f"the shards key is in {out}; give it to those who have shards, as shards = 'env:NAME' or a path")
