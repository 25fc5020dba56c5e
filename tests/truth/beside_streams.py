"""The bars of what is released once: sketches, and answers about a table."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import polars as pl
from tests.truth import plain_truth as plain
from tests.truth.bars import Seen, narrowed, seen
from tests.truth.generated_rows import DOMAIN, PLACES, TICKS, Row
from tests.truth.looked import DATA, oracle

import pianissimo as pp
from pianissimo.noise import Noise
from pianissimo.sketches import (
    CorrelatedHistogram,
    MisraGries,
    PrivacyAwareMisraGries,
    PrivateMisraGries,
    merge_in_order,
)
from pianissimo.table import StepAllowance, Table

TABLE_RUNS = 40
"""How many runs ask one table, before its budget is spent."""


def keys_of(seed: int) -> list[str]:
    return [label for row in oracle(seed).rows.between(0, TICKS) if (label := plain.label_of(row, "place")) is not None]


def sketched(run: int, noise: Noise, factor: float) -> Iterator[list[Seen]]:
    """One release of each kind of sketch; bars hold all shown keys at once."""
    keys = pl.Series(keys_of(run % DATA), dtype=pl.String)
    true = plain.each_label("place")(oracle(run % DATA).rows.between(0, TICKS))
    one, *halves = (MisraGries(k=16, keys="text", name=f"{place}") for place in range(3))
    one.update(keys)
    halves[0].update(keys[::2])
    halves[1].update(keys[1::2])
    sets = PrivacyAwareMisraGries(k=16, keys="text")
    lists = [labels for row in oracle(run % DATA).rows.between(0, TICKS) if (labels := plain.labels_of(row, None))]
    sets.update(pl.Series(lists, dtype=pl.List(pl.String)))
    together = CorrelatedHistogram.calibrated(k=16, epsilon=4, delta=1e-6)
    tables: dict[str, tuple[Any, plain.Truth]] = {
        "sketch": (
            PrivateMisraGries.calibrated(k=16, epsilon=1, delta=1e-6).release(one.contents(), noise.at("one")),
            true,
        ),
        "sketch, merged": (together.release(merge_in_order(halves).contents(), noise.at("merged"), epsilon=4), true),
        "sketch of sets": (
            together.release(sets.contents(), noise.at("sets"), epsilon=4),
            plain.each_tag(None)(oracle(run % DATA).rows.between(0, TICKS)),
        ),
    }
    found = []
    for name, (release, truth) in tables.items():
        bars = [narrowed(bar, factor) for bar in release.to_frame().to_dicts()]
        every = [seen(name, "all shown keys at once", bar, truth.get(bar["key"], 0)) for bar in bars]
        if every:
            found.append(Seen(name, every[0].about, every[0].ends, all(each.held for each in every)))
    yield found


@cache
def members(seed: int) -> list[Row]:
    """Rows of a table: each user has her first label three times, her second twice and others once."""
    rows = []
    held: dict[str, list[str]] = {}
    for row in oracle(seed).rows.between(0, TICKS):
        label = plain.label_of(row, "place")
        mine = held.setdefault(row["user"] or "", [])
        if row["user"] is not None and label is not None and label not in mine and len(mine) < 3:
            mine.append(label)
            rows += [{"user": row["user"], "place": label}] * (4 - len(mine))
    return [*rows, {"user": None, "place": "north"}, {"user": "u1", "place": None}]


@cache
def users_of(seed: int, most: int | None) -> plain.Truth:
    """How many users there are, and how many have each label among so many that they have in most rows."""
    rows = members(seed)
    held: dict[str, dict[str, None]] = {}
    for row in rows:
        if row["user"] is not None and row["place"] is not None:
            held.setdefault(row["user"], {}).setdefault(row["place"])
    found: plain.Truth = {label: sum(label in list(mine)[:most] for mine in held.values()) for label in PLACES + DOMAIN}
    return found | {None: len({row["user"] for row in rows} - {None})}


@cache
def table_of(seed: int, used: int) -> Table:
    """A table whose budget lasts for some runs."""
    allowance = StepAllowance.of(pp.Budget(40, 1e-3), steps=300 * TABLE_RUNS, questions=3 * TABLE_RUNS)
    return Table(
        pl.DataFrame(members(seed), schema={"user": pl.String, "place": pl.String}), user="user", budget=allowance
    )


def answered(run: int, noise: Noise, factor: float) -> Iterator[list[Seen]]:
    """Questions to a table: of distinct users, or of the labels that each has in most of her rows."""
    table = table_of(run % DATA, run // TABLE_RUNS)
    asked: dict[str, tuple[Callable[[], Any], int | None]] = {
        "table.count": (lambda: table.count(steps=40), None),
        "table.histogram": (lambda: table.histogram("place", domain=DOMAIN, steps=100), None),
        "table.histogram, 1 label a user": (lambda: table.histogram("place", max_keys_per_user=1, steps=100), 1),
        "table.top_k": (lambda: table.top_k("place", 4, counts=True), None),
        "table.top_k, 2 labels a user": (lambda: table.top_k("place", 4, max_keys_per_user=2, counts=True), 2),
    }
    found = []
    for place, (name, (ask, most)) in enumerate(asked.items()):
        table._noise = lambda: noise.at("question", place)  # noqa: B023
        answer = ask().table
        assert ("max_keys_per_user" in answer.columns) == (most is not None), name
        truth = users_of(run % DATA, most)
        for bar in answer.to_dicts():
            about = "users" if most is None else "users by the labels that count"
            found.append(seen(name, about, narrowed(bar, factor), truth.get(bar.get("key"), 0)))
    yield found
