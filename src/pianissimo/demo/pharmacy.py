"""Generated pharmacies: usual drugs, a flu wave, a new drug, a thousand labels that are almost unique, busy shops.

A seeded generator makes the events up, so their truth may be shown. The noise of the releases has no seed.
"""

import math
from collections.abc import Iterator
from datetime import datetime, timedelta

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.budget import Budget
from pianissimo.checks import check_at_least
from pianissimo.queries import Count, Histogram, TopK
from pianissimo.stream import Stream

USUAL_DRUGS = (
    "paracetamol",
    "ibuprofen",
    "amoxicillin",
    "omeprazole",
    "metformin",
    "atorvastatin",
    "salbutamol",
    "amlodipine",
    "cetirizine",
    "levothyroxine",
    "simvastatin",
    "ramipril",
    "metoprolol",
    "pantoprazole",
    "sertraline",
    "prednisolone",
    "diclofenac",
    "loratadine",
    "warfarin",
)
"""Sold all the time, the first ones more often."""

FLU_DRUG = "oseltamivir"
"""Hardly sold before the flu wave."""

NEW_DRUG = "ensitrelvir"
"""On the market from half way on."""

RARE_PREFIX = "mixture "
"""How the label of a preparation begins that was mixed for one patient, or for a few: it must stay hidden."""

REGIONS = ("north", "east", "south", "west")

SHOPS = (
    "High Street",
    "Station Road",
    "Mill Lane",
    "Market Square",
    "Church Street",
    "Harbour",
    "Abbey Road",
    "Park Avenue",
    "Bridge Street",
    "Old Town",
    "Queensway",
    "University",
    "Airport",
    "Riverside",
    "Castle Hill",
    "North Gate",
    "Victoria Place",
    "Green Lanes",
    "West End",
    "Orchard",
    "Hospital",
    "Meadow View",
    "Kingsway",
    "Long Acre",
)
"""All shops of the chain: a public list, the busier ones first on the whole."""

TOP = 5
"""How many shops the top list has."""

TICK = timedelta(hours=1)
ORIGIN = datetime(2026, 1, 5)

_PROMISED_TICKS = 720  # a month of hours
_PURCHASES_PER_TICK = 1200
_RARE_SHARE = 0.06
_PATIENTS_PER_MIXTURE = 1.5


def pharmacy_stream(ticks: int) -> Stream:
    """The stream of the demo: a running count, a histogram of labels nobody listed beforehand, and a top list.

    The promise covers a month of hours even where fewer are shown, as a real stream's would. Drugs have the smallest
    counts and a threshold to pass, so they get most of the budget. A top list of drugs would pay once more for what the
    histogram tells already: sorted, it is one. The shops are in no other release, so their top list is a query.

    >>> pharmacy_stream(30).horizon
    720
    """
    check_at_least(1, ticks=ticks)
    return Stream(
        "pharmacy",
        budget=Budget(epsilon=1.0, delta=1e-9),
        horizon=max(ticks, _PROMISED_TICKS),
        tick=TICK,
        queries=[
            Count("purchases"),
            Histogram("drugs", key="drug", weight=4),
            TopK("top_shops", key="shop", k=TOP, domain=SHOPS),
        ],
    )


def pharmacy_batches(ticks: int, seed: int) -> Iterator[pl.DataFrame]:
    """The purchases of each tick, in the order of their times, with the columns time, drug, region and shop.

    >>> first, second = pharmacy_batches(2, seed=1)
    >>> first.columns
    ['time', 'drug', 'region', 'shop']
    >>> first.equals(next(pharmacy_batches(2, seed=1)))
    True
    """
    check_at_least(1, ticks=ticks)
    check_at_least(0, seed=seed)
    for tick in range(1, ticks + 1):
        yield _purchases(tick, ticks, np.random.default_rng([seed, tick]))


def is_rare(labels: pl.Series) -> pl.Series:
    """For each label whether it is one of those that must stay hidden.

    >>> is_rare(pl.Series(["ibuprofen", "mixture 1-20417"])).to_list()
    [False, True]
    """
    return labels.str.starts_with(RARE_PREFIX)


def _purchases(tick: int, ticks: int, generator: np.random.Generator) -> pl.DataFrame:
    by_day = 1 + 0.45 * math.sin(2 * math.pi * (tick - 8) / 24)
    number = int(generator.poisson(_PURCHASES_PER_TICK * by_day))
    names = pl.Series([*USUAL_DRUGS, FLU_DRUG, NEW_DRUG])
    common = names.gather(generator.choice(len(names), size=number, p=_popularity(tick, ticks)))
    # Labels of another tick never come back, so that a long run cannot lift a rare one over the threshold.
    numbers = generator.integers(0, max(1, int(_RARE_SHARE * number / _PATIENTS_PER_MIXTURE)), size=number)
    rare = pl.select(pl.format(RARE_PREFIX + "{}-{}", pl.lit(tick), pl.lit(pl.Series(numbers)) + 20_000)).to_series()
    is_common = pl.Series(generator.random(number) >= _RARE_SHARE)
    seconds = np.sort(generator.integers(0, int(TICK.total_seconds()), size=number))
    start = ORIGIN + (tick - 1) * TICK
    return pl.DataFrame(
        {
            "time": pl.select(pl.lit(start) + pl.duration(seconds=pl.lit(pl.Series(seconds)))).to_series(),
            "drug": common.zip_with(is_common, rare),
            "region": pl.Series(REGIONS).gather(generator.integers(0, len(REGIONS), size=number)),
            "shop": pl.Series(SHOPS).gather(generator.choice(len(SHOPS), size=number, p=_custom(tick))),
        }
    )


def _popularity(tick: int, ticks: int) -> NDArray[np.float64]:
    rank = np.arange(1, len(USUAL_DRUGS) + 1)
    slow_change = np.exp(0.25 * np.sin(2 * np.pi * tick / 40 + 2.4 * rank))
    usual = slow_change / (rank + 1.5) ** 0.9
    usual /= usual.sum()
    passed = tick / ticks
    flu = 0.005 + 0.26 * math.exp(-(((passed - 0.62) / 0.16) ** 2))
    new = 0.0 if passed <= 0.5 else 0.1 + 0.5 * (passed - 0.5)
    weights = np.append(usual, [flu, new])
    return np.asarray(weights / weights.sum())


def _custom(tick: int) -> NDArray[np.float64]:
    """The shops' shares of a tick: each has its own good hours, so that ranks change."""
    rank = np.arange(1, len(SHOPS) + 1)
    weights = np.exp(0.5 * np.sin(2 * np.pi * tick / 24 + 1.7 * rank)) / (rank + 3)
    return np.asarray(weights / weights.sum())
