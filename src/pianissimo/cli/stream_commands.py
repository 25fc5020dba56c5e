"""Commands for streams: `demo`, `plan`, `run`, `releases` and `audit`."""

import sys
from collections.abc import Iterator, Mapping
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
    plan_of,
    secret_option,
    witness_option,
)
from pianissimo.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from pianissimo.io.runs import DurableRun

FORMATS = ("parquet", "jsonl", "csv")
_WATCHED = ("alarm", "trending")


@click.command()
@click.option("--ticks", type=NUMBER, default=30, show_default=True, help="How many ticks are released.")
@click.option("--out", type=PATH, default=Path("demo-output"), show_default=True, help="The folder for the results.")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Which data are generated. The noise has no seed: it is new in every demo.",
)
@json_option
def demo(*, ticks: int, out: Path, seed: int, as_json: bool) -> None:
    """Watch a generated stream being released.

    The demo shows a running count, the drugs that pass a threshold, a top list of shops, and what the last hours added.
    The events are made up, so their truth is shown beside the releases, as text and as a picture. After Ctrl-C, or
    after it was killed, the same command goes on where it was.
    """
    from pianissimo.cli.render import console
    from pianissimo.demo import TRUTH_NOTE, DemoFolder, Record, Screen, check_demo, open_demo, pharmacy_batches, summary
    from pianissimo.demo.pharmacy import WINDOW_TICKS
    from pianissimo.io.runs import stop_on_signals
    from pianissimo.stream import plan_tables

    terminal = console(stderr=as_json)
    record = Record()
    check_demo(out)
    with open_demo(out, ticks, seed) as live, stop_on_signals() as stop:
        terminal.print(plan_tables(live.plan.to_dict()))
        click.echo(f"\n{TRUTH_NOTE}\n", err=as_json)
        begun = live.tick_number
        if begun:
            click.echo(f"A demo was stopped here after tick {begun}: it goes on.\n", err=as_json)
        with DemoFolder(out, live.plan) as folder, Screen(terminal, ticks=ticks) as screen:
            for tick, batch in enumerate(pharmacy_batches(ticks, seed), 1):
                release = live.released(tick) if tick <= begun else live.tick(batch)
                window = live.between(max(0, tick - WINDOW_TICKS), tick)
                record.observe(batch, release, window)
                folder.write(release, window)
                if as_json:
                    click.echo(release.to_json().encode())
                elif tick >= begun:
                    screen.show(record)
                if stop.is_set() and tick >= begun:
                    break
        if live.tick_number < ticks:
            click.echo(f"\nStopped after tick {live.tick_number} of {ticks}; the same command goes on.", err=as_json)
            return
    has_picture = folder.draw(record)
    click.echo(f"\n{summary(record)}\n", err=as_json)
    for path in folder.written:
        click.echo(f"  {path}", err=as_json)
    if not has_picture:
        click.echo("For a picture of it: pip install pianissimo[plot]", err=as_json)


@click.command()
@click.argument("file", type=PATH)
@json_option
def plan(*, file: Path, as_json: bool) -> None:
    """Show what the stream in FILE promises, before any data are read.

    For each query it shows the mechanism, the noise, the share of the budget and the error to expect.
    """
    from pianissimo.cli.render import console
    from pianissimo.stream import plan_tables
    from pianissimo.stream.spec import load_spec

    content = plan_of(load_spec(file), file).to_dict()
    if as_json:
        echo_json(content, indent=2)
    else:
        console().print(plan_tables(content))


@click.command()
@click.argument("file", type=PATH)
@click.option("--out", type=PATH, help="A folder that gets the releases. It is needed unless --state is given.")
@click.option(
    "--format", type=click.Choice(FORMATS), default="parquet", show_default=True, help="The file format in that folder."
)
@click.option(
    "--state",
    metavar="DIR",
    help="Keep the stream in this folder, or at this postgresql:// URL. Then it can be killed at any instant, and the "
    "same command goes on.",
)
@secret_option
@witness_option
@click.option(
    "--take-over",
    is_flag=True,
    help="Take the stream from another process that hangs. That process writes nothing from then on.",
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
    "--longest-leap",
    metavar="TICKS",
    type=NUMBER,
    help="How many ticks the clock may be ahead of the last release. If it is further ahead, the command refuses, as "
    "the clock may be wrong.  [default: an eighth of the horizon, a minute at least, 1440 ticks at most]",
)
@click.option("--quiet", is_flag=True, help="Print alarms and trends only: no plan, no progress, no closing words.")
@json_option
def run(
    *,
    file: Path,
    out: Path | None,
    format: Literal["parquet", "jsonl", "csv"],  # noqa: A002
    state: str | None,
    budget_epsilon: float | None,
    budget_delta: float | None,
    quiet: bool,
    as_json: bool,
    **wiring: Any,
) -> None:
    """Release the stream in FILE, tick after tick.

    FILE names the data. Rows that cannot be read are listed in a file beside the releases. Alarms and trends are
    printed when they were stored, a line each.

    With --state every tick is stored: if the command is stopped or killed, type it again and it goes on. It is needed
    for sources that go on (follow, stdin, kafka) and for sinks, and the options from --secret to --longest-leap need
    it.
    """
    from pianissimo.io.runs import stop_on_signals

    # First of all: a signal while the plan is made ends the command as one that comes later does.
    stop = None if state is None else click.get_current_context().with_resource(stop_on_signals())
    from pianissimo.budget import Budget
    from pianissimo.cli.render import console, echo_ring, echo_ring_as_json, progress_bar
    from pianissimo.io.runs import run_durably, run_file
    from pianissimo.stream import plan_tables
    from pianissimo.stream.spec import LiveSource, load_spec

    budget = budget_given(budget_epsilon, budget_delta)
    spec = load_spec(file)
    if state is None and (isinstance(spec.source, LiveSource) or spec.sinks):
        raise click.UsageError("--state must be given where the source goes on or the file has sinks, got nothing")
    content = plan_of(spec, file).to_dict()
    if not quiet:
        console(stderr=as_json).print(plan_tables(content))
    rang = echo_ring_as_json if as_json else echo_ring
    hidden = quiet or (as_json and sys.stdout.isatty())
    if state is not None:
        with progress_bar(hidden=hidden) as progress, arguments():
            wiring |= {"out": out, "format": format, "progress": progress, "rang": rang, "stop": stop}
            durable = run_durably(spec, state, ledger_budget=None if budget is None else Budget(*budget), **wiring)
        if as_json:
            _tell_durable_as_json(durable, state)
        elif not quiet:
            _tell_durable(durable, state)
        return
    if out is None:
        raise click.UsageError("--out or --state must be given, got neither")
    with progress_bar(hidden=hidden) as progress:
        done = run_file(spec, out, format=format, progress=progress, rang=rang)
    if as_json:
        refused = None if done.refused is None else str(done.refused)
        echo_json({"ticks": done.ticks, "folder": str(done.folder), "refused": refused})
        return
    if not quiet:
        click.echo(f"\n{done.ticks} ticks are released in {done.folder}")
    if done.refused is not None:
        click.echo(f"Rows were refused; see {done.refused}", err=quiet)
    if not quiet:
        click.echo(f"Look at the last one: pianissimo releases {done.folder} --last 1")


def _tell_durable_as_json(durable: "DurableRun", state: str) -> None:
    from pianissimo.storage.postgres import shown_place

    loop = durable.loop
    echo_json(
        {
            "ticks": loop.tick,
            "first_tick": loop.first_tick,
            "stopped": loop.stopped,
            "state": shown_place(state),
            "refused": None if durable.refused is None else str(durable.refused),
        }
    )


def _tell_durable(durable: "DurableRun", state: str) -> None:
    from pianissimo.storage.postgres import shown_place

    loop, place = durable.loop, shown_place(state)
    if not durable.created and loop.tick == 0:
        click.echo("\nIt was told to stop before the stream was begun; nothing was charged or released")
        return
    begun = "began" if durable.created else f"went on at tick {loop.first_tick}"
    click.echo(f"\nThe stream {begun}; {loop.tick} of {loop.last_tick} ticks are released in {place}")
    if loop.stopped:
        click.echo("It was told to stop; the same command goes on.")
    if durable.refused is not None:
        click.echo(f"Rows were refused; see {durable.refused}")
    click.echo(f"Look at the last one: pianissimo releases {place} --last 1")


@click.command()
@click.argument("place", metavar="DIR")
@click.option("--query", metavar="NAME", help="Show this query only.")
@click.option("--tick", type=NUMBER, help="Show this tick only.")
@click.option("--last", type=NUMBER, help="Show this many of the last ticks.")
@json_option
def releases(*, place: str, query: str | None, tick: int | None, last: int | None, as_json: bool) -> None:
    """Show what was released into the folder DIR, or by the durable stream in DIR or at a postgresql:// URL.

    All queries and all ticks are shown unless you choose. For an alarm or a trend, one table shows the ticks at which
    it rang.
    """
    from rich.text import Text

    from pianissimo.cli.render import console, release_table, rings_table
    from pianissimo.demo import is_demo, read_demo
    from pianissimo.io import last_tick, read_plan, read_releases
    from pianissimo.io.inspect import is_state, stored_plan, stored_releases, visible_tick

    if tick is not None and last is not None:
        raise click.UsageError("--tick or --last must be given alone, got both")
    durable, folder = is_state(place), Path(place)
    tables = read_demo(folder) if is_demo(folder) else stored_releases(place) if durable else read_releases(folder)
    if query is not None and query not in tables:
        raise InputError(f"query must be one of {', '.join(tables) or 'none'}, got {query!r}")
    plan = {} if is_demo(folder) else stored_plan(place) if durable else read_plan(folder)
    queries = plan.get("queries", [])
    every = {each["name"]: each["every"] for each in queries}
    # A tick at which no label passed its threshold and no alarm rang has no row, and was released all the same.
    seen = visible_tick(place) if durable else last_tick(folder)
    end = seen or max((number for table in tables.values() for number in table["tick"].tail(1)), default=0)
    ticks = _chosen_ticks(end, tick, last)
    watched = [] if as_json else [each["name"] for each in queries if each["kind"] in _WATCHED]
    terminal = console()
    for number, name, rows in _chosen(tables, query, ticks, every):
        if as_json:
            echo_json({"tick": number, "query": name, "release": rows.to_dicts()})
        elif name not in watched:
            terminal.print(release_table(f"{name}, tick {number}", rows), Text())
    for name in watched:
        if name in tables and query in (None, name):
            terminal.print(rings_table(name, tables[name], ticks), Text())


def _chosen_ticks(end: int, tick: int | None, last: int | None) -> range:
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
                yield number, name, table.slice(begin, stop - begin).drop("tick")


@click.command()
@click.argument("target", metavar="FILE|MECHANISM")
@click.option(
    "--runs",
    type=click.IntRange(min=1000),
    default=100_000,
    show_default=True,
    help="How often each of two neighboring streams is run. More runs find smaller breaches.",
)
@json_option
def audit(*, target: str, runs: int, as_json: bool) -> None:
    """Try to break what the stream in FILE, or a MECHANISM such as counter-haar, promises.

    Many runs on neighboring streams give a lower bound on the real privacy loss. The exit code is 1 if the bound is
    above the claim.
    """
    from pianissimo.cli.audited import audit_all, audit_tables, has_violation, mechanisms_of, to_plain
    from pianissimo.cli.render import console, progress_bar

    mechanisms = mechanisms_of(target)
    with progress_bar("runs") as progress:
        reports = audit_all(mechanisms, runs=runs, progress=progress)
    if as_json:
        echo_json(to_plain(reports), indent=2)
    else:
        console().print(audit_tables(reports))
    if has_violation(reports):
        sys.exit(1)
