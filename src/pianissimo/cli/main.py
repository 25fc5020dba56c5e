"""`pianissimo` in a terminal: a demo, what a stream file promises, running it, what was released, attacking it.

With `--json` standard output holds JSON and nothing else. Exit codes: 0 done, 2 a file or an argument that must be
mended, 3 a durable stream that must not go on as it is, 4 one that another process runs, 5 a store that cannot be
written, 1 anything else. A second SIGINT or SIGTERM ends the process by that signal.
"""

import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import click
import polars as pl
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

import pianissimo
from pianissimo.budget import Budget
from pianissimo.cli.audit import audit_all, audit_tables, has_violation, mechanisms_of, to_plain
from pianissimo.cli.durable import COMMANDS
from pianissimo.cli.sketch import sketch
from pianissimo.demo import (
    TRUTH_NOTE,
    DemoFolder,
    Record,
    Screen,
    check_demo,
    is_demo,
    open_demo,
    pharmacy_batches,
    read_demo,
    summary,
    window_at,
)
from pianissimo.errors import (
    InputError,
    LeaseError,
    ParameterError,
    PianissimoError,
    RefusalError,
    SpecError,
    StoreError,
)
from pianissimo.io import last_tick, read_plan, read_releases, run_file
from pianissimo.io.inspect import is_state, shown_ledger, stored_plan, stored_releases, visible_tick
from pianissimo.io.run_durable import run_durably, stop_on_signals
from pianissimo.ledger import Head, Ledger, LocalWitness, history, history_tables, key_file
from pianissimo.storage.postgres import shown_place
from pianissimo.stream import StreamPlan, plan_tables
from pianissimo.stream.spec import FileFormat, LiveSource, StreamSpec, load_spec
from pianissimo.table import Table as AskedTable
from pianissimo.table.answers import answer_table
from pianissimo.table.table import QUESTIONS, STEPS

_WIDTH_WITHOUT_TERMINAL = 120
_WATCHED = ("alarm", "trending")
_PATH = click.Path(path_type=Path)

_json_option = click.option("--json", "as_json", is_flag=True, help="JSON alone on standard output.")


class _BadFile(click.ClickException):
    """A file that must be mended first."""

    exit_code = 2


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
            raise _BadFile(str(error)) from error
        except (RefusalError, LeaseError, StoreError) as error:
            code = 3 if isinstance(error, RefusalError) else 4 if isinstance(error, LeaseError) else 5
            raise _Stopped(str(error), code) from error
        except PianissimoError as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(pianissimo.__version__, prog_name="pianissimo")
def cli() -> None:
    """Statistics of event streams, released again and again, under one privacy promise."""


cli.add_command(sketch)


def main() -> None:
    """Run the command line."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            # Closed by whoever started this. Its number must not be taken by a file that is opened next.
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # an old terminal shows "?" for a sign it does not have
    cli()


@cli.command()
@click.option("--ticks", type=click.IntRange(min=1), default=30, show_default=True, help="How many ticks to release.")
@click.option("--out", type=_PATH, default=Path("demo-output"), show_default=True, help="The folder to write to.")
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Of the data; noise has none.")
@_json_option
def demo(*, ticks: int, out: Path, seed: int, as_json: bool) -> None:
    """Watch a generated stream being released.

    A running count, the drugs that pass a threshold, a top list of shops, and what the last hours added. The events
    are made up, so their truth is shown beside the releases: as text and as a picture. Stopped with Ctrl-C, or killed,
    it goes on where it was.
    """
    console = _console(stderr=as_json)
    record = Record()
    check_demo(out)
    with open_demo(out, ticks, seed) as live, stop_on_signals() as stop:
        console.print(plan_tables(live.plan.to_dict()))
        click.echo(f"\n{TRUTH_NOTE}\n", err=as_json)
        begun = live.tick_number
        if begun:
            click.echo(f"A demo was stopped here after tick {begun}: it goes on.\n", err=as_json)
        with DemoFolder(out, live.plan) as folder, Screen(console, ticks=ticks) as screen:
            for tick, batch in enumerate(pharmacy_batches(ticks, seed), 1):
                release = live.released(tick) if tick <= begun else live.tick(batch)
                window = window_at(live, tick)
                record.observe(batch, release, window)
                folder.write(release, window)
                if as_json:
                    _echo_json(release.to_json())
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


@cli.command()
@click.argument("file", type=_PATH)
@_json_option
def plan(*, file: Path, as_json: bool) -> None:
    """Show what FILE promises, before any data.

    For each query: the mechanism, the noise, the share of the budget and the error to expect.
    """
    content = _plan_of(load_spec(file), file).to_dict()
    if as_json:
        _echo_json(json.dumps(content, indent=2, ensure_ascii=False))
    else:
        _console().print(plan_tables(content))


@cli.command()
@click.argument("file", type=_PATH)
@click.option("--out", type=_PATH, help="The folder to write releases to; needed without --state.")
@click.option("--format", type=click.Choice(get_args(FileFormat)), default="parquet", show_default=True)
@click.option("--state", metavar="DIR", help="A folder or a postgresql:// URL: the stream can be killed and goes on.")
@click.option("--secret", metavar="PATH|env:NAME|command:WORDS", help="With --state.  [default: DIR.secret]")
@click.option("--witness", type=_PATH, help="With --state; best on another disk.  [default: DIR.witness]")
@click.option("--take-over", is_flag=True, help="With --state: from a process that hangs.")
@click.option("--ledger", metavar="PLACE", help="With --state: the data set's ledger.  [default: in DIR]")
@click.option("--ledger-key", metavar="PATH", help="The file with that ledger's key, or the secret of its stream.")
@click.option("--cap", type=(float, float), metavar="EPSILON DELTA", help="Of all that share the ledger; makes it.")
@click.option("--health", type=_PATH, help="With --state: a file that says how it is.  [default: DIR/health.json]")
@click.option("--metrics", metavar="HOST:PORT", help="With --state: figures for Prometheus, without data.")
@click.option(
    "--longest-leap",
    metavar="TICKS",
    type=click.IntRange(min=1),
    help="Of the clock.  [default: an eighth of all, a minute at least, 1440 at most]",
)
@click.option("--quiet", is_flag=True, help="Alarms and trends alone: no plan, no bar, no closing words.")
@_json_option
def run(
    *,
    file: Path,
    out: Path | None,
    format: FileFormat,  # noqa: A002
    state: str | None,
    secret: str | None,
    witness: Path | None,
    take_over: bool,
    ledger: str | None,
    ledger_key: str | None,
    cap: tuple[float, float] | None,
    health: Path | None,
    metrics: str | None,
    longest_leap: int | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Release the stream in FILE, tick after tick.

    The data are those that FILE names. Rows that cannot be read go to a file beside the releases. Alarms and trends
    are printed as they come, a line each, after they were stored. With --state every tick is stored, and whenever the
    command is stopped or killed, the same command goes on where it was. Sources that go on (follow, stdin, kafka) and
    sinks need it.
    """
    # First of all: a signal while the plan is made ends the command as one that comes later does.
    stop = None if state is None else click.get_current_context().with_resource(stop_on_signals())
    spec = load_spec(file)
    if state is None and (isinstance(spec.source, LiveSource) or spec.sinks):
        raise click.UsageError("--state must be given where the source goes on or the file has sinks, got nothing")
    content = _plan_of(spec, file).to_dict()
    if not quiet:
        _console(stderr=as_json).print(plan_tables(content))
    rang = _echo_ring_as_json if as_json else _echo_ring
    hidden = quiet or (as_json and sys.stdout.isatty())
    if state is not None:
        try:
            with _progress(hidden=hidden) as progress:
                durable = run_durably(
                    spec,
                    state,
                    secret=secret,
                    witness=witness,
                    out=out,
                    format=format,
                    take_over=take_over,
                    ledger=ledger,
                    ledger_key=ledger_key,
                    cap=None if cap is None else Budget(*cap),
                    progress=progress,
                    rang=rang,
                    health=health,
                    metrics=metrics,
                    longest_leap=longest_leap,
                    stop=stop,
                )
        except ParameterError as error:
            raise _BadFile(str(error)) from error
        loop = durable.loop
        if as_json:
            refused = None if durable.refused is None else str(durable.refused)
            told = {
                "ticks": loop.tick,
                "first_tick": loop.first_tick,
                "stopped": loop.stopped,
                "state": shown_place(state),
            }
            _echo_json(json.dumps({**told, "refused": refused}))
            return
        if quiet:
            return
        if not durable.created and loop.tick == 0:
            click.echo("\nIt was told to stop before the stream was begun; nothing was charged or released")
            return
        begun = "began" if durable.created else f"went on at tick {loop.first_tick}"
        click.echo(f"\nThe stream {begun}; {loop.tick} of {loop.last_tick} ticks are released in {shown_place(state)}")
        if loop.stopped:
            click.echo("It was told to stop; the same command goes on.")
        if durable.refused is not None:
            click.echo(f"Rows were refused; see {durable.refused}")
        click.echo(f"Look at the last one: pianissimo releases {shown_place(state)} --last 1")
        return
    if out is None:
        raise click.UsageError("--out or --state must be given, got neither")
    with _progress(hidden=hidden) as progress:
        done = run_file(spec, out, format=format, progress=progress, rang=rang)
    if as_json:
        refused = None if done.refused is None else str(done.refused)
        _echo_json(json.dumps({"ticks": done.ticks, "folder": str(done.folder), "refused": refused}))
        return
    if not quiet:
        click.echo(f"\n{done.ticks} ticks are released in {done.folder}")
    if done.refused is not None:
        click.echo(f"Rows were refused; see {done.refused}", err=quiet)
    if not quiet:
        click.echo(f"Look at the last one: pianissimo releases {done.folder} --last 1")


@cli.command()
@click.argument("place", metavar="DIR")
@click.option("--query", metavar="NAME", help="This query alone.")
@click.option("--tick", type=click.IntRange(min=1), help="This tick alone.")
@click.option("--last", type=click.IntRange(min=1), help="The last so many ticks.")
@_json_option
def releases(*, place: str, query: str | None, tick: int | None, last: int | None, as_json: bool) -> None:
    """Show what was released into DIR, or into the durable stream there or at a postgresql:// URL.

    All queries and all ticks, or those asked for; of an alarm or a trend, in one table, the ticks at which it rang.
    """
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
    console = _console()
    for number, name, rows in _chosen(tables, query, ticks, every):
        if as_json:
            found = {"tick": number, "query": name, "release": rows.to_dicts()}
            _echo_json(json.dumps(found, ensure_ascii=False))
        elif name not in watched:
            console.print(_release_table(f"{name}, tick {number}", rows), Text())
    for name in watched:
        if name in tables and query in (None, name):
            console.print(_rings_table(name, tables[name], ticks), Text())


@cli.command()
@click.argument("target", metavar="FILE|MECHANISM")
@click.option("--runs", type=click.IntRange(min=1000), default=100_000, show_default=True, help="Of each stream.")
@_json_option
def audit(*, target: str, runs: int, as_json: bool) -> None:
    """Try to break what FILE, or a MECHANISM such as counter-haar, promises.

    Many runs on neighboring streams give a lower bound on the real loss. Exit code 1 if it is above the claim.
    """
    mechanisms = mechanisms_of(target)
    with _progress("runs") as progress:
        reports = audit_all(mechanisms, runs=runs, progress=progress)
    if as_json:
        _echo_json(json.dumps(to_plain(reports), indent=2, ensure_ascii=False))
    else:
        _console().print(audit_tables(reports))
    if has_violation(reports):
        sys.exit(1)


@cli.command()
@click.argument("place")
@click.option("--key", type=_PATH, help="The file with the ledger's key.  [default: PLACE.key, if there is one]")
@click.option("--witness", metavar="COUNT:DIGEST", help="What this command showed before; finds entries cut off since.")
@_json_option
def budget(*, place: str, key: Path | None, witness: str | None, as_json: bool) -> None:
    """Show the ledger at PLACE: a file, the folder of a durable stream, or a postgresql:// URL.

    Who asked what, when (UTC), what it cost and what is left. Exit code 1 if it cannot be verified.
    """
    beside = Path(f"{place}.key")
    if key is None and "://" not in place and beside.exists():
        key = beside
    secret = None if key is None else key_file(key, create=False)
    if secret is None:
        place, secret = shown_ledger(place)
    with Ledger.open(place, key=secret, read_only=True) as ledger:
        content = history(ledger, *_witnesses(witness, key))
    if as_json:
        _echo_json(json.dumps(content, indent=2, ensure_ascii=False))
    else:
        _console().print(history_tables(content))
    if not content["verified"]:
        sys.exit(1)


def _witnesses(given: str | None, key: Path | None) -> list[Head]:
    """What was seen before: as it is given, and as the file beside the key says."""
    local = None if key is None else LocalWitness(Path(f"{key}.head")).read()
    return [head for head in (None if given is None else Head.parse(given), local) if head is not None]


@cli.command("top-k")
@click.argument("url")
@click.argument("table")
@click.argument("column")
@click.option("-k", type=click.IntRange(min=1), default=10, show_default=True, help="How many labels at most.")
@click.option("--user", required=True, help="The column that says whose row it is.")
@click.option("--ledger", help="A file or a postgresql:// URL.  [default: a file beside the data]")
@click.option("--key", type=_PATH, help="The file with the ledger's key.  [default: beside a ledger that is a file]")
@click.option("--witness", metavar="COUNT:DIGEST", help="What `pianissimo budget` showed; refuses an older ledger.")
@click.option("--epsilon", type=float, required=True, help="For all answers together, for ever.")
@click.option("--delta", type=float, required=True, help="For all answers together, for ever.")
@click.option("--where", help="A predicate over one row, such as \"country = 'DE'\".")
@click.option("--k-bar", type=click.IntRange(min=1), help="How many labels to look at.  [default: chosen for you]")
@click.option("--delta-items", type=click.IntRange(min=1), help="How many labels of one user count.  [default: all]")
@click.option("--counts", is_flag=True, help="A count with each label, for another step each.")
@click.option("--steps", type=click.IntRange(min=1), default=STEPS, show_default=True, help="Over all time.")
@click.option("--questions", type=click.IntRange(min=1), default=QUESTIONS, show_default=True, help="Over all time.")
@click.option("--explain", is_flag=True, help="Show the plan and the SQL; ask nothing and pay nothing.")
@_json_option
def top_k(
    *,
    url: str,
    table: str,
    column: str,
    k: int,
    user: str,
    ledger: str | None,
    key: Path | None,
    witness: str | None,
    epsilon: float,
    delta: float,
    where: str | None,
    k_bar: int | None,
    delta_items: int | None,
    counts: bool,
    steps: int,
    questions: int,
    explain: bool,
    as_json: bool,
) -> None:
    """Ask TABLE of the database at URL for the labels of COLUMN that most users have.

    It pays for what comes back: a step for each label, and one if the list ends because no further label stands out.
    """
    try:
        with AskedTable(
            url,
            table,
            user=user,
            budget=Budget(epsilon, delta),
            ledger=ledger,
            key=key,
            witness=witness,
            steps=steps,
            questions=questions,
        ) as asked:
            plan = asked.plan.top_k(
                column, k, where=where, k_bar=k_bar or "auto", delta_items=delta_items, counts=counts
            )
            if explain:
                if as_json:
                    _echo_json(json.dumps(plan.to_dict(), indent=2, ensure_ascii=False))
                else:
                    click.echo(str(plan))
                return
            answer = asked.top_k(column, k, where=where, k_bar=k_bar or "auto", delta_items=delta_items, counts=counts)
    except ParameterError as error:
        raise _BadFile(str(error)) from error
    if as_json:
        _echo_json(json.dumps(answer.to_dict(), indent=2, ensure_ascii=False))
    else:
        _console().print(answer_table(f"{column} by {user}", answer))


def _chosen_ticks(end: int, tick: int | None, last: int | None) -> range:
    """The ticks that were asked for, of those up to `end`."""
    if tick is not None and tick > end:
        raise InputError(f"tick must be at most {end}, the last one released, got {tick}")
    first = tick or (1 if last is None else max(1, end - last + 1))
    return range(first, (tick or end) + 1)


def _chosen(
    tables: Mapping[str, pl.DataFrame], query: str | None, shown: range, every: Mapping[str, int]
) -> Iterator[tuple[int, str, pl.DataFrame]]:
    """The tables of the ticks and queries that were asked for, tick after tick, where they were published."""
    # Rows are in the order of their ticks, so those of one are a slice.
    edges = pl.Series([*shown, shown.stop], dtype=pl.Int64)
    bounds = {name: table["tick"].search_sorted(edges, side="left") for name, table in tables.items()}
    for place, number in enumerate(shown):
        for name, table in tables.items():
            if query in (None, name) and number % every.get(name, 1) == 0:
                begin, stop = bounds[name][place], bounds[name][place + 1]
                yield number, name, table.slice(begin, stop - begin).drop("tick")


def _rings_table(name: str, table: pl.DataFrame, ticks: range) -> Table | Text:
    """When an alarm or a trend rang, most often never."""
    rows = table.filter(pl.col("tick").is_between(ticks.start, ticks.stop - 1))
    span = f"tick {ticks.start}" if len(ticks) == 1 else f"ticks {ticks.start} to {ticks.stop - 1}"
    if not rows.height:
        return Text(f"{name}, {span}: silent", style="bold")
    return _release_table(f"{name}, {span}", rows)


def _release_table(title: str, rows: pl.DataFrame) -> Table:
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        header_style="dim",
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    for column, kind in rows.schema.items():
        table.add_column(column, justify="right" if kind.is_numeric() else "left")
    if "key" in rows.columns:
        # The row without key, of all labels that are not shown, stays the last.
        order = [pl.col("key").is_null(), -pl.col("estimate")]
        rows = rows.sort([pl.col("tick"), *order] if "tick" in rows.columns else order, maintain_order=True)
    for row in rows.iter_rows():
        table.add_row(*map(_cell, row))
    return table


def _cell(value: object) -> Text:
    if value is None:
        return Text("all that are not shown", style="italic")
    if isinstance(value, int | float):
        return Text(f"{value:,}")
    text = str(value)
    return Text(text if text.isprintable() else _quoted(text))


def _quoted(label: str) -> str:
    """A label as JSON writes it: on one line, and without codes that a terminal would follow."""
    return json.dumps(label, ensure_ascii=not label.isprintable())


def _plan_of(spec: StreamSpec, file: Path) -> StreamPlan:
    try:
        return spec.stream.plan()
    except ParameterError as error:
        raise SpecError(f"{file}: {error}") from error


def _console(*, stderr: bool = False) -> Console:
    console = Console(stderr=stderr)
    if not console.is_terminal:
        console.width = _WIDTH_WITHOUT_TERMINAL
    return console


def _echo_ring(tick: int, query: str, row: Mapping[str, Any]) -> None:
    what = f"{query} {_quoted(row['key'])}" if "key" in row else query
    text = f"tick {tick}  {what}: about {row['estimate']} users ({row['low']} to {row['high']})"
    # To sys.stdout as it is now: left to itself, click writes past the bar that may stand there.
    click.echo(text, file=sys.stdout)


def _echo_ring_as_json(tick: int, query: str, row: Mapping[str, Any]) -> None:
    _echo_json(json.dumps({"tick": tick, "query": query, **row}, ensure_ascii=False))


def _echo_json(text: str) -> None:
    # As bytes: JSON is UTF-8, whatever the terminal's encoding is.
    click.echo(text.encode())


@contextmanager
def _progress(unit: str = "ticks", *, hidden: bool = False) -> Iterator[Callable[..., None]]:
    """A bar on standard error, if a person watches. What is printed meanwhile comes above it."""
    console = _console(stderr=True)
    columns = (
        TextColumn(unit),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[behind]}"),
    )
    # Redirected, standard output would reach the bar's console, and not the file or the program that it is for.
    redirect = sys.stdout.isatty()
    with Progress(
        *columns, console=console, disable=hidden or not console.is_terminal, redirect_stdout=redirect
    ) as bar:
        task = bar.add_task(unit, total=None, behind="")

        def advance(done: int, total: int, lag: int = 0) -> None:
            bar.update(task, completed=done, total=total, behind=f"{lag} behind" if lag else "")

        yield advance


for _command in COMMANDS:
    cli.add_command(_command)
