"""papers/sparse_vector: a small version of the comparison, and the same with real users."""

import csv
import doctest
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from papers.sparse_vector import example_1_4
from papers.sparse_vector.example_1_4 import PARTITIONS, World
from tests.monitors.calibrating import trends

from pianissimo.loss.composition import price
from pianissimo.loss.losses import Pure
from pianissimo.mechanism import Run
from pianissimo.monitors import AboveThreshold
from pianissimo.testing import NoNoise, SeededNoise

SMALL = World(groups=10, keys=40)


def test_its_examples_hold() -> None:
    assert doctest.testmod(example_1_4).failed == 0


def test_the_race_monitor_finds_all_where_the_others_find_a_part() -> None:
    # Chances of a miss are below 1e-9 at 400 users, and of a false report 0.05 by construction: the seed is fixed.
    cells = {cell.method: cell for cell in example_1_4.simulate(SMALL, [400], runs=3, seed=5)}
    assert cells["RaceMonitor"].found == SMALL.heavy
    assert cells["restarted AboveThreshold"].found == cells["restarted AboveThreshold"].allowed < SMALL.heavy / 2
    assert cells["published ThresholdMonitor"].found == 0
    assert sum(cell.false for cell in cells.values()) == 0


def test_the_restarted_technique_is_within_its_budget_and_uses_it() -> None:
    for size in (300, 1000):
        epsilon, allowed = example_1_4.shares(World(), size)
        assert price([Pure(epsilon)] * allowed, 1e-6).epsilon <= 1
        assert price([Pure(epsilon)] * (allowed + 1), 1e-6).epsilon > 1


def test_its_vector_is_a_row_of_runs_of_above_threshold() -> None:
    queries = np.random.default_rng(1).integers(0, 30, 200)
    single, allowed, noise = AboveThreshold(threshold=25, epsilon=1), 12, NoNoise()
    expected, state = list[int](), single.start()
    for place, query in enumerate(queries.tolist()):
        if len(expected) < allowed and single.test(state, query, noise):
            expected.append(place)
            state = single.start()
    assert example_1_4.reports(single, queries, allowed, noise).tolist() == expected
    assert len(expected) == allowed


@pytest.mark.parametrize(("k", "found"), [(1, 1), (2, 2), (3, 3)])
def test_with_real_users_as_many_partitions_are_found_as_users_may_be_charged(k: int, found: int) -> None:
    groups, size = 10, 400
    users = np.arange(groups * size)
    generator = np.random.default_rng(2)
    partitions = [generator.permutation(users).reshape(groups, size) for _ in range(PARTITIONS)]
    keys = [f"{partition}-{group}" for partition in range(PARTITIONS) for group in range(groups)]
    trending = trends(horizon=len(keys), alarms_per_user=k, domain=keys)
    run = Run(trending, SeededNoise(3))
    reported = []
    for partition in range(PARTITIONS):
        for group in range(groups):
            key = f"{partition}-{group}"
            run.update(pl.DataFrame({"user": partitions[partition][group], "key": [key] * size}))
            reported += run.release().value.labels.to_list()
    assert sorted(reported) == sorted(key for key in keys if int(key[0]) < found)


def test_the_committed_table_is_what_the_command_writes(tmp_path: Path) -> None:
    result = CliRunner().invoke(example_1_4.main, ["--out", str(tmp_path), "--runs", "1", "--groups", "4"])
    assert result.exit_code == 0
    with (tmp_path / "example_1_4.csv").open() as made, (example_1_4.EXPECTED / "example_1_4.csv").open() as committed:
        fresh, kept = list(csv.DictReader(made)), list(csv.DictReader(committed))
    assert [(row["size"], row["method"]) for row in fresh] == [(row["size"], row["method"]) for row in kept]
    assert (tmp_path / "example_1_4.png").stat().st_size > 10_000
    by_size = {(int(row["size"]), row["method"]): float(row["found"]) for row in kept}
    readme = (example_1_4.EXPECTED.parent / "README.md").read_text()
    for size in example_1_4.TABLE_SIZES:
        cells = " | ".join(f"{by_size[size, method]:.1f}" for method in example_1_4.METHODS)
        assert f"| {size:,} | {cells} |" in readme
