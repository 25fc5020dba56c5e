"""The command that shows what was released: `releases`."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pianissimo.checks import number_or_text
from pianissimo.cli import NUMBER, arguments, echo_json, json_option, named_place
from pianissimo.errors import InputError

if TYPE_CHECKING:
    import polars as pl


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

    from pianissimo.cli.render import console, release_table, rings_table
    from pianissimo.demo.pharmacy import is_demo, pharmacy_stream, read_demo
    from pianissimo.io import last_tick, read_plan, read_releases
    from pianissimo.io.inspect import is_state, seen_releases
    from pianissimo.queries.shared.watching import EXHAUSTED
    from pianissimo.stream.calendar import calendar_of, moment_text
    from pianissimo.stream.shown.legends import legend
    from pianissimo.stream.shown.plan_table import WATCHED, about_told, in_window
    from pianissimo.stream.shown.told_rows import is_cut_at_zero

    if tick is not None and last is not None:
        raise click.UsageError("--tick or --last must be given alone, got both")
    folder = Path(place)
    length = None if window is None else number_or_text(window)
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
    calendar, coverage = calendar_of(plan), plan.get("coverage", coverage)
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
            is_cut = is_cut_at_zero(planned.get(name), planned)
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
