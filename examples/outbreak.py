"""Four outbreaks in a simulated pharmacy chain: when each is found, at what size, and how quiet it is between them.

    python examples/outbreak.py [FOLDER]

Three years of days, 100,000 customers, one promise for each of them with all that she ever buys. Nobody lists the
complaints beforehand. The data are made up by a seeded generator, so the truth can be shown; the noise has no seed.
FOLDER, outbreak-output unless another is given, gets a picture if matplotlib is there: `pip install pianissimo[plot]`.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table

import pianissimo as pp

CUSTOMERS = 100_000
PURCHASES = 2_000
QUIET_DAYS = 1_000
USUAL = (
    *("headache", "cough", "heartburn", "hay fever", "back pain", "sore throat", "insomnia", "dry skin", "migraine"),
    *("earache", "cold sore", "toothache", "acne", "constipation", "runny nose", "eczema", "muscle strain", "warts"),
    *("travel sickness", "athlete's foot", "sunburn", "red eyes", "hiccup", "bruise", "insect bite", "thrush"),
)
_INK, _SOFT, _TRUTH, _REPORT = "#222222", "#5f5f5f", "#d4d4d4", "#D55E00"
_MOST_USUAL = "most usual"
CHILDREN = "hot_children"
"""The alarm: small children with a high temperature, whatever else they have."""


@dataclass(frozen=True)
class Outbreak:
    name: str
    """What is complained of, or the alarm."""

    first: int
    """The day on which it begins."""

    days: int
    peak: int
    """How many people it brings on its worst day."""

    sudden: bool = False

    def size(self, day: int) -> int:
        """How many people it brings on a day: the same each day, or rising to the peak and falling."""
        passed = (day - self.first + 1) / (self.days + 1)
        if not 0 < passed < 1:
            return 0
        return self.peak if self.sudden else round(self.peak * np.sin(np.pi * passed) ** 2)


OUTBREAKS = (
    Outbreak("flu", first=141, days=60, peak=2400),  # large and long
    Outbreak("vomiting", first=420, days=4, peak=900, sudden=True),  # a spoiled delivery: large and short
    Outbreak("rash after lotion 7731", first=640, days=12, peak=560),  # a label that never was there before
    Outbreak(CHILDREN, first=901, days=24, peak=340),  # spread over many complaints, none of which is common
)
DAYS = QUIET_DAYS + sum(outbreak.days for outbreak in OUTBREAKS)

STREAM = pp.Stream(
    "pharmacies",
    unit=pp.user("customer"),
    budget=pp.Budget(epsilon=1.0, delta=1e-6),  # for a customer with all she ever buys, both queries together
    horizon=DAYS,
    tick="1d",
    queries=[
        pp.Trending("complaints", key="complaint", alarms_per_user=3),  # unknown keys, the least threshold
        pp.Alarm(CHILDREN, where="age < 6 AND temperature >= 39", threshold=230, alarms_per_user=3),
    ],
)


def purchases(day: int) -> pl.DataFrame:
    """What is bought on a day: usual complaints, some that one customer alone has, and the outbreaks."""
    random = np.random.default_rng([7, day])
    parts = [_usual(day, random)]
    for outbreak in OUTBREAKS:
        people = _people(outbreak.size(day), random)
        if outbreak.name == CHILDREN:
            ill = people.with_columns(
                complaint=pl.Series(USUAL).gather(random.integers(len(USUAL), size=people.height)),
                age=pl.Series(random.integers(0, 6, size=people.height)),
                temperature=39.0 + random.random(people.height),
            )
        else:
            ill = people.with_columns(complaint=pl.lit(outbreak.name))
        parts.append(ill.select(parts[0].columns))
    return pl.concat(parts, how="vertical_relaxed")


def _usual(day: int, random: np.random.Generator) -> pl.DataFrame:
    number = int(random.poisson(PURCHASES))
    # The most usual complaint brings about 120 customers a day.
    weights = 1 / (np.arange(len(USUAL)) + 20.0)
    usual = pl.Series(USUAL).gather(random.choice(len(USUAL), size=number, p=weights / weights.sum()))
    rare = pl.select(pl.format("mixture {}-{}", pl.lit(day), pl.int_range(number))).to_series()
    return _people(number, random).with_columns(complaint=usual.zip_with(pl.Series(random.random(number) < 0.95), rare))


def _people(number: int, random: np.random.Generator) -> pl.DataFrame:
    """Different customers; few have a temperature."""
    temperature = random.normal(36.8, 0.4, size=number) + 2.5 * (random.random(number) < 0.03)
    return pl.DataFrame(
        {
            "customer": random.choice(CUSTOMERS, size=number, replace=False),
            "complaint": pl.Series([""] * number, dtype=pl.String),
            "age": random.integers(0, 90, size=number),
            "temperature": temperature,
        }
    )


def true_sizes(batch: pl.DataFrame) -> dict[str, int]:
    """How many different customers each complaint and the alarm have: shown here only because the data are made up."""
    by_key = batch.group_by("complaint").agg(pl.col("customer").n_unique())
    hot = batch.filter((pl.col("age") < 6) & (pl.col("temperature") >= 39))
    sizes: dict[str, int] = dict(by_key.iter_rows())
    return sizes | {CHILDREN: hot["customer"].n_unique(), _MOST_USUAL: max(sizes[name] for name in USUAL)}


def watch() -> tuple[pl.DataFrame, dict[str, list[int]]]:
    """Run the stream. What it reported, with the truth beside it; and true sizes, day by day."""
    live = STREAM.start()
    truths: dict[str, list[int]] = {name: [] for name in (*(outbreak.name for outbreak in OUTBREAKS), _MOST_USUAL)}
    reports: list[dict[str, Any]] = []
    for day in range(1, DAYS + 1):
        batch = purchases(day)
        release = live.tick(batch)
        sizes = true_sizes(batch)
        for name, series in truths.items():
            series.append(sizes.get(name, 0))
        for query in release:
            for row in release[query].to_dicts():
                name = row.pop("key", query)
                reports.append({"day": day, "name": name, **row, "truth": sizes.get(name, 0)})
    columns = {"day": pl.Int64, "name": pl.String, "estimate": pl.Int64, "low": pl.Int64, "high": pl.Int64}
    return pl.DataFrame(reports, schema=columns | {"truth": pl.Int64}), truths


def is_true(report: dict[str, Any]) -> bool:
    """Whether a report is of an outbreak that is there."""
    return any(each.name == report["name"] and each.size(report["day"]) for each in OUTBREAKS)


def detectable() -> dict[str, int]:
    """The sizes that the plan says will be found: those of the complaints and of the alarm."""
    trending, alarms = (cast("Any", query.mechanism) for query in STREAM.plan().queries)
    return {"complaints": trending.detectable(candidates=10**6), CHILDREN: alarms.detectable(CHILDREN)}


def show(reports: pl.DataFrame, truths: dict[str, list[int]], console: Console) -> None:
    """A row for each outbreak, and what came in quiet days."""
    sure = detectable()
    table = Table("outbreak", title="Found", title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("days", "peak", "sure from", "began", "found", "delay", "noisy size", "true size", "reported on"):
        table.add_column(column, justify="right")
    for outbreak in OUTBREAKS:
        found = reports.filter(pl.col("name") == outbreak.name)
        cells = [outbreak.name, f"{outbreak.days}", f"{max(truths[outbreak.name]):,}"]
        cells += [f"{sure.get(outbreak.name, sure['complaints'])}", f"day {outbreak.first}"]
        if not found.height:
            cells.append("never")
        else:
            first = found.row(0, named=True)
            half = first["high"] - first["estimate"]
            cells += [f"day {first['day']}", f"{first['day'] - outbreak.first} days"]
            cells += [f"{first['estimate']:,} ± {half}", f"{first['truth']:,}", f"{found.height} days"]
        table.add_row(*cells)
    console.print(table)
    console.print("\nSure from: what the plan says, before any data, will be found on its day with a chance of 95 %.")
    false = [report for report in reports.to_dicts() if not is_true(report)]
    told = "no false alarm" if not false else f"{len(false)} false alarms: {', '.join(each['name'] for each in false)}"
    console.print(f"Over {QUIET_DAYS:,} quiet ticks, and for all that was usual in the others: {told}.")
    console.print("A customer who was in three reports counts no more, so later sizes lean below the truth.")


def draw(reports: pl.DataFrame, truths: dict[str, list[int]], path: Path) -> None:
    """Each outbreak with the truth, what was reported and the threshold; below them all days."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    thresholds = {query["name"]: query["threshold"]["largest"] for query in STREAM.plan().to_dict()["queries"]}
    with rc_context({"font.size": 9, "text.color": _INK, "axes.edgecolor": "#b8b8b8", "axes.labelcolor": _SOFT}):
        figure = Figure(figsize=(10.0, 8.0), dpi=140)
        FigureCanvasAgg(figure)
        grid = figure.add_gridspec(3, 2, height_ratios=(1, 1, 0.7), hspace=0.42, wspace=0.14)
        figure.subplots_adjust(left=0.065, right=0.98, top=0.88, bottom=0.06)
        for place, outbreak in enumerate(OUTBREAKS):
            axes = figure.add_subplot(grid[place // 2, place % 2])
            found = reports.filter(pl.col("name") == outbreak.name)
            _draw_outbreak(axes, outbreak, found, truths, thresholds.get(outbreak.name, thresholds["complaints"]))
        _draw_all_days(figure.add_subplot(grid[2, :]), reports, truths[_MOST_USUAL])
        for axes in figure.axes:
            axes.set_ylim(bottom=0)
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(colors="#b8b8b8", labelcolor=_SOFT)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
        for place in (0, 2, 4):
            figure.axes[place].set_ylabel("customers a day")
        figure.axes[-1].set_xlabel("day")
        head = f"Four outbreaks, (1, 1e-6)-differential privacy per customer over {DAYS:,} days"
        how = "Orange: reported, with 95 % intervals.  Gray: the truth, drawn only because the data are made up."
        figure.text(0.02, 0.965, head, fontsize=13, fontweight="bold")
        figure.text(0.02, 0.935, how, color=_SOFT)
        figure.savefig(path)


def _draw_outbreak(
    axes: Any, outbreak: Outbreak, found: pl.DataFrame, truths: dict[str, list[int]], threshold: int
) -> None:
    margin = max(4, outbreak.days // 3)
    days = np.arange(outbreak.first - margin, outbreak.first + outbreak.days + margin)
    axes.bar(days, np.array(truths[outbreak.name])[days - 1], width=0.8 if outbreak.days < 30 else 1.0, color=_TRUTH)
    found = found.filter(pl.col("day").is_between(days[0], days[-1]))
    half = found["high"] - found["estimate"]
    axes.errorbar(found["day"], found["estimate"], half, fmt="o", color=_REPORT, markersize=3.5, elinewidth=1.0)
    axes.axhline(threshold, color=_INK, linewidth=0.9, linestyle=(0, (4, 2)))
    axes.text(days[0] - 0.5, threshold, f" threshold {threshold}", va="bottom", color=_SOFT, fontsize=8)
    when = f"found on its day {found['day'][0] - outbreak.first + 1}" if found.height else "not found"
    axes.set_title(f"{outbreak.name}: {when}", loc="left", fontsize=10, fontweight="bold")
    axes.set_xlim(days[0] - 0.6, days[-1] + 0.6)


def _draw_all_days(axes: Any, reports: pl.DataFrame, usual: list[int]) -> None:
    axes.fill_between(range(1, DAYS + 1), usual, color=_TRUTH, linewidth=0)
    axes.text(6, 190, "the most usual complaint of each day", color=_SOFT, fontsize=8)
    axes.plot(reports["day"], reports["estimate"], "o", color=_REPORT, markersize=2.5)
    for outbreak in OUTBREAKS:
        axes.text(outbreak.first + outbreak.days + 4, 500, outbreak.name, fontsize=8)
    axes.set_title("All days, and all that was reported", loc="left", fontsize=10, fontweight="bold")
    axes.set_xlim(0, DAYS + 1)


def main(folder: Path) -> None:
    console = Console(width=None if sys.stdout.isatty() else 120)
    print(STREAM.plan())
    print()
    reports, truths = watch()
    show(reports, truths, console)
    folder.mkdir(parents=True, exist_ok=True)
    picture = folder / "outbreak.png"
    try:
        draw(reports, truths, picture)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "matplotlib":
            raise
        print("\nFor a picture of it: pip install pianissimo[plot]")
    else:
        print(f"\nA picture of it: {picture}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("outbreak-output"))
