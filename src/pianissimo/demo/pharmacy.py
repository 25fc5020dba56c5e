"""Generated pharmacies: usual drugs, a flu wave, a new drug, a thousand labels that are almost unique, busy shops.

A seeded generator makes the events up. The noise of the releases has no seed. The stream is durable while the demo
runs; what it released, with the truth beside it, is a `Record`, and without it a folder.
"""

import json
import math
import shutil
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.budget import Budget
from pianissimo.checks import check_at_least
from pianissimo.durable.durable_stream import DurableStream
from pianissimo.errors import InputError
from pianissimo.io.folder import unwritable
from pianissimo.queries import Count, Histogram, TopK
from pianissimo.stream import Stream, StreamPlan, StreamRelease

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

WINDOW_TICKS = 6
"""How many ticks the window of the demo reaches back, once there are so many."""

TICK = timedelta(hours=1)

_PROMISED_TICKS = 720  # a month of hours
_PURCHASES_PER_TICK = 1200
_RARE_SHARE = 0.06
_PATIENTS_PER_MIXTURE = 1.5


def pharmacy_stream(ticks: int, *, tick: timedelta = TICK, origin: datetime | None = None) -> Stream:
    """The stream of the demo: a running count, a histogram of labels nobody listed beforehand, and a top list.

    The promise covers a month of hours even where fewer are shown, as a real stream's would. Drugs have the smallest
    counts and a threshold to pass, so they get most of the budget. A top list of drugs would pay once more for what the
    histogram tells already: sorted, it is one. The shops are in no other release, so their top list is a query.
    """
    check_at_least(1, ticks=ticks)
    return Stream(
        "pharmacy",
        budget=Budget(epsilon=1.0, delta=1e-9),
        horizon=max(ticks, _PROMISED_TICKS),
        tick=tick,
        origin=origin,
        queries=[
            Count("purchases"),
            Histogram("drugs", key="drug", weight=4),
            TopK("top_shops", key="shop", k=TOP, domain=SHOPS),
        ],
    )


def pharmacy_batches(ticks: int, seed: int) -> Iterator[pl.DataFrame]:
    """The purchases of each tick, with the columns drug and shop."""
    check_at_least(1, ticks=ticks)
    check_at_least(0, seed=seed)
    for tick in range(1, ticks + 1):
        yield _purchases(tick, ticks, np.random.default_rng([seed, tick]))


def _purchases(tick: int, ticks: int, generator: np.random.Generator) -> pl.DataFrame:
    by_day = 1 + 0.45 * math.sin(2 * math.pi * (tick - 8) / 24)
    number = int(generator.poisson(_PURCHASES_PER_TICK * by_day))
    names = pl.Series([*USUAL_DRUGS, FLU_DRUG, NEW_DRUG])
    common = names.gather(generator.choice(len(names), size=number, p=_popularity(tick, ticks)))
    # Labels of another tick never come back, so that a long run cannot lift a rare one over the threshold.
    numbers = generator.integers(0, max(1, int(_RARE_SHARE * number / _PATIENTS_PER_MIXTURE)), size=number)
    rare = pl.select(pl.format(RARE_PREFIX + "{}-{}", pl.lit(tick), pl.lit(pl.Series(numbers)) + 20_000)).to_series()
    is_common = pl.Series(generator.random(number) >= _RARE_SHARE)
    shops = pl.Series(SHOPS).gather(generator.choice(len(SHOPS), size=number, p=_custom(tick)))
    return pl.DataFrame({"drug": common.zip_with(is_common, rare), "shop": shops})


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


@dataclass(slots=True)
class Record:
    """What was released so far, each estimate with the truth it stands for. Only a demo may keep both.

    Tables have the columns tick, key (where there are labels), estimate, low, high and truth. Their names are
    purchases, drugs, top_shops, window_purchases and window_drugs.
    """

    tick: int = 0
    """The last tick."""

    _tables: dict[str, list[pl.DataFrame]] = field(default_factory=dict)
    _total: list[pl.DataFrame] = field(default_factory=list)
    _recent: deque[pl.DataFrame] = field(default_factory=lambda: deque(maxlen=WINDOW_TICKS))

    def observe(self, batch: pl.DataFrame, release: StreamRelease, window: StreamRelease) -> None:
        """Add one tick: its events, what was released for it, and for the last `window_ticks` together."""
        self.tick = release.tick
        self._recent.append(_tally(batch))
        self._total = [_added([*self._total, self._recent[-1]])]
        recent = _added(self._recent)
        for name, table, truth, column in (
            ("purchases", release["purchases"], self._total[0], None),
            ("drugs", release["drugs"], self._total[0], "drug"),
            ("top_shops", release["top_shops"], self._total[0], "shop"),
            ("window_purchases", window["purchases"], recent, None),
            ("window_drugs", window["drugs"], recent, "drug"),
        ):
            self._tables.setdefault(name, []).append(_beside(table, truth, column, self.tick))

    @property
    def window_ticks(self) -> int:
        return len(self._recent)

    def all(self, name: str) -> pl.DataFrame:
        """One of the tables, of all ticks."""
        return pl.concat(self._tables[name])

    def last(self, name: str) -> pl.DataFrame:
        """One of the tables, of the last tick; the most bought drugs come first."""
        table = self._tables[name][-1]
        return table.sort("estimate", descending=True, maintain_order=True) if name == "drugs" else table

    @property
    def true_top_shops(self) -> list[str]:
        """As many shops as the top list has, by their true numbers of purchases."""
        shops = self._total[0].filter(pl.col("column") == "shop").sort("truth", descending=True)
        return shops["key"].head(self.last("top_shops").height).to_list()

    @property
    def hidden_labels(self) -> int:
        """How many different drugs came and were never released."""
        drugs = self._total[0].filter(pl.col("column") == "drug")
        return drugs.join(self.all("drugs"), on="key", how="anti").height

    @property
    def intervals(self) -> int:
        """How many intervals low .. high were released."""
        return sum(table.height for tables in self._tables.values() for table in tables)

    @property
    def intervals_that_held(self) -> int:
        """How many of them held the truth."""
        return sum(held(table).height for tables in self._tables.values() for table in tables)


def held(table: pl.DataFrame) -> pl.DataFrame:
    """The rows whose interval holds the truth."""
    return table.filter(pl.col("truth").is_between(pl.col("low"), pl.col("high")))


def _tally(batch: pl.DataFrame) -> pl.DataFrame:
    """How often each drug and each shop truly came: column, key, truth."""
    both = batch.unpivot(["drug", "shop"], variable_name="column", value_name="key")
    return both.group_by("column", "key").agg(pl.len().cast(pl.Int64).alias("truth"))


def _added(tallies: Iterable[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(tallies).group_by("column", "key").agg(pl.col("truth").sum())


def _beside(table: pl.DataFrame, tally: pl.DataFrame, column: str | None, tick: int) -> pl.DataFrame:
    truth = tally.filter(pl.col("column") == (column or "shop")).drop("column")
    if column is None:
        both = table.with_columns(truth=truth["truth"].sum())
    else:
        # A label that is shown need not have come in the ticks of a window.
        both = table.join(truth, on="key", how="left", maintain_order="left")
    number = pl.lit(tick, dtype=pl.Int64).alias("tick")
    return both.select(number, pl.all().exclude("truth"), pl.col("truth").cast(pl.Int64).fill_null(0))


_PLAN, _RELEASES, _WINDOWS, _PICTURE = "plan.json", "releases.jsonl", "windows.jsonl", "estimates.png"
_SCHEMA = {"tick": pl.Int64, "key": pl.String, "estimate": pl.Int64, "low": pl.Int64, "high": pl.Int64}


@contextmanager
def open_demo(out: Path, ticks: int, seed: int) -> Iterator[DurableStream]:
    """The stream of a demo that shows so many ticks of so seeded data; its state is gone once it has shown them all."""
    home = out / f".state-{ticks}-{seed}"
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise unwritable(out, fault) from None
    with pharmacy_stream(ticks).open(home / "stream") as live:
        yield live
        done = live.tick_number >= ticks
    if done:
        shutil.rmtree(home)  # with the secret, the witness and the ledger, which lie beside the stream


class DemoFolder:
    """A folder that takes one demo, in the place of an earlier one. Releases of a real stream are left alone."""

    def __init__(self, path: Path, plan: StreamPlan) -> None:
        check_demo(path)
        self.path = path
        self.plan = plan
        self.picture = path / _PICTURE
        self.written = [path / _PLAN, path / _RELEASES, path / _WINDOWS]
        try:
            path.mkdir(parents=True, exist_ok=True)
            self.picture.unlink(missing_ok=True)
            for file, text in zip(self.written, (plan.to_json() + "\n", "", ""), strict=True):
                file.write_text(text, encoding="utf-8")
        except OSError as fault:
            raise unwritable(path, fault) from None

    def write(self, release: StreamRelease, window: StreamRelease) -> None:
        """Add the release of one tick, and what the ticks of its window added."""
        for name, each in ((_RELEASES, release), (_WINDOWS, window)):
            with (self.path / name).open("a", encoding="utf-8") as file:
                file.write(each.to_json() + "\n")


def check_demo(path: Path) -> None:
    """Refuse a folder that holds releases of a real stream."""
    if (path / _PLAN).exists() and not is_demo(path):
        raise InputError(f"{path} must be empty or hold an earlier demo, got other releases; choose another folder")


def is_demo(path: Path) -> bool:
    """Whether the folder holds a demo."""
    return (path / _RELEASES).is_file()


def read_demo(path: Path) -> dict[str, pl.DataFrame]:
    """The releases of a demo by query: tick, key (where labels are counted), estimate, low and high."""
    tables: dict[str, list[dict[str, Any]]] = {}
    try:
        for line in (path / _RELEASES).read_text(encoding="utf-8").splitlines():
            release = json.loads(line)
            for name, rows in release["releases"].items():
                tables.setdefault(name, []).extend({"tick": release["tick"]} | row for row in rows)
        # Only a histogram can have no rows: a count has one at every tick.
        return {name: pl.DataFrame(rows, None if rows else _SCHEMA) for name, rows in tables.items()}
    except (OSError, KeyError, TypeError, ValueError, pl.exceptions.PolarsError):
        raise InputError(f"{path / _RELEASES} must hold one release a line, got damaged text") from None
