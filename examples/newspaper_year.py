"""A year of a newspaper that hides every reader with everything she read: articles that nobody listed, bots, hits.

    python examples/newspaper_year.py [PICTURE.png]

The events are made up, so that every released number can be compared with the truth, which is printed at the end. The
picture needs matplotlib, which `pip install pianissimo[plot]` brings. READERS and DAYS in the environment make it
smaller; the whole year takes a few minutes.
"""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

import pianissimo as pp

READERS = int(os.environ.get("READERS", "200000"))
DAYS = int(os.environ.get("DAYS", "365"))
ARTICLES_A_DAY, VISITS_A_YEAR, FRESH = 20, 80, 7
CRAWLERS, FARM = 5, 40
"""Programs that read everything, day and night; and bought accounts that push one page."""

PUSHED = "/promoted/miracle-pill"
NIGHTLY = 3
"""At this hour of Sundays the servers are renewed: nobody comes."""

CAP = 1024
"""Of her articles in the year, so many count: more than nearly everybody reads, or late hits would lack the keenest."""

Numbers = NDArray[np.int64]


def stream(days: int = DAYS) -> pp.Stream:
    """What is published, and under which promise."""
    return pp.Stream(
        "newspaper",
        unit=pp.user("reader", max_events_per_user=CAP),  # all that she reads in the year; so many articles count
        budget=pp.Budget(epsilon=2.0, delta=1e-9),  # for the whole year
        horizon=24 * days,
        tick="1h",
        queries=[pp.Histogram("readers", key="article", count="users", every="1d")],  # of articles listed nowhere
    )


@dataclass(frozen=True)
class Paper:
    """What the paper prints, and who comes how often."""

    titles: pl.Series
    """Of all articles, in the order of their days."""

    pull: NDArray[np.float64]
    """How much an article draws on its first day, beside others."""

    habit: NDArray[np.float64]
    """The chance that a visit is of this reader or of one before her: a few come all the time."""


def paper(readers: int, days: int, seed: int = 1) -> Paper:
    """Every week one article is a hit."""
    random = np.random.default_rng(seed)
    numbers = np.arange(ARTICLES_A_DAY * days)
    pull = random.pareto(1.2, size=len(numbers)) + 0.2
    pull = np.minimum(pull, 12.0)
    hits = [day * ARTICLES_A_DAY + int(random.integers(ARTICLES_A_DAY)) for day in range(2, days, 7)]
    pull[hits] = 60 + 60 * random.random(len(hits))
    titles = [f"/day-{number // ARTICLES_A_DAY + 1:03}/{number % ARTICLES_A_DAY + 1:02}" for number in numbers]
    for number in hits:
        titles[number] += "-hit"
    rates = random.lognormal(mean=0.0, sigma=1.3, size=readers)
    return Paper(pl.Series(titles), pull, np.cumsum(rates) / rates.sum())


def hours(readers: int, days: int, seed: int = 1) -> Iterator[pl.DataFrame]:
    """The visits of each hour: who, and what she read. Nothing is read on the front page."""
    made, random = paper(readers, days, seed), np.random.default_rng(seed + 1)
    chances = np.array([max(0.05, 1 - np.cos(2 * np.pi * (hour - 3) / 24)) for hour in range(24)])
    for day in range(days):
        season = 1 + 0.2 * np.cos(2 * np.pi * day / 365)
        visits = int(random.poisson(readers * VISITS_A_YEAR / 365 * season))
        who = np.searchsorted(made.habit, random.random(visits))
        what = _chosen(made, day, visits, random)
        when = random.choice(24, size=visits, p=chances / chances.sum())
        kind = random.random(visits)
        closed = NIGHTLY if day % 7 == 6 else -1
        labels = made.titles.gather(what).to_frame("article").with_columns(reader=pl.Series(who), kind=pl.Series(kind))
        labels = labels.select(
            "reader",
            # One visit in twenty is of the front page, one in a hundred is a search, which tells who she is.
            article=pl.when(pl.col("kind") < 0.05)
            .then(None)
            .when(pl.col("kind") < 0.06)
            .then(pl.format("/search?for=friends-of-{}", "reader"))
            .otherwise("article"),
        )
        for hour in range(24):
            mine = labels.filter(pl.Series(when == hour)) if hour != closed else labels.clear()
            yield pl.concat([mine, _machines(made, readers, day, random)]) if hour != closed else mine


def _chosen(made: Paper, day: int, visits: int, random: np.random.Generator) -> Numbers:
    """An article of the last days: what is older draws less."""
    first = max(0, day + 1 - FRESH) * ARTICLES_A_DAY
    numbers = np.arange(first, (day + 1) * ARTICLES_A_DAY)
    pull = made.pull[numbers] * 0.5 ** (day - numbers // ARTICLES_A_DAY)
    chosen: Numbers = random.choice(numbers, size=visits, p=pull / pull.sum())
    return chosen


def _machines(made: Paper, readers: int, day: int, random: np.random.Generator) -> pl.DataFrame:
    """Crawlers take what is new, again and again; the farm pushes its page in every hour."""
    new = np.arange(day * ARTICLES_A_DAY, (day + 1) * ARTICLES_A_DAY)
    crawled = made.titles.gather(np.repeat(new, CRAWLERS))
    farm = random.integers(FARM, size=5 * FARM)
    return pl.DataFrame(
        {
            "article": [*crawled, *[PUSHED] * len(farm)],
            "reader": np.concatenate([np.tile(readers + np.arange(CRAWLERS), len(new)), readers + CRAWLERS + farm]),
        }
    ).select("reader", "article")


@dataclass(frozen=True)
class Year:
    """All that was released, each number beside the true one, and what is true of the articles."""

    total: pl.DataFrame
    """Day, article, estimate, low and high; in truth: all readers so far, and those that the cap let through."""

    last_day: pl.DataFrame
    """The same of readers who came to an article on that day for the first time."""

    new: pl.DataFrame
    """In truth: how many came to an article for the first time, by day; some articles were never shown."""

    articles: pl.DataFrame
    """In truth: visits and readers of each, and whether it was ever shown."""

    facts: dict[str, int]
    """In truth, of everything together."""


def publish(live: pp.Live, readers: int, days: int) -> Year:
    """Release hour by hour; the truth is put together when all is done."""
    total, last_day, visits, empty = [], [], [], 0
    for hour, batch in enumerate(hours(readers, days), 1):
        release, day = live.tick(batch), (hour + 23) // 24
        empty += batch.is_empty()
        visits.append(batch.with_columns(day=pl.lit(day, pl.Int16)))
        if hour % 24 == 0:
            total.append(release["readers"].with_columns(day=pl.lit(day, pl.Int16)))
            last_day.append(live.window("1d")["readers"].with_columns(day=pl.lit(day, pl.Int16)))
            visits[-24:] = [pl.concat(visits[-24:]).cast({"reader": pl.UInt32, "article": pl.Categorical})]
    return _beside_the_truth(pl.concat(total), pl.concat(last_day), pl.concat(visits), empty)


def _beside_the_truth(total: pl.DataFrame, last_day: pl.DataFrame, visits: pl.DataFrame, empty: int) -> Year:
    read = visits.drop_nulls()
    pairs = read.unique(["reader", "article"], keep="first", maintain_order=True)
    pairs = pairs.with_columns(counts=pl.int_range(pl.len()).over("reader") < CAP)
    new = pairs.group_by("article", "day").agg(true=pl.len(), counted=pl.col("counts").sum())
    new = new.with_columns(pl.col("article").cast(pl.String), pl.col("true", "counted").cast(pl.Int64)).sort("day")
    so_far = new.with_columns(pl.col("true", "counted").cum_sum().over("article"))
    total, last_day = (each.rename({"key": "article"}).sort("day", maintain_order=True) for each in (total, last_day))
    total = total.join_asof(so_far, on="day", by="article", check_sortedness=False)
    last_day = last_day.join(new, on=["day", "article"], how="left").with_columns(
        pl.col("true", "counted").fill_null(0)
    )
    articles = read.group_by("article").len("visits").with_columns(pl.col("article").cast(pl.String))
    articles = articles.join(new.group_by("article").agg(readers=pl.col("true").sum()), on="article")
    articles = articles.with_columns(shown=pl.col("article").is_in(total["article"].unique().implode()))
    facts = {
        "visits": len(visits),
        "readers": visits["reader"].n_unique(),
        "without article": visits["article"].null_count(),
        "empty hours": empty,
        "pairs": len(pairs),
        "pairs cut off": int((~pairs["counts"]).sum()),
        "readers cut off": pairs.filter(~pl.col("counts"))["reader"].n_unique(),
    }
    return Year(total, last_day, new, articles, facts)


def summary(year: Year, plan: pp.StreamPlan) -> str:
    """What was shown, what was hidden, and how far every released number is from the truth."""
    facts, articles = year.facts, year.articles
    kinds = {
        "printed": articles.filter(pl.col("article").str.starts_with("/day-")),
        "searches": articles.filter(pl.col("article").str.starts_with("/search")),
        "pushed": articles.filter(pl.col("article") == PUSHED),
    }
    shown = {name: f"{each['shown'].sum():,} of {len(each):,}" for name, each in kinds.items()}
    printed = kinds["printed"]
    hidden, seen = printed.filter(~pl.col("shown")), printed.filter("shown")
    of_hidden, of_seen = hidden["readers"].to_numpy(), seen["readers"].to_numpy()
    unread = of_hidden.sum() / (of_hidden.sum() + of_seen.sum())
    pushed = kinds["pushed"].row(0, named=True)
    threshold = plan.to_dict()["queries"][0]["threshold"]
    hits = printed.filter(pl.col("article").str.ends_with("-hit"))
    lines = [
        f"In truth: {facts['visits']:,} visits of {facts['readers']:,} readers, {facts['without article']:,} of "
        f"them of the front page; {facts['empty hours']} hours without any.",
        "",
        f"Shown: {shown['printed']} articles, among them {hits['shown'].sum()} of {len(hits)} hits, "
        f"{_at_once(year.total)} of them on their first day.",
        f"Hidden: {len(hidden):,} articles, with {unread:.1%} of what was read of all; "
        f"{len(kinds['searches']):,} searches, of which {kinds['searches']['shown'].sum()} were shown;",
        f"  the page that {FARM} bought accounts opened {pushed['visits']:,} times: the most visited of all, by "
        f"{pushed['readers']} readers. It was {'shown' if pushed['shown'] else 'not shown'}.",
        f"To appear, the plan said, an article needs about {threshold['least']:,} readers, {threshold['largest']:,} at "
        f"some ticks. The smallest that was shown has {of_seen.min(initial=2**31):,}, the largest that was not "
        f"{of_hidden.max(initial=0):,}.",
        f"Cut off: {facts['pairs cut off'] / facts['pairs']:.1%} of what was read, the articles after the {CAP}th of "
        f"{facts['readers cut off']:,} readers and programs.",
        "",
        *(_errors(name, each) for name, each in (("all time", year.total), ("last day", year.last_day))),
        "",
        *_top("All time", year.total.filter(pl.col("day") == pl.col("day").max())),
        "",
        *_top("The last day", year.last_day.filter(pl.col("day") == pl.col("day").max())),
    ]
    return "\n".join(lines)


def _at_once(total: pl.DataFrame) -> int:
    """How many hits were shown on the day on which they were printed, which is in their names."""
    first = total.filter(pl.col("article").str.ends_with("-hit")).group_by("article").agg(pl.col("day").min())
    return int((first["article"].str.slice(len("/day-"), 3).cast(pl.Int16) == first["day"]).sum())


def _errors(name: str, table: pl.DataFrame) -> str:
    """Of all numbers of a kind: how far they are from the truth, and how often their bars hold it."""
    gaps, noise = ((table["estimate"] - table[other]).abs().to_numpy() for other in ("true", "counted"))
    held = ((table["low"] <= table["true"]) & (table["high"].is_null() | (table["high"] >= table["true"]))).to_numpy()
    return (
        f"{name}: {len(table):,} numbers, off by {np.median(gaps):,.0f} (median), "
        f"{np.quantile(gaps, 0.95):,.0f} (19 of 20 are nearer), {gaps.max():,} at most; "
        f"the noise alone {np.quantile(noise, 0.95):,.0f} (19 of 20). "
        f"Bars, open above, held the truth {held.mean():.1%} of the time."
    )


def _top(name: str, table: pl.DataFrame, k: int = 10) -> list[str]:
    """The list that was published, each number beside the true one; whose bar reaches zero is left out."""
    rows = table.filter(pl.col("low") > 0).top_k(k, by="estimate").sort("estimate", descending=True).to_dicts()
    told = [
        f"  {row['article']:18} {row['estimate']:>7,}, at least {row['low']:>6,}; {row['true']:>6,}" for row in rows
    ]
    best = table.top_k(k, by="true")["article"]
    right = sum(row["article"] in best for row in rows)
    return [f"{name}, readers as published; in truth ({right} of {len(rows)} belong there):", *told]


_INK, _SOFT, _TRUTH, _SHOWN = "#222222", "#5f5f5f", "#cfcfcf", "#D55E00"


def draw(year: Year, plan: pp.StreamPlan, path: Path) -> None:
    """Three views: all articles at the end, the best of every last day, and the top list, each beside the truth."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    threshold = plan.to_dict()["queries"][0]["threshold"]["least"]
    days, readers = int(year.total["day"].to_numpy().max()), year.facts["readers"]
    with rc_context({"font.size": 9, "text.color": _INK, "axes.edgecolor": "#b8b8b8", "axes.labelcolor": _SOFT}):
        figure = Figure(figsize=(10.0, 8.0), dpi=140)
        FigureCanvasAgg(figure)
        grid = figure.add_gridspec(2, 2, hspace=0.34, wspace=0.3)
        figure.subplots_adjust(left=0.09, right=0.975, top=0.86, bottom=0.07)
        _draw_days(figure.add_subplot(grid[0, :]), year, days)
        _draw_articles(figure.add_subplot(grid[1, 0]), year, days, threshold)
        _draw_top(figure.add_subplot(grid[1, 1]), year, days)
        for axes in figure.axes:
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(colors="#b8b8b8", labelcolor=_SOFT)
        figure.axes[2].xaxis.set_major_locator(MaxNLocator(nbins=5))
        head = f"{days} days of a newspaper: {readers:,} readers, each hidden with all that she read"
        how = (
            "Orange: published, with (2, 1e-9)-differential privacy for the whole time. "
            "Gray: the truth, drawn only because the data are made up."
        )
        figure.text(0.02, 0.96, head, fontsize=13, fontweight="bold")
        figure.text(0.02, 0.93, how, color=_SOFT)
        figure.savefig(path)


def _draw_days(axes: Any, year: Year, days: int) -> None:
    """The article that most readers came to, day by day."""
    best = year.new.group_by("day").agg(pl.col("true").max()).sort("day")
    axes.fill_between(best["day"], best["true"], color=_TRUTH, linewidth=0, step="mid")
    found = year.last_day.group_by("day").agg(pl.all().top_k_by("estimate", 1).first()).sort("day")
    axes.plot(found["day"], found["estimate"], "o", color=_SHOWN, markersize=3)
    axes.set_xlim(0, days + 1)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("day")
    axes.set_ylabel("new readers of the first article")
    axes.set_title("First place of the last day: every week a hit", loc="left", fontsize=10, fontweight="bold")


def _draw_articles(axes: Any, year: Year, days: int, threshold: int) -> None:
    """Every article at the end: what was published over what is true; those that were not shown lie below."""
    end = year.total.filter(pl.col("day") == days)
    most = 1.3 * float(year.articles["readers"].to_numpy().max())
    hidden = year.articles.filter(~pl.col("shown"))
    axes.plot([1, most], [1, most], color=_INK, linewidth=0.8)
    axes.plot(end["true"], end["estimate"].clip(1), "o", color=_SHOWN, markersize=2.5, alpha=0.6, markeredgewidth=0)
    axes.plot(hidden["readers"], np.full(len(hidden), threshold / 4), "|", color="#999999", markersize=7, alpha=0.5)
    axes.text(1, threshold / 3.3, f"{len(hidden):,} labels that were not shown", color=_SOFT, fontsize=8)
    axes.axhline(threshold, color=_INK, linewidth=0.9, linestyle=(0, (4, 2)))
    axes.text(1, threshold * 1.08, f"to appear: about {threshold:,} readers", color=_SOFT, fontsize=8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(0.8, most)
    axes.set_ylim(threshold / 6, most)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:,.0f}")
        axis.set_minor_formatter("")
    axes.set_xlabel("readers in truth")
    axes.set_ylabel("readers as published")
    axes.set_title("Every label at the end", loc="left", fontsize=10, fontweight="bold")


def _draw_top(axes: Any, year: Year, days: int) -> None:
    """The first ten of all time, with the low end of their bars."""
    top = year.total.filter(pl.col("day") == days).top_k(10, by="estimate").sort("estimate")
    places = np.arange(len(top))
    axes.barh(places, top["true"], color=_TRUTH, height=0.75)
    axes.errorbar(
        top["estimate"], places, xerr=[top["estimate"] - top["low"], 0 * places], fmt="o", color=_SHOWN, markersize=4
    )
    axes.set_yticks(places, [name.removeprefix("/") for name in top["article"]])
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("readers")
    axes.set_title("The first ten of all time", loc="left", fontsize=10, fontweight="bold")


def main(picture: Path) -> None:
    """A year, and what came of it."""
    plan = stream().plan()
    print(plan)
    print()
    year = publish(stream().start(), READERS, DAYS)
    print(summary(year, plan))
    try:
        draw(year, plan, picture)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "matplotlib":
            raise
        print("\nFor a picture of it: pip install pianissimo[plot]")
    else:
        print(f"\nA picture of it: {picture}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("newspaper_year.png"))
