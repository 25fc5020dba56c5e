"""A newsroom's dashboard that hides every reader with all her visits: a day of hours, very uneven readers, a few bots.

python examples/newsroom.py
"""

from collections.abc import Iterator

import numpy as np
import polars as pl
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import pianissimo as pp

SECTIONS = {
    "politics": 30,
    "sport": 22,
    "world": 16,
    "local": 12,
    "economy": 8,
    "culture": 6,
    "science": 4,
    "opinion": 2,
}
HOURS = 24


def newsroom(coverage: float = 0.95) -> pp.Stream:
    """What is published, and under which promise."""
    return pp.Stream(
        "newsroom",
        unit=pp.user("reader", first_cap=16),  # all her visits of the day; how many of them count follows the stream
        budget=pp.Budget(epsilon=2.0, delta=1e-9),  # for the whole day, all queries together
        horizon=HOURS,
        tick="1h",
        coverage=coverage,
        queries=[
            pp.Count("visits"),
            pp.Distinct("articles", key="article"),
            pp.Quantiles("reading", value="seconds", range=(0, 600), at=[0.5], cells=64),
            pp.Histogram("sections", key="section", domain=list(SECTIONS)),  # sorting it is free: a top list
        ],
    )


def hours(readers: int, bots: int = 3, seed: int = 1) -> Iterator[pl.DataFrame]:
    """Made up: the visits of each hour. Half of all readers come a few times a day, one in a hundred 50 times."""
    random = np.random.default_rng(seed)
    rates = random.lognormal(mean=1.6, sigma=1.0, size=readers) / HOURS
    rates[:bots] = 200  # an hour: they never sleep
    names = np.array([f"reader {number}" for number in random.permutation(readers)])
    chances = np.array(list(SECTIONS.values())) / sum(SECTIONS.values())
    for hour in range(HOURS):
        wake = 1 - 0.8 * np.cos(2 * np.pi * (hour - 3) / HOURS)
        visits = random.poisson(np.where(rates < 200, wake * rates, rates))
        who = random.permutation(np.repeat(np.arange(readers), visits))
        yield pl.DataFrame(
            {
                "reader": names[who],
                "section": np.array(list(SECTIONS))[random.choice(len(SECTIONS), size=len(who), p=chances)],
                "article": (60_000 * random.random(len(who)) ** 3).astype(np.int64),
                "seconds": np.where(who < bots, 1.0, random.lognormal(mean=4.3, sigma=0.9, size=len(who))),
            }
        )


def number(row: dict[str, float]) -> str:
    """An estimate with its noise; what the cap cut off comes on top, so that its high end is open."""
    return f"{row['estimate']:,.0f} ± {row['estimate'] - row['low']:,.0f} or more"


def shown(release: pp.StreamRelease) -> list[str]:
    """One line of the dashboard."""
    (visits,), (articles,), (median,) = (release[name].to_dicts() for name in ("visits", "articles", "reading"))
    top = release["sections"].top_k(3, by="estimate").sort("estimate", descending=True)
    sections = ", ".join(f"{row['key']} {number(row)}" for row in top.to_dicts())
    reading = f"{median['estimate']:.0f} s, {median['low']:.0f} to {median['high']:.0f}"
    return [f"{release.tick - 1:02}:00", number(visits), number(articles), reading, sections]


def main() -> None:
    """Release a day, hour by hour, and then look at the truth, which is possible because it was made up."""
    stream = newsroom()
    console = Console(width=140)
    console.print(str(stream.plan()).split("\n\n")[0])  # the promise; all of it tells expected errors
    table = Table("hour", "visits so far", "articles read", "median reading time", "top sections", box=SIMPLE_HEAD)
    live = stream.start()
    day = list(hours(readers=100_000))
    for batch in day:
        table.add_row(*shown(live.tick(batch)))
    console.print(table)

    events = pl.concat(day)
    top = events["section"].value_counts(sort=True).head(3).rows()
    median = events.select(pl.col("seconds").clip(0, 600).median()).item()
    console.print(
        f"In truth: {len(events):,} visits of {events['article'].n_unique():,} articles, "
        f"{median:.0f} s, {', '.join(f'{name} {count:,}' for name, count in top)}."
    )
    rank = events.select(pl.int_range(pl.len()).over("reader")).to_series()
    bots = events["reader"].value_counts().top_k(3, by="count")["count"]
    console.print(
        f"The noise is on what the cap lets through. {(rank >= 64).sum():,} of the visits come after the 64th of "
        f"their reader, {(bots - 64).sum():,} of them of three bots."
    )


if __name__ == "__main__":
    main()
