"""Example 1.4 made concrete: three partitions of the users, so that each user is in three heavy hitters.

Every tick one group of one partition holds one key, and all keys of a public domain are tested. A group is a heavy
hitter of `size` users; there are three times `groups` of them, and each user is in three. At equal privacy for a user
with all her data, how many of them are found?

- *Restarted AboveThreshold* pays for every report, whoever is in it: the budget is shared by as many runs as it can pay
  for at the noise that these groups need. It stops when they are used up.
- *ThresholdMonitor*, as published, charges users, three times each.
- *RaceMonitor* does the same by Theorem R.

Each has the threshold at which the union bound promises, with probability 95%, no false report in the whole run.

Run `python -m papers.sparse_vector.example_1_4 --out DIR`; it takes five seconds.
"""

import csv
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

from papers.continual_histograms import drawing
from pianissimo.loss.composition import price
from pianissimo.loss.losses import Pure
from pianissimo.monitors import AboveThreshold, RaceMonitor, ThresholdMonitor
from pianissimo.monitors.race_monitor import quiet_threshold
from pianissimo.noise import KeyedNoise, Noise

EXPECTED = Path(__file__).parent / "expected"
EPSILON, DELTA, FAILURE = 1.0, 1e-6, 0.05
PARTITIONS = 3
SIZES = (100, 150, 200, 250, 300, 500, 1000, 2000, 5000, 10_000, 20_000, 100_000, 500_000, 1_000_000, 2_000_000)
TABLE_SIZES = (100, 300, 1000, 5000, 20_000, 1_000_000, 2_000_000)
COLUMNS = ("size", "method", "runs", "reports paid for", "found", "false")


@dataclass(frozen=True, slots=True)
class World:
    """How many heavy hitters there are, and how many keys are tested at each tick."""

    groups: int = 100
    """Of each partition, one a tick."""

    keys: int = 1000
    """The public domain."""

    @property
    def heavy(self) -> int:
        """How many heavy hitters there are, and ticks."""
        return PARTITIONS * self.groups

    @property
    def tests(self) -> int:
        """How many tests a run makes."""
        return self.heavy * self.keys

    def weights(self, size: int) -> NDArray[np.int64]:
        """Of all tests: at each tick the first key is held by a group. Nobody is in a fourth."""
        weights = np.zeros((self.heavy, self.keys), dtype=np.int64)
        weights[:, 0] = size
        return weights.ravel()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run reported."""

    found: int
    """Heavy hitters."""

    false: int
    """Keys that nobody held."""


Method = Callable[[World, int, KeyedNoise], Outcome]


def race(world: World, size: int, noise: KeyedNoise) -> Outcome:
    """RaceMonitor with k = 3: its threshold is the one that stays quiet, whatever the size."""
    monitor = race_monitor(world)
    tops = monitor.test_weights(world.weights(size), _keys(world), noise)
    return _outcome(world, tops.places)


def published(world: World, size: int, noise: KeyedNoise) -> Outcome:
    """ThresholdMonitor with k = 3."""
    monitor = published_monitor(world)
    return _outcome(world, np.flatnonzero(monitor.test_weights(world.weights(size), _keys(world), noise)))


def restarted(world: World, size: int, noise: KeyedNoise) -> Outcome:
    """AboveThreshold, started anew after each report, as often as the budget pays for."""
    epsilon, allowed = shares(world, size)
    if not allowed:
        return Outcome(0, 0)
    single = AboveThreshold(threshold=size // 2, epsilon=epsilon)
    return _outcome(world, reports(single, world.weights(size), allowed, noise))


def reports(single: AboveThreshold, queries: NDArray[np.int64], allowed: int, noise: Noise) -> NDArray[np.int64]:
    """Where so many runs of AboveThreshold end, each going on behind the one before.

    One draw for each query and one for each run's threshold: the law of `AboveThreshold.test`, all queries in a vector.
    """
    keys = np.arange(len(queries), dtype=np.uint64)
    noisy = queries + np.asarray(noise.at("query").laplace(single.query_scale, keys))
    limits = np.asarray(noise.at("threshold").laplace(single.threshold_scale, keys[:allowed])) + single.threshold
    reported, place = [], 0
    for limit in limits.tolist():
        above = np.flatnonzero(noisy[place:] > limit)
        if not len(above):
            break
        place += int(above[0]) + 1
        reported.append(place - 1)
    return np.array(reported, dtype=np.int64)


METHODS: dict[str, Method] = {
    "restarted AboveThreshold": restarted,
    "published ThresholdMonitor": published,
    "RaceMonitor": race,
}


@cache
def race_monitor(world: World) -> RaceMonitor:
    """The monitor of a world.

    >>> monitor = race_monitor(World())
    >>> round(float(monitor.b), 2), monitor.threshold, monitor.detectable(World().tests)
    (13.87, 227, 266)
    """
    scale = RaceMonitor.calibrate(epsilon=EPSILON, delta=DELTA, k=PARTITIONS)
    return RaceMonitor(k=PARTITIONS, b=scale, threshold=quiet_threshold(scale, world.tests, Fraction(FAILURE)))


@cache
def published_monitor(world: World) -> ThresholdMonitor:
    """The published monitor of a world, with the threshold that stays quiet.

    >>> monitor = published_monitor(World())
    >>> round(monitor.outer_scale, -2), round(monitor.detectable(World().tests), -4)
    (43800.0, 1380000.0)
    """
    shape = ThresholdMonitor.calibrated(epsilon=EPSILON, delta=DELTA, k=PARTITIONS, threshold=0)
    threshold = math.ceil(shape.outer_scale * math.log(world.tests / FAILURE) + shape.cap)
    return ThresholdMonitor(k=PARTITIONS, threshold=threshold, e=shape.e, d=shape.d)


@cache
def shares(world: World, size: int) -> tuple[Fraction, int]:
    """The epsilon that one AboveThreshold needs at this size, and how many of them the budget pays for.

    The sum of two Laplace noises of scale a passes x with probability (1 + x / 2a) e^(-x / a) / 2; with x half the
    size, neither a false report nor a miss comes in the whole run with probability 95%.

    >>> epsilon, allowed = shares(World(), 1000)
    >>> round(float(epsilon), 3), allowed
    (0.072, 14)
    """

    def fails(scale: float) -> float:
        reach = size / 2 / scale
        return world.tests * (1 + reach / 2) * math.exp(-reach) / 2

    low, high = size / 2 / 100, size / 2.0
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if fails(middle) <= FAILURE / 2 else (low, middle)
    epsilon = Fraction(math.ceil(2 / low * 2**20), 2**20)
    fits, past = 0, 1
    while past <= world.heavy and _fits(epsilon, past):
        fits, past = past, 2 * past
    past = min(past, world.heavy + 1)
    while past - fits > 1:
        middle = (fits + past) // 2
        fits, past = (middle, past) if _fits(epsilon, middle) else (fits, middle)
    return epsilon, fits


def _fits(epsilon: Fraction, times: int) -> bool:
    return price([Pure(epsilon)] * times, DELTA).epsilon <= EPSILON


@dataclass(frozen=True, slots=True)
class Cell:
    """One method at one size: means over runs."""

    size: int
    method: str
    runs: int
    allowed: int
    found: float
    false: float

    def row(self) -> tuple[object, ...]:
        """As in the CSV file."""
        return self.size, self.method, self.runs, self.allowed, f"{self.found:.2f}", f"{self.false:.3f}"


def simulate(world: World, sizes: Sequence[int], runs: int, seed: int) -> list[Cell]:
    """All methods at all sizes."""
    root = KeyedNoise(seed.to_bytes(32, "big"))
    cells = []
    for size in sizes:
        for name, method in METHODS.items():
            outcomes = [method(world, size, root.at(name, size, run)) for run in range(runs)]
            allowed = shares(world, size)[1] if method is restarted else world.heavy
            found, false = (float(np.mean([getattr(each, what) for each in outcomes])) for what in ("found", "false"))
            cells.append(Cell(size, name, runs, allowed, found, false))
    return cells


def draw(world: World, cells: Sequence[Cell], path: Path) -> None:
    """The share that each method finds, against the size of the heavy hitters."""
    colors = dict(zip(METHODS, (drawing.ORANGE, drawing.PINK, drawing.BLUE), strict=True))
    with drawing.in_style():
        figure = drawing.new_figure((7.6, 3.6))
        axes = figure.add_axes((0.08, 0.15, 0.66, 0.74))
        for name, color in colors.items():
            mine = [cell for cell in cells if cell.method == name]
            axes.plot(
                [cell.size for cell in mine], [cell.found for cell in mine], color=color, marker="o", markersize=3
            )
        axes.set_xscale("log")
        axes.set_ylim(0, world.heavy * 1.05)
        for name, height in zip(
            ("RaceMonitor", "restarted AboveThreshold", "published ThresholdMonitor"), (0.93, 0.6, 0.2), strict=True
        ):
            axes.annotate(
                name, (1.02, height), xycoords="axes fraction", color=colors[name], fontsize=8, fontweight="bold"
            )
        drawing.finish(
            axes,
            title=f"Heavy hitters found, of {world.heavy}, at epsilon 1 and delta 1e-6 per user",
            across="users in each heavy hitter",
            upward="found",
        )
        drawing.save(figure, path)


def _keys(world: World) -> NDArray[np.uint64]:
    return np.arange(world.tests, dtype=np.uint64)


def _outcome(world: World, places: NDArray[np.int64]) -> Outcome:
    heavy = int((places % world.keys == 0).sum())
    return Outcome(heavy, len(places) - heavy)


@click.command()
@click.option("--out", type=click.Path(path_type=Path), default=EXPECTED, help="Where the CSV and PNG files go.")
@click.option("--runs", default=10, help="Runs of each method at each size.")
@click.option("--groups", default=World().groups, help="Groups of each partition.")
@click.option("--seed", default=1, help="Of the simulated noise.")
def main(out: Path, runs: int, groups: int, seed: int) -> None:
    """Simulate, print the table, and write the figure."""
    world = World(groups=groups)
    cells = simulate(world, SIZES, runs, seed)
    out.mkdir(parents=True, exist_ok=True)
    with (out / "example_1_4.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(cell.row() for cell in cells)
    draw(world, cells, out / "example_1_4.png")
    click.echo(f"| users in each | {' | '.join(METHODS)} |")
    for size in TABLE_SIZES:
        click.echo(f"| {size:,} | {' | '.join(f'{cell.found:.1f}' for cell in cells if cell.size == size)} |")


if __name__ == "__main__":
    main()
