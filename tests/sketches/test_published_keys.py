"""Servers that add noise themselves: their releases add up, bars hold, and error grows with their number."""

from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.sketches.small_sketches import release_sketch

from pianissimo.errors import ParameterError
from pianissimo.sketches import MisraGries, PrivateMisraGries, PublishedKeys, SketchRelease, add_published
from pianissimo.testing import NoNoise, SeededNoise

K, SERVERS = 16, 5


def server(keys: Any) -> MisraGries:
    sketch = MisraGries(k=K, keys="int64")
    sketch.update(np.asarray(keys, dtype=np.int64))
    return sketch


def test_without_noise_it_is_the_sum_of_what_servers_show() -> None:
    counts = [{1: 100, 2: 40}, {1: 50, 3: 30}, {2: 20}]
    parts = [
        release_sketch(
            server(np.repeat(list(each), list(each.values()))).contents(), k=K, epsilon=1, delta=1e-6, noise=NoNoise()
        ).published()
        for each in counts
    ]
    theta, reach = 17, int(-parts[0].table["low"][0] + 100) // 2
    added = add_published(parts)
    assert added.table.select("key", "estimate").rows() == [(1, 150), (2, 60), (3, 30)]
    # Each server that does not show a key may have hidden up to theta - 1 of it, and the noise.
    hidden = theta - 1 + reach
    assert {part.most_hidden for part in parts} == {hidden}
    assert added.most_hidden == 3 * hidden
    assert added.table["high"].to_list() == [150 + 2 * reach + hidden, 60 + 2 * reach + hidden, 30 + reach + 2 * hidden]
    assert added.table["low"].to_list() == [
        150 - 4 * reach,
        max(0, 40 - 2 * reach) + max(0, 20 - 2 * reach),
        30 - 2 * reach,
    ]
    assert added.coverage == pytest.approx(1 - 3 * 0.05)


def streams(seed: int) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [np.concatenate([np.repeat(np.arange(6), 80), generator.integers(100, 400, 3000)]) for _ in range(SERVERS)]


def all_hold(parts: list[SketchRelease], truth: dict[int, int]) -> bool:
    added = add_published([part.published() for part in parts])
    shown = {key: (low, high) for key, _, low, high in added.table.iter_rows()}
    assert added.most_hidden is not None
    return all(
        low <= count <= high for key, count in truth.items() for low, high in [shown.get(key, (0, added.most_hidden))]
    )


def test_bars_hold_for_all_keys_shown_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """False alarms: coverage 1 - 1e-9 of five servers, forty runs. Without D in what may be hidden they fail."""
    mechanism = PrivateMisraGries.calibrated(k=K, epsilon=1, delta=1e-6)
    columns = streams(1)
    for column in columns:
        np.random.default_rng(2).shuffle(column)
    contents = [server(column).contents() for column in columns]
    truth = dict(zip(*np.unique(np.concatenate(columns), return_counts=True), strict=True))

    def released(seed: int) -> list[SketchRelease]:
        return [
            mechanism.release(each, SeededNoise(seed).at(number), coverage=1 - 1e-9)
            for number, each in enumerate(contents)
        ]

    assert all(all_hold(released(seed), truth) for seed in range(40))
    monkeypatch.setattr(SketchRelease, "most_hidden", property(lambda self: self.threshold - 1))
    assert not all_hold(released(1), truth)


def test_error_grows_with_the_number_of_servers() -> None:
    """A key just below the threshold at every server is not shown at all; one sketch of everything shows it."""
    theta = 17
    parts = [
        release_sketch(server([7] * (theta - 1)).contents(), k=K, epsilon=1, delta=1e-6, noise=NoNoise()).published()
        for _ in range(SERVERS)
    ]
    added = add_published(parts)
    assert added.table.height == 0
    assert added.most_hidden is not None
    assert added.most_hidden >= SERVERS * (theta - 1)
    together = server([7] * (theta - 1) * SERVERS)
    assert release_sketch(together.contents(), k=K, epsilon=1, delta=1e-6, noise=NoNoise()).to_dict() == {7: 80}


def test_what_nothing_bounds_stays_open() -> None:
    frame = pl.DataFrame({"key": [1, 2], "estimate": [9.0, 8.0], "low": [1.0, 1.0], "high": [20.0, None]})
    open_end = PublishedKeys(table=frame, most_hidden=None, coverage=0.9)
    bounded = PublishedKeys(table=frame.head(1), most_hidden=5, coverage=0.9)
    added = add_published([open_end, bounded])
    assert added.table["high"].to_list() == [40.0, None]
    assert added.most_hidden is None
    with pytest.raises(ParameterError, match="at least one release"):
        add_published([])
    with pytest.raises(ParameterError, match="keys of one type"):
        add_published([bounded, PublishedKeys(table=frame.cast({"key": pl.String}), most_hidden=5, coverage=0.9)])
