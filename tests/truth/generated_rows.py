"""Events as they are where people are: few who do most, bots, nulls, odd values, ticks without any event."""

import math
import random
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import Any

import polars as pl

Row = dict[str, Any]

TICKS = 4
EMPTY_TICK = 3
LONG = "l" * 257
PLACES = ["", "north", "south", "été", "x" * 256, "(null)", *(f"place {number}" for number in range(40))]
"""Texts: none at all, of two bytes a letter, as long as a label may be; and a tail."""

DOMAIN = ["", "north", "south", "été", "x" * 256, "place 0", "place 7", "where nobody is"]
TAGS = [f"tag {number}" for number in range(12)]
DAYS = [date(2026, 1, day) for day in range(28, 32)]

SCHEMA: dict[str, Any] = {
    "user": pl.String,
    "place": pl.String,
    "code": pl.Int64,
    "flag": pl.Boolean,
    "day": pl.Date,
    "amount": pl.Float64,
    "tags": pl.List(pl.String),
    "copies": pl.Int64,
    "change": pl.Int64,
}


def zipf(chance: random.Random, count: int, power: float) -> int:
    """A number from 0 to count - 1, small ones far more often."""
    return min(int(count * chance.random() ** power), count - 1)


def amount(chance: random.Random) -> float | None:
    """A heavy tail, and what stands where a number should."""
    odd: list[float | None] = [None, None, None, math.nan, math.inf, -math.inf, -0.0, 1e12, -1e12, -7.3, 600.0, 5e-324]
    return chance.choice(odd) if chance.random() < 0.15 else math.exp(chance.gauss(3.3, 1.4))


def tags(chance: random.Random) -> list[str | None] | None:
    """Some labels, some of them twice; sometimes none, or one that is missing."""
    if chance.random() < 0.05:
        odd: list[list[str | None] | None] = [None, [], [None], ["tag 1", None], [LONG, "tag 2"]]
        return chance.choice(odd)
    return [TAGS[zipf(chance, len(TAGS), 2.0)] for _ in range(zipf(chance, 6, 1.5) + 1)]


def row(chance: random.Random, user: str | None) -> Row:
    """One event."""
    place = PLACES[zipf(chance, len(PLACES), 3.0)]
    return {
        "user": user,
        "place": chance.choice([None, None, None, LONG]) if chance.random() < 0.06 else place,
        "code": None if chance.random() < 0.03 else zipf(chance, 9, 2.0) - 1,
        "flag": None if chance.random() < 0.03 else chance.random() < 0.3,
        "day": None if chance.random() < 0.03 else chance.choice(DAYS),
        "amount": amount(chance),
        "tags": tags(chance),
        "copies": None if chance.random() < 0.03 else zipf(chance, 30, 3.0),
        "change": 1 if chance.random() < 0.8 else -1,
    }


@dataclass(frozen=True)
class Rows:
    """The events of a stream, tick after tick, as a seed makes them."""

    seed: int

    @cached_property
    def ticks(self) -> list[list[Row]]:
        """Rows of each tick; a third of the users bring most, and two bots more than anybody."""
        chance = random.Random(self.seed)
        found: list[list[Row]] = []
        for tick in range(1, TICKS + 1):
            users: list[str | None] = [f"u{zipf(chance, 700, 2.5)}" for _ in range(600)]
            users += [f"u{number}" for number in chance.sample(range(700), 80 * tick)]
            users += ["bot 1"] * 90 + ["bot 2"] * (150 if tick == 4 else 0) + [None] * 15
            chance.shuffle(users)
            found.append([] if tick == EMPTY_TICK else [row(chance, user) for user in users])
        return found

    @cached_property
    def frames(self) -> list[pl.DataFrame]:
        """The same as tables."""
        return [pl.DataFrame(rows, schema=SCHEMA) for rows in self.ticks]

    def between(self, start: int, end: int) -> list[Row]:
        """The rows of ticks start + 1 .. end, in their order."""
        return [each for rows in self.ticks[start:end] for each in rows]
