"""Every kind of query, with single events and with users hidden: durable, killed, in pieces, and with nothing in clear.

What happens in a tick is a function of its number, as in `world`.
"""

import errno
import shutil
import unittest.mock
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.faults.points import armed
from tests.faults.report import SOAK, record, size
from tests.faults.simulator import RecordingNoise
from tests.faults.world import Crash, alike

import pianissimo as pp
from pianissimo import codec
from pianissimo.durable import failpoints, stored_state
from pianissimo.durable.charging import charge_of
from pianissimo.durable.durable_stream import DurableStream
from pianissimo.durable.place import wire
from pianissimo.durable.start import Request
from pianissimo.durable.stored_ticks import Options
from pianissimo.errors import DiskFullError
from pianissimo.io.inspect import stored_releases, stored_request, verify
from pianissimo.ledger import Charge
from pianissimo.noise import KeyedNoise, Noise, Secret
from pianissimo.noise.keyed import Keys, PathPart
from pianissimo.stream import Live, Stream, StreamPlan
from pianissimo.stream.live_core import LiveCore
from pianissimo.stream.release import release_of
from pianissimo.testing import NoNoise
from pianissimo.users.user_table import UserUnits

TICKS = 6
REGIONS = ["north", "south"]
DRUGS = ["aspirin", "codeine", "ibuprofen", "a rare one"]
SECRET = Secret(bytes(range(32)))

COUNTED = (
    pp.Count("n", tidy=["non_negative", "monotone"]),
    pp.Sum("revenue", value="price", range=(0, 10)),
    pp.Histogram("regions", key="region", domain=REGIONS, every=2, tidy="monotone"),
)
CHEAP = pp.Alarm("cheap", where="price < 5", alarms_per_user=1)
PRICED: dict[str, Any] = {"value": "price", "range": (0, 10), "key": "region", "domain": REGIONS}
FIXED = {"max_events_per_user": 3, "most_events_per_user": 9}


def hidden(name: str, *queries: Any, **user: Any) -> Stream:
    """A stream of users."""
    return Stream(
        name, budget=pp.Budget(8.0, 1e-6), horizon=32, unit=pp.user("who", **user), queries=queries, tick="1h"
    )


def open_to_all(name: str, *queries: Any) -> Stream:
    """A stream of events."""
    return Stream(name, budget=pp.Budget(8.0, 1e-6), horizon=32, queries=queries, tick="1h")


STREAMS = {
    each.name: each
    for each in (
        open_to_all("counts", *COUNTED, pp.Histogram("drugs", key="drug", other=True)),
        open_to_all("labels", pp.Histogram("many", key="many", max_keys_per_event=2, remember=False)),
        open_to_all("tops", pp.TopK("top", key="drug", k=2, domain=DRUGS), pp.TopK("found", key="drug", k=2)),
        open_to_all("heavy", pp.HeavyHitters("drugs", key="drug", k=8, every=2)),
        open_to_all("heavy-sets", pp.HeavyHitters("many", key="many", k=8, max_keys_per_event=2)),
        open_to_all("quantiles", pp.Quantiles("price", value="price", range=(0, 10), cells=8, at=[0.5], largest=[1])),
        open_to_all("any-quantiles", pp.Quantiles("price", value="price", per=2), pp.Count("n")),
        open_to_all("largest", pp.MaxFrequency("most", key="drug", domain=DRUGS, every=2)),
        open_to_all("ticks", pp.Alarm("cheap", where="price < 5"), pp.Trending("rising", key="drug", domain=DRUGS)),
        open_to_all("tick-sets", pp.Trending("many", key="many", max_keys_per_event=2), pp.Count("n")),
        open_to_all("values", pp.Distinct("all", key="many", max_keys_per_event=2), pp.Count("n")),
        open_to_all("by-key", pp.Sum("sums", value="price", range=(0, 10), key="drug"), pp.Mean("mean", **PRICED)),
        open_to_all("few-keys", pp.HeavyHitters("drugs", key="drug", expected_keys=9)),
        hidden("users", *COUNTED, pp.Quantiles("price", value="price", range=(0, 10), cells=8), first_cap=2, caps=3),
        hidden("count-of-users", pp.Count("n"), first_cap=2, caps=3),
        hidden("sum-of-users", pp.Sum("revenue", value="signed", range=(-9, 9)), first_cap=2, caps=4),
        hidden(
            "value-cap", pp.Sum("revenue", value="price", range=(0, 10), max_per_user=12), pp.Count("n"), first_cap=2
        ),
        hidden("value-cap-that-follows", pp.Sum("revenue", value="price", range=(0, 10), max_per_user="auto"), caps=6),
        hidden("fixed-cap", *COUNTED, pp.MaxFrequency("most", key="drug", domain=DRUGS), **FIXED),
        hidden("periods", *COUNTED, pp.TopK("top", key="drug", k=2, domain=DRUGS), **FIXED, within=2, reset=False),
        hidden("taken-back", *COUNTED, weight="sign", first_cap=2, caps=3),
        hidden("distinct", pp.Distinct("drugs", key="drug", every=2), pp.Count("n"), first_cap=1, caps=3),
        hidden("active", pp.Users("active", where="price < 5"), pp.Users("all", every=2), pp.Count("n"), first_cap=1),
        hidden("active-in-periods", pp.Users("active"), **FIXED, within=2, reset=False),
        hidden("each-period", *COUNTED, pp.Distinct("drugs", key="drug"), pp.Users("all"), within=3, starts=2),
        hidden("labels-of-each-period", pp.Histogram("found", key="drug", count="users"), within=3, starts=2),
        hidden("found-labels", pp.Histogram("found", key="drug", other=True), first_cap=4, caps=3),
        hidden("found-users", pp.Histogram("found", key="drug", count="users"), pp.Users("all"), **FIXED),
        hidden("found-lists", pp.TopK("found", key="many", k=2, max_keys_per_event=2), first_cap=8, caps=3),
        hidden("found-sums", pp.Mean("found", value="price", range=(0, 10), key="drug"), first_cap=4, caps=3),
        hidden("heavy-of-users", pp.HeavyHitters("drugs", key="drug", k=8), max_events_per_user=2),
        hidden("trends", pp.Trending("rising", key="drug", max_keys_per_user=2, threshold=60)),
        hidden("known-trends", pp.Trending("rising", key="drug", domain=DRUGS), pp.Trending("two", key="region")),
        hidden("alarms", pp.Alarm("cheap", where="price < 5"), pp.Alarm("north", where=pl.col("region") == "north")),
        hidden("alarms-in-periods", CHEAP, pp.Trending("rising", key="drug", domain=DRUGS), within=2),
        hidden("alarms-in-shifted-periods", CHEAP, pp.Count("n"), within=3, starts=2, caps=4),
    )
}


@lru_cache
def plans() -> dict[str, tuple[Stream, StreamPlan]]:
    """Each stream with its plan; of heavy hitters one for each sketch."""
    found = {}
    for name, stream in STREAMS.items():
        plan = stream.plan()
        found[name] = stream, plan
        if name.startswith("heavy"):
            (query,) = plan.queries
            for other in query.alternatives:
                if other.selectable:
                    kind = type(other.mechanism).__name__
                    instead = replace(query, chosen=other, alternatives=())
                    found[f"{name} by {kind}"] = stream, replace(plan, queries=(instead,))
    return found


NAMES = sorted(plans())
every_stream = pytest.mark.parametrize("name", NAMES)
of_users = pytest.mark.parametrize("name", [name for name in NAMES if plans()[name][0].user is not None])


def events(tick: int) -> pl.DataFrame:
    """The events of a tick; some users come often, and in the third so many that a cap which follows is raised."""
    rng = np.random.default_rng(tick)
    size = 150 + 40 * (tick % 3) + 1200 * (tick == 3)
    drugs = pl.Series(DRUGS).gather(rng.choice(4, size=size, p=[0.6, 0.3, 0.09, 0.01]))
    more = pl.Series(DRUGS).gather(rng.integers(0, 4, size=size))
    return pl.DataFrame(
        {
            "who": pl.Series(rng.integers(0, 400, size=size)).cast(pl.String).replace({"7": "user seven"}),
            "drug": drugs,
            "region": pl.Series(REGIONS).gather(rng.integers(0, 2, size=size)),
            "price": rng.integers(-1, 12, size=size).astype(np.float64),
            "signed": rng.integers(-12, 12, size=size).astype(np.float64),
            "sign": rng.choice([1, 1, 1, -1], size=size),
            "many": pl.DataFrame({"a": drugs, "b": more}).select(pl.concat_list("a", "b"))["a"],
        }
    ).with_columns(who=pl.when(pl.int_range(pl.len()) % 5 == 0).then(pl.lit("often")).otherwise("who"))


def pieces(batch: pl.DataFrame, tick: int) -> list[pl.DataFrame]:
    """The same events in three batches, one of which may be empty."""
    cuts = [0, *sorted(np.random.default_rng(tick).integers(0, len(batch), size=2).tolist()), len(batch)]
    return [batch.slice(start, end - start) for start, end in pairwise(cuts)]


def opened(name: str, folder: Path, **options: Any) -> DurableStream:
    """The stream in a folder; all that are created here are alike."""
    stream, plan = plans()[name]
    options = {"snapshot_every": 3} | options
    secret, witness = options.pop("secret", SECRET), folder / "witness"
    with alike():
        wiring = wire(folder / "state", secret=secret, witness=witness)
        return DurableStream(Request(stream, stored=plan), wiring, Options(**options))


def run(
    live: DurableStream, last: int = TICKS, read: Callable[[int], pl.DataFrame] = events, *, whole: bool = True
) -> None:
    """Go on from where the stream stands."""
    while live.tick_number < last:
        tick = live.tick_number + 1
        for piece in [read(tick)] if whole else pieces(read(tick), tick):
            live.add(piece)
        live.tick()


def payloads(live: DurableStream) -> list[bytes]:
    return [live.payload(tick) for tick in range(1, live.tick_number + 1)]


@lru_cache
def undisturbed(name: str) -> tuple[bytes, ...]:
    """What the stream releases if nothing happens to it."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder, opened(name, Path(folder)) as live:
        run(live)
        return tuple(payloads(live))


class SameNoise(KeyedNoise):
    """Noise that is the same in memory and in a store: what stands for the life of a stream is left out of paths."""

    __slots__ = ()

    def at(self, *path: PathPart) -> Self:
        if path[:1] in (("stream",), ("pianissimo/noise/v1",)):
            return self
        place = path.index("sealed") if "sealed" in path else len(path)
        return super().at(*path[:place], *path[place + 2 :])


@every_stream
def test_a_durable_stream_in_pieces_releases_what_one_in_memory_does(name: str, tmp_path: Path) -> None:
    """Opened anew for each tick, whose events come in three batches; in memory they come in one."""
    live = Live(plans()[name][1], SameNoise(bytes(SECRET)))
    for tick in range(1, TICKS + 1):
        expected = live.tick(events(tick))
        with opened(name, tmp_path, make_noise=lambda _: SameNoise(bytes(SECRET))) as durable:
            *first, last = pieces(events(tick), tick)
            for piece in first:
                durable.add(piece)
            found = durable.tick(last)
            for release in (found, release_of(durable.payload(tick))):
                assert list(release) == list(expected)
                assert all(release[each].equals(expected[each]) for each in expected)


@pytest.mark.parametrize("name", ["found-users", "labels-of-each-period", "counts"])
def test_a_large_state_is_put_off_for_so_many_ticks_and_a_start_counts_them_again(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for constant, value in (("SMALL_STATE", 0), ("_SMALL_SHARE", 0), ("MOST_PUT_OFF", 3)):
        monkeypatch.setattr(stored_state, constant, value)
    with opened(name, tmp_path / "one", snapshot_every=1) as live:
        run(live)
        expected = payloads(live)
    replayed = []
    for tick in range(1, TICKS + 2):
        with opened(name, tmp_path / "other", snapshot_every=1) as live:
            replayed.append(live.recovered.replayed)
            run(live, min(tick, TICKS))
            found = payloads(live)
    assert found == expected
    # The first and the fourth are stored.
    assert replayed == [0, 0, 1, 2, 0, 1, 2]


def test_a_state_is_not_put_off_where_ticks_have_added_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_state, "SMALL_STATE", 0)
    monkeypatch.setattr(stored_state, "_SMALL_SHARE", 1000)
    with opened("found-users", tmp_path, snapshot_every=1) as live:
        run(live, 3)
    with opened("found-users", tmp_path) as live:
        assert live.recovered.replayed == 0


def test_when_a_state_is_stored_does_not_depend_on_what_was_tried(tmp_path: Path) -> None:
    def fail(_: str) -> None:
        raise OSError(errno.ENOSPC, "full")

    with opened("found-users", tmp_path) as live:
        run(live, 1)
        before = live._state.added_bytes
        with armed({"seal.commit": fail}), pytest.raises(DiskFullError):
            live.tick(events(2))
        assert live._state.added_bytes == before > 0
        live.tick(events(2))
        after = live._state.added_bytes
    with opened("found-users", tmp_path) as live:
        assert live._state.added_bytes == after


def run_in_pieces(name: str, folder: Path, **options: Any) -> None:
    for tick in range(1, TICKS + 1):
        with opened(name, folder, **options) as live:
            run(live, tick, whole=False)


POINTS = [
    "absorb.read",
    *("seal.begin", "seal.before_commit", "seal.commit", "seal.after_commit"),
    *("release.computed", "release.before_commit", "release.commit", "release.after_commit"),
    *("witness.before_append", "witness.append", "witness.sync", "witness.after_sync"),
    *("publish.before_commit", "publish.commit", "publish.after_commit"),
]


KILLED = (1, 3, 4)
"""The first tick, one with a snapshot, and the one after it."""

AT_A_RAISE = ("found-labels", "found-lists", "found-sums")
"""Whose cap is raised in the third tick: they are killed there at every step."""

BOUNDARIES = {"labels-of-each-period": (2, 4), "each-period": (2, 4)}
"""The first tick of a period that begins anew, and its last one."""


def killed_at(name: str, point: str) -> tuple[int, ...]:
    """In which ticks: with every change every second point, once, others from stream to stream; all in a soak."""
    place = NAMES.index(name) + POINTS.index(point)
    some = BOUNDARIES.get(name, KILLED)
    if SOAK:
        return tuple(sorted({*KILLED, *some}))
    if name in AT_A_RAISE:
        return (3,)
    return some if name == "labels-of-each-period" else (some[place // 2 % len(some)],) if place % 2 else ()


@pytest.mark.parametrize("name", AT_A_RAISE)
def test_labels_are_found_and_the_cap_is_raised_in_the_tick_of_the_kills(name: str) -> None:
    tables = [release_of(payload)["found"] for payload in undisturbed(name)]
    caps = [table["cap"][0] for table in tables]
    assert caps[1] < caps[2]
    assert len(set(caps)) == 2
    assert all("aspirin" in table["key"] for table in tables)


def test_a_period_begins_where_it_is_killed() -> None:
    totals = [release_of(payload)["all"]["estimate"][0] for payload in undisturbed("each-period")]
    first, last = BOUNDARIES["each-period"]
    assert totals[first - 1] < totals[last - 1] > totals[last]


def crash(_: str) -> None:
    raise Crash


@every_stream
def test_killed_at_every_step_of_a_tick_it_releases_the_same_bytes(name: str, tmp_path: Path) -> None:
    crashes, kept = 0, tmp_path / "kept"
    kept.mkdir()
    opened(name, kept).close()
    for tick in range(1, TICKS):
        for point in [point for point in POINTS if tick in killed_at(name, point)]:
            copy = shutil.copytree(kept, tmp_path / "copy")
            try:
                with opened(name, copy) as live, armed({point: crash}):
                    failpoints.reach("absorb.read")
                    live.tick(events(tick))
            except Crash:
                crashes += 1
            with opened(name, copy) as live:
                # Also the next tick, whose noise depends on the state that was stored.
                run(live, tick + 1)
                assert payloads(live) == list(undisturbed(name)[: tick + 1])
            shutil.rmtree(copy)
        with opened(name, kept) as live:
            run(live, tick)
    assert crashes == sum(len(killed_at(name, point)) for point in POINTS)
    record(
        "R4",
        f"{name}: killed at each step of a tick",
        figure=f"{crashes} crashes, 0 differing bytes",
        bar="0 differing bytes",
        passed=True,
    )


@every_stream
def test_what_is_sealed_has_no_order_but_a_users_own(name: str, tmp_path: Path) -> None:
    """Users trade places, each one's events stay in their order; where no users are hidden all events do."""

    def shuffled(tick: int) -> pl.DataFrame:
        batch, rng = events(tick), np.random.default_rng(100 + tick)
        if plans()[name][0].user is None:
            return batch[rng.permutation(len(batch))]
        users = batch["who"].unique(maintain_order=True)
        places = pl.DataFrame({"who": users, "place": rng.permutation(len(users))})
        return batch.join(places, on="who", how="left", maintain_order="left").sort("place", maintain_order=True)

    assert not shuffled(1).drop("place", strict=False).equals(events(1))
    with opened(name, tmp_path) as live:
        run(live, read=shuffled)
        assert payloads(live) == list(undisturbed(name))


@every_stream
def test_ticks_that_are_sealed_together_change_no_byte(name: str, tmp_path: Path) -> None:
    """Whatever is asked: what looks at the ticks before is never held."""
    with opened(name, tmp_path) as live:
        while live.tick_number < TICKS:
            last = min(TICKS, live.last_together)
            while live.next_tick < last:
                live.add(events(live.next_tick))
                live.hold()
            live.tick(events(last))
        assert payloads(live) == list(undisturbed(name))


@every_stream
def test_a_rotated_secret_and_restarts_change_no_byte(name: str, tmp_path: Path) -> None:
    """What is drawn again after the rotation comes from the secret under which it was first drawn."""
    found = []
    new = Secret(bytes(range(1, 33)))
    for restarts in (False, True):
        folder = tmp_path / str(restarts)
        folder.mkdir()
        live = opened(name, folder)
        run(live, 3)
        live.rotate_secret(new)
        for tick in range(4, TICKS + 1):
            if restarts:
                live.close()
                live = opened(name, folder, secret=new)
            run(live, tick)
        found.append(payloads(live))
        live.close()
    assert found[0] == found[1]
    assert found[0][:3] == list(undisturbed(name)[:3])


class Recording(RecordingNoise):
    """Also writes down where bits were asked for."""

    def bits(self, keys: Keys) -> NDArray[np.uint64]:
        self.book.add((self.path, "bits", None, np.ascontiguousarray(keys).tobytes()))
        return super().bits(keys)


def drawn(name: str, folder: Path, read: Callable[[int], pl.DataFrame]) -> tuple[set[Any], dict[bytes, int]]:
    """All draws of a run, and the tick of each seal."""
    book: set[Any] = set()
    folder.mkdir()
    with opened(name, folder, make_noise=lambda _: Recording(book)) as live:
        run(live, read=read)
        return book, {live._mac_of(tick): tick for tick in range(TICKS + 1)}


@every_stream
def test_all_noise_is_bound_to_sealed_data(name: str, tmp_path: Path) -> None:
    """Two streams that differ from tick 4 on, as after a lost tail, share no noise that is first drawn since."""
    book, ticks = drawn(name, tmp_path / "one", events)
    other, _ = drawn(name, tmp_path / "other", lambda tick: events(tick if tick < 4 else tick + 10))
    assert all("sealed" in draw[0] for draw in book)
    shared = {ticks[draw[0][draw[0].index("sealed") + 1]] for draw in book & other}
    assert max(shared) <= 3
    bound = {ticks[draw[0][draw[0].index("sealed") + 1]] for draw in book}
    assert max(bound) >= TICKS - 1


def test_counters_that_begin_anew_are_bound_to_what_was_sealed_since(tmp_path: Path) -> None:
    def rising(tick: int) -> pl.DataFrame:
        """At tick 3 many users come, each with many events."""
        return pl.DataFrame({"who": [f"user {number % 300}" for number in range(1500 if tick == 3 else 3)]})

    book, ticks = drawn("count-of-users", tmp_path / "one", rising)
    begun = set()
    for path, *_ in book:
        if "head" in path:
            start, _, since = path[path.index("head") + 2 : path.index("head") + 5]
            tick = ticks[path[path.index("sealed") + 1]]
            begun.add((start, since))
            assert tick == since if "prefix" in path else tick >= since
    assert begun == {(1, 0), (2, 3)}


@pytest.mark.parametrize("name", STREAMS)
def test_a_stored_request_explains_itself(name: str, tmp_path: Path) -> None:
    """What `verify`, `status` and `releases` read from the store alone."""
    with opened(name, tmp_path) as live:
        run(live, 4)
        names = set(live.released(4))
    asked = stored_request(tmp_path / "state")
    assert repr(asked.stream) == repr(STREAMS[name])
    place: dict[str, Any] = {"secret": SECRET, "witness": tmp_path / "witness"}
    found = verify(asked, tmp_path / "state", **place)
    assert (found.seals, found.releases) == (4, 4)
    assert set(stored_releases(tmp_path / "state")) == names


def test_one_mechanism_is_charged_once() -> None:
    plan = plans()["users"][1]
    loss = plan.queries[0].guarantee.loss.as_booked()
    charge = charge_of(plan)
    assert charge == Charge.rounded_up(rho=loss.rho, bad=loss.bad + 2**10 * loss.distance)


# A cap that a crash resets, or that holds for each batch alone, breaks the promise.


def amounts(name: str, folder: Path, **options: Any) -> list[dict[str, Any]]:
    """What is released without noise, in pieces and opened anew after each tick."""
    run_in_pieces(name, folder, make_noise=lambda _: NoNoise(), **options)
    with opened(name, folder, make_noise=lambda _: NoNoise(), read_only=True) as live:
        return [_tables(release_of(payload)) for payload in payloads(live)]


def _tables(release: Any) -> dict[str, Any]:
    return {each: release[each].to_dict(as_series=False) for each in release}


def in_memory(name: str) -> list[dict[str, Any]]:
    live = Live(plans()[name][1], NoNoise())
    return [_tables(live.tick(events(tick))) for tick in range(1, TICKS + 1)]


class ForgottenAtLoad(UserUnits):
    """A returning user has a fresh allowance after a crash."""

    def take_plain(self, content: codec.Plain) -> None:
        self.set_cap(content["cap"])


class CapPerBatch(UserUnits):
    """A user has a fresh allowance in each batch, and what was kept is kept."""

    def __init__(self, noise: Noise, cap: int) -> None:
        super().__init__(noise, cap)
        self.before = 0

    @property
    def kept(self) -> int:
        return self.before + super().kept

    def add(self, names: Keys, units: Any = None) -> None:
        self._begin()
        super().add(names, units)

    def add_and_tell_before(self, names: Keys) -> Any:
        self._begin()
        return super().add_and_tell_before(names)

    def _begin(self) -> None:
        self.before = self.kept
        self.clear()


@pytest.mark.parametrize("name", ["fixed-cap", "count-of-users", "taken-back", "sum-of-users", "distinct"])
@pytest.mark.parametrize("mutant", [None, ForgottenAtLoad, CapPerBatch])
def test_a_users_cap_outlives_crashes_and_batches(name: str, mutant: type[UserUnits] | None, tmp_path: Path) -> None:
    expected = in_memory(name)
    with unittest.mock.patch("pianissimo.users.counters.UserUnits", mutant or UserUnits):
        found = amounts(name, tmp_path, snapshot_every=1)
    assert (found == expected) == (mutant is None)
    record(
        "R4",
        f"user cap, {name}: {'kept' if mutant is None else mutant.__name__}",
        figure="equal to one run in memory" if mutant is None else "caught",
        bar="equal; a cap reset by a crash or kept per batch is caught",
        passed=True,
    )


# S1: what one user moves.

BOUNDED = hidden(
    "bounded",
    pp.Count("n"),
    pp.Sum("revenue", value="price", range=(-7, 5)),
    pp.Histogram("drugs", key="drug", domain=DRUGS),
    pp.Distinct("different", key="drug"),
    pp.Users("active", where="price > 0"),
    max_events_per_user=3,
)
BOUNDS = {"n": 3, "revenue": 3 * 7, "drugs": 3, "different": 2 * 3, "active": 1, "above_cap": 1}
rows = st.fixed_dictionaries(
    {"who": st.sampled_from("ABCD"), "drug": st.sampled_from(DRUGS), "price": st.integers(-9, 9)}
)
ticks_of_batches = st.lists(st.lists(st.lists(rows, max_size=8), min_size=1, max_size=3), min_size=2, max_size=3)
PAIRS = size(40, 500)
_pairs = 0


def moved(plan: StreamPlan, ticks: list[list[list[dict[str, Any]]]], user: str) -> dict[str, int]:
    """How far one user moves what each query adds up, over all ticks and labels, through gather, store and add."""
    series: dict[str, list[NDArray[np.int64]]] = {name: [] for name in BOUNDS}
    for sign, left_out in ((1, None), (-1, user)):
        live = Live(plan, NoNoise())
        parts = LiveCore(plan, lambda _: NoNoise()).parts
        for tick, batches in enumerate(ticks, 1):
            for batch in batches:
                inputs = live._core.inputs([row for row in batch if row["who"] != left_out], 1, drop_bad_rows=False)
                for part, content in zip(parts, inputs, strict=True):
                    part.add(codec.unpack("delta", 1, codec.pack("delta", 1, part.gather(content))))
            tables = {name: table for part in parts for name, table in part.tables(tick).items()}
            for name, table in tables.items():
                series[name].append(sign * table["estimate"].to_numpy().astype(np.int64))
    found = {}
    for name, totals in series.items():
        half = len(totals) // 2
        difference = np.array([one + other for one, other in zip(totals[:half], totals[half:], strict=True)])
        found[name] = int(np.abs(np.diff(difference, axis=0, prepend=0 * difference[:1])).sum())
    return found


@lru_cache
def _bounded_plan() -> StreamPlan:
    return BOUNDED.plan()


@settings(max_examples=PAIRS, deadline=None)
@given(ticks=ticks_of_batches, user=st.sampled_from("ABCD"))
def check_pair(ticks: list[list[list[dict[str, Any]]]], user: str) -> None:
    global _pairs
    _pairs += 1
    for name, amount in moved(_bounded_plan(), ticks, user).items():
        assert amount <= BOUNDS[name]


def test_one_user_moves_what_is_sealed_by_at_most_her_bound() -> None:
    check_pair()
    assert _pairs >= PAIRS
    record(
        "S1",
        "pairs with and without one user",
        figure=f"{_pairs} pairs, 0 beyond the declared bound",
        bar=f">= {PAIRS} pairs, measured <= declared",
        passed=True,
    )


def test_a_cap_for_each_batch_moves_more() -> None:
    batch = [{"who": "A", "drug": drug, "price": -9} for drug in DRUGS]
    ticks = [[batch, batch], [batch], [batch]]
    found = moved(_bounded_plan(), ticks, "A")
    assert {name: found[name] for name in ("n", "revenue", "drugs", "different")} == {
        "n": 3,
        "revenue": 21,
        "drugs": 3,
        "different": 3,
    }
    with unittest.mock.patch("pianissimo.users.counters.UserUnits", CapPerBatch):
        assert moved(_bounded_plan(), ticks, "A")["drugs"] > BOUNDS["drugs"]


# S11: nothing in clear.

CANARY = "canary0user0of0tests"
LABEL = "label0of0the0canary"


def _files(folder: Path) -> Iterator[tuple[Path, bytes]]:
    for path in folder.rglob("*"):
        if path.is_file():
            yield path, path.read_bytes()


@every_stream
def test_no_user_and_no_hidden_label_is_in_any_file(name: str, tmp_path: Path) -> None:
    def marked(tick: int) -> pl.DataFrame:
        batch = events(tick)
        lone = batch.head(1).with_columns(
            who=pl.lit(f"{CANARY}{tick}"), drug=pl.lit(LABEL), many=pl.concat_list(pl.lit(LABEL), pl.lit("aspirin"))
        )
        often = batch.head(5).with_columns(who=pl.lit(CANARY))
        return pl.concat([batch, lone, often])

    deltas = []
    with opened(name, tmp_path) as live:
        while live.tick_number < TICKS:
            live.add(marked(live.tick_number + 1))
            deltas.append(codec.pack("delta", 1, live._added))
            live.tick()
    for path, content in _files(tmp_path):
        for text in (CANARY, LABEL):
            assert text.encode() not in content, path.name
            assert text.encode("utf-16-le") not in content, path.name
    assert all(CANARY.encode() not in delta for delta in deltas)
    record("S11", f"{name}: canaries", figure="0 hits in all files", bar="0 hits", passed=True)
