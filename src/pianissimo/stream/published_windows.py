"""What two published totals tell of the time between them: windows without the stream that released them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import polars as pl

from pianissimo.checks import check_at_least, ticks_in
from pianissimo.errors import InputError, ParameterError
from pianissimo.stream.release import StreamRelease
from pianissimo.stream.user_windows import UserDifferences, no_differences, told_cap
from pianissimo.unit import User

if TYPE_CHECKING:
    from pianissimo.stream.stream_plan import QueryPlan, StreamPlan


def windowless(plan: "StreamPlan", ticks: int) -> dict[str, str]:
    """Why some queries of a plan have no windows of so many ticks as the difference of two releases."""
    told = {each.query.name: each.query.no_window(each.mechanism, ticks) for each in plan.queries}
    if isinstance(plan.unit, User):
        told |= {name: told[name] or reason for name, reason in no_differences(plan).items()}
    return {name: reason for name, reason in told.items() if reason}


def windows_of(
    plan: "StreamPlan", releases: Sequence[StreamRelease], length: object, *, after: int = 0
) -> list[StreamRelease]:
    """What a length of time up to each of the releases of a run added, as far as two of them tell it.

    They are the first ones, or all that come `after` so many that are gone: windows that begin amid those are left out.
    """
    ticks = ticks_in(length, plan.tick)
    check_at_least(1, window=ticks)
    windows, differences = (
        PublishedWindows(plan, ticks),
        differences_of(plan, [told_caps(plan, each) for each in releases]),
    )
    if after and differences:
        raise InputError(
            "windows of users must be told from all releases of a run, got one of which retention removed the first; "
            "ask the open stream for a window, or publish one with `per`"
        )
    found = [
        windows.between((begin, place), (releases[begin - after - 1] if begin else None, release), differences)
        for place, release in enumerate(releases, after + 1)
        if not 0 < (begin := max(0, place - ticks)) <= after
    ]
    if releases and not found:
        raise InputError(
            f"a window must begin at a tick that is kept, got one of {ticks} ticks, and retention has left "
            f"{len(releases)}; ask the open stream for it"
        )
    return found


def differences_of(plan: "StreamPlan", caps: Sequence[Mapping[str, float | None]]) -> Mapping[str, UserDifferences]:
    """Where users are hidden, how the totals of each query differ, given the caps that each release told of it."""
    if not isinstance(plan.unit, User):
        return {}
    most = plan.unit.most_events_per_user
    return {
        each.query.name: UserDifferences(each, [told[each.query.name] for told in caps], most)
        for each in _with_differences(plan)
    }


def told_caps(plan: "StreamPlan", release: Mapping[str, pl.DataFrame]) -> Mapping[str, float | None]:
    """The cap that a release tells of each query whose totals differ under one; none where events are hidden."""
    return {each.query.name: told_cap(each, release) for each in _with_differences(plan)}


def _with_differences(plan: "StreamPlan") -> "list[QueryPlan]":
    if not isinstance(plan.unit, User):
        return []
    without = no_differences(plan)
    return [
        each
        for each in plan.queries
        if each.query.name not in without and not each.query.no_window(each.mechanism, each.query.every)
    ]


class PublishedWindows:
    """What two releases of a run tell of so many ticks between them, with the bars of their difference."""

    def __init__(self, plan: "StreamPlan", ticks: int) -> None:
        self._plan = plan
        self.without = windowless(plan, ticks)
        """Why some queries have no such windows."""

        if len(self.without) == len(plan.queries):
            name, reason = next(iter(self.without.items()))
            raise ParameterError(f"a window must be of a query whose totals tell it, got none; {name!r}: {reason}")

    def between(
        self,
        places: tuple[int, int],
        releases: tuple[StreamRelease | None, StreamRelease],
        differences: Mapping[str, UserDifferences],
    ) -> StreamRelease:
        """What came after the first of two places of the run up to the second; from place 0 on, the totals."""
        (begin, place), (first, release), plan = places, releases, self._plan
        tables, since = {}, {}
        for each in plan.queries:
            name, every = each.query.name, each.query.every
            if name in self.without or name not in release:
                continue
            table = release.bare_tables[name]
            tables[name] = each.query.unnamed(table.drop("tidy") if "tidy" in table.columns else table)
            if "key" in tables[name].columns:
                # The row of labels that are not shown is of the totals: of windows it would tell nothing.
                tables[name] = tables[name].filter(pl.col("key").is_not_null())
            if first is not None:
                before, now, coverage = each.query.unnamed(first.bare_tables[name]), tables[name], release.coverage
                if name in differences:
                    tables[name] = differences[name].table(before, now, (begin, place), coverage)
                else:
                    ends = (begin // every, place // every)
                    tables[name] = each.query.window_table(each.mechanism, before, now, ends, coverage)
                start = release.tick - place + begin
                since[name] = start if plan.calendar is None else plan.calendar.start(start + 1)
            tables[name] = each.query.named(tables[name])
        told = {name: each for name, each in release.since.items() if name in tables} | since
        parts = (release.tick, release.coverage, tables, None, release.start, release.end, told)
        return StreamRelease(*parts, about=plan.about)
