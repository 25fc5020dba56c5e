"""Looking at a durable stream from outside: where it stands, what it released, whether all of it is sound."""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from pianissimo.checks import ticks_in
from pianissimo.durable.charging import Receipt
from pianissimo.durable.durable_stream import DurableStream
from pianissimo.durable.journal import Journal
from pianissimo.durable.key_ring import Given, KeyRing
from pianissimo.durable.place import Place, wire
from pianissimo.durable.records import Seal
from pianissimo.durable.start import Request, check_lives, check_rows, check_seals
from pianissimo.durable.stored_ticks import Options
from pianissimo.durable.witness import Witness
from pianissimo.errors import DamageError, InputError, PianissimoError, StoreError
from pianissimo.io.clock import WallClock
from pianissimo.io.folder import last_tick, read_folder, read_plan, with_tick
from pianissimo.io.loop import HEALTH_FILE
from pianissimo.io.sources.refused_file import RefusedFile
from pianissimo.ledger import is_state_place, key_beside, ledger_beside
from pianissimo.ledger.entries import is_there
from pianissimo.noise import Secret
from pianissimo.queries.shared.watching import EXHAUSTED
from pianissimo.storage.connection import is_server
from pianissimo.storage.files import key_file
from pianissimo.stream import Stream, StreamPlan, StreamRelease
from pianissimo.stream.published_windows import windowless, windows_of
from pianissimo.stream.release import release_of

_NO_WITNESS = "none"
_POLARS = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
_TOLD_EVERY = 256
"""Seals between two signs of progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Where a stream stands: ticks and names, no number of events. Not verified: that takes the secret."""

    stream: str
    incarnation: str
    incarnations: int
    created: str
    first_tick: int
    sealed_tick: int
    released_tick: int
    visible_tick: int
    witnessed_tick: int | None
    last_tick: int
    """Of the horizon."""

    snapshot_tick: int
    """A start counts the ticks after it again."""

    removed_tick: int
    """The last tick that retention removed, or 0."""

    key_epoch: int
    key_id: str
    lease_epoch: int
    lease_owner: str
    finished: bool
    """Whether the last run released all that its file asks for: the horizon, or before it what `until` says."""

    lag: int | None
    """How many ticks are over by the clock and not released; 0 if it is finished, None where no clock cuts them."""

    sinks: dict[str, dict[str, int]]
    """Of each sink how many ticks it has not confirmed, and the last that it has."""

    exhausted: dict[str, int]
    """Of each alarm and trend how many users at most had no charge left at the last visible tick, as was released."""

    refused: dict[str, int] | None = None
    """How many records were refused, by reason, for whoever may see the data; None unless asked for."""


def is_state(place: Path | str) -> bool:
    """Whether a durable stream is there."""
    return is_server(place) or Place.of(place, witness=_NO_WITNESS).exists()


def read_status(place: Path | str, *, witness: Path | str | None = None, show_refused: bool = False) -> Status:
    """Where the stream at a place stands."""
    found = Place.of(place, witness=witness if witness or not is_server(place) else _NO_WITNESS)
    # Before the store is looked at: so it is never ahead of a store that is being written.
    head = Witness(found.witness).head()
    with _reading(found) as store:
        records = store.streams()
        record = records[-1]
        sealed = store.last_tick("seals", record.incarnation)
        released = store.last_tick("releases", record.incarnation) or 0
        snapshot = store.last_tick("snapshots", record.incarnation)
        epochs = store.epochs(record.incarnation)
        key_id = epochs[-1].key_id.hex()
        removed = max(store.removed_tick(each.incarnation) or 0 for each in records)
        lease, owner = store.lease(record.incarnation)
        visible = store.visible(record.incarnation)
        sinks = store.deliveries(record.incarnation)
        stored = store.release(record.incarnation, visible)
        told = None if stored is None else release_of(stored.payload).tables.get(EXHAUSTED)
        exhausted = {} if told is None else dict(told.select("key", "high").iter_rows())
        config = json.loads(record.config)
        last = record.last_tick + config["plan"]["horizon"]
        shown = max(released, record.last_tick)
        finished = shown == last or _is_done(found, shown)
        lag = _lag(Stream.from_plain(config["stream"]), shown, shown if finished else last)
    return Status(
        stream=record.name,
        incarnation=record.incarnation.hex(),
        incarnations=len(records),
        created=record.created,
        first_tick=record.last_tick + 1,
        sealed_tick=record.last_tick if sealed is None else sealed,
        released_tick=shown,
        visible_tick=visible,
        witnessed_tick=None if head is None else head[1],
        last_tick=last,
        snapshot_tick=record.last_tick if snapshot is None else snapshot,
        removed_tick=removed,
        key_epoch=len(epochs) - 1,
        key_id=key_id,
        lease_epoch=lease,
        lease_owner=owner,
        finished=finished,
        lag=lag,
        sinks={
            name: {"undelivered": shown - max(sent, record.last_tick), "last_tick": sent}
            for name, sent in sinks.items()
        },
        exhausted=exhausted,
        refused=RefusedFile.told(RefusedFile.beside(found.folder, found.witness)) if show_refused else None,
    )


def _is_done(place: Place, released: int) -> bool:
    """Whether the process that released this tick left because it was the last of its file."""
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        if place.folder is not None:
            content = json.loads((place.folder / HEALTH_FILE).read_bytes())
            return bool(content["state"] == "done" and content["tick"] == released)
    return False


def _lag(stream: Stream, released: int, last_tick: int) -> int | None:
    if stream.calendar is None:
        return None
    wall = WallClock(calendar=stream.calendar)
    return max(0, min(wall.ended(wall.now()), last_tick) - released)


def streams_beside(folders: Iterable[Path], name: str, *, but: Path | None = None) -> list[Path]:
    """The folders in these that hold a durable stream of this name, as far as they can be read; all but one."""
    found = []
    for folder in dict.fromkeys(each.resolve() for each in folders if each.is_dir()):
        with suppress(OSError):
            for place in sorted(each for each in folder.iterdir() if each.is_dir() and is_state(each)):
                if but is not None and place == but.resolve():
                    continue
                with suppress(PianissimoError), _reading(place) as store:
                    if store.streams()[-1].name == name:
                        found.append(place)
    return found


def stored_request(place: Path | str) -> Request:
    """The stream at a place as it was asked for when it was created."""
    with _reading(place) as store:
        return Request(Stream.from_plain(json.loads(store.streams()[-1].config)["stream"]))


def shown_ledger(place: Path | str) -> tuple[str, Secret | None]:
    """Where the ledger is that the stream at a place is charged to, and its key, as far as both are at hand.

    A place that is not a stream's is a ledger's own.

    >>> shown_ledger("budget.db")
    ('budget.db', None)
    """
    where = ledger_of(place) if is_state_place(place) else str(place)
    beside = key_beside(where)
    is_keyed = is_state_place(place) and "://" not in where and beside.exists()
    return where, key_file(beside, create=False) if is_keyed else None


def ledger_of(place: Path | str) -> str:
    """Where the ledger is that the stream at a place is charged to, as far as it is at hand; its key is not read."""
    with _reading(place) as store:
        where = Receipt.parse(store.streams()[-1].receipt).place
    if is_server(place) and is_there(ledger_beside(place)):
        return ledger_beside(place)
    if "://" in where or not Path(where).exists():
        raise InputError(f"this stream is charged to the ledger at {where}; look there: pianissimo budget PLACE")
    return where


def stored_plan(place: Path | str) -> dict[str, Any]:
    """The plan that the stream at a place was created with."""
    with _reading(place) as store:
        plan: dict[str, Any] = json.loads(store.streams()[-1].config)["plan"]
        return plan


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenReleases:
    """What readers may see of a stream, all of it at one instant."""

    tables: dict[str, pl.DataFrame]
    tick: int
    """The last that they may see."""

    plan: dict[str, Any]
    without_windows: dict[str, str]
    """Why some queries have no windows of the length that was asked for."""

    removed: int = 0
    """The last tick that retention removed: there is nothing of it and those before, as far as it went."""


Chosen = Callable[[int], range]
"""Which ticks are asked for, given the last one that readers may see."""


def stored_releases(place: Path | str, *, window: object = None) -> dict[str, pl.DataFrame]:
    """What readers may see of the stream at a place, by query, with the column tick first; see `read_releases`."""
    return seen_releases(place, window=window).tables


def seen_releases(place: Path | str, *, window: object = None, chosen: Chosen | None = None) -> SeenReleases:
    """The same with its last tick and its plan: a stream that runs does not move on between them.

    Only what is chosen is read, so that one tick costs the same at any length; with a window, all of it.
    """
    tables: dict[str, list[pl.DataFrame]] = {}
    without: dict[str, str] = {}
    with _reading(place) as store:
        records = store.streams()
        end, config = store.visible(records[-1].incarnation), json.loads(records[-1].config)
        asked = range(1, end + 1) if chosen is None else chosen(end)
        removed = 0
        for record in records:
            gone = store.removed_tick(record.incarnation) or record.last_tick
            if gone > record.last_tick:
                removed = gone
            shown = range(gone + 1, store.visible(record.incarnation) + 1)
            if window is None:
                shown = range(max(shown.start, asked.start), min(shown.stop, asked.stop))
            found = [_seen_release(store, record.incarnation, tick) for tick in shown]
            if window is not None:
                plan = StreamPlan.from_plain(json.loads(record.config)["chosen"])
                found = windows_of(plan, found, window, after=gone - record.last_tick)
                without = windowless(plan, ticks_in(window, plan.tick))
            for release in found:
                for name, table in release.tables.items():
                    tables.setdefault(name, []).append(with_tick(release.tick, table))
    if removed and len(asked) > 0 and asked[-1] <= removed and chosen is not None:
        raise InputError(f"ticks must be kept to be shown, from {removed + 1} on, got one that retention removed")
    joined = {name: pl.concat(parts) for name, parts in tables.items()}
    return SeenReleases(tables=joined, tick=end, plan=config["plan"], without_windows=without, removed=removed)


def _seen_release(store: Journal, incarnation: bytes, tick: int) -> StreamRelease:
    stored = store.release(incarnation, tick)
    if stored is None:
        raise InputError(f"tick {tick} must be stored where it is visible, got none; run verify")
    return release_of(stored.payload)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCheck:
    """What was verified."""

    incarnations: int
    seals: int
    releases: int
    derived: int
    """How many of the last releases were made again from what is sealed, with the same result."""

    windows_from: int | None = None
    """The first checkpoint at which a window may begin, where there are none of earlier ticks: an earlier version began
    the stream, or they are gone."""

    removed: int = 0
    """How many ticks retention removed: of them the digests of seals are checked, and nothing else is there."""


Progress = Callable[[int, int], None]
"""Is told how many seals are checked, and how many there are."""


def verify(
    request: Request,
    place: Path | str,
    *,
    secret: Given = None,
    witness: Path | str | None = None,
    progress: Progress | None = None,
) -> StreamCheck:
    """Check every digest and order, the ledger and the witness, and derive the last releases again; or raise.

    A start looks at what came since the last stored state; this looks at all of it, and tells how far it is.
    """
    wiring = wire(place, secret=secret, witness=witness, read_only=True)
    with DurableStream(request, wiring, Options(create=False, read_only=True)) as live:
        with live._store.reading():
            lives, seals, releases = _verified_lives(live._store, live._ring, progress)
            windows_from = live._state.check_checkpoints()
            live._core.check_blobs()
            kept = [(record, live._store.removed_tick(record.incarnation)) for record in live._store.streams()]
        return StreamCheck(
            removed=sum(gone - record.last_tick for record, gone in kept if gone is not None),
            incarnations=lives,
            seals=seals,
            releases=releases,
            derived=live.recovered.replayed - (live.recovered.finished is not None),
            windows_from=windows_from,
        )


def verify_folder(place: Path | str, out: Path | str) -> int:
    """Check that a folder of releases holds what the store lets readers see, and no more; gives its last tick.

    A folder is no part of the store: its files carry no digest, and what befalls them changes no release. Where
    they differ, find out which is right before anything is moved: a folder may be the only copy of releases of earlier
    lives. So it may hold ticks that a loss has taken from the store, before a life began. A stream writes what a sink
    lacks from the stored bytes.
    """
    if _promised(read_plan(out)) != _promised(stored_plan(place)):
        raise DamageError(
            f"{out} must hold the plan as it is stored, got another; give the folder that this stream writes to"
        )
    stored, gaps = stored_releases(place), _gaps(place)
    found = {name: table.filter(~pl.col("tick").is_in(gaps)) for name, table in read_folder(out).items()}
    for name in stored.keys() | found.keys():
        if name not in stored or name not in found or not stored[name].equals(found[name]):
            raise DamageError(
                f"{out} must hold the releases of {name!r} as they are stored, got others; keep the "
                "folder, and let the stream write to another one, which gets all that is stored"
            )
    return last_tick(out)


def _promised(plan: dict[str, Any]) -> dict[str, Any]:
    """A plan without what else would have fitted: a life after the first begins with the stored one, and tells none."""
    queries = [
        {name: value for name, value in each.items() if name not in ("alternatives", "reason")}
        for each in plan.get("queries", ())
    ]
    return plan | {"queries": queries}


def _gaps(place: Path | str) -> list[int]:
    """The ticks that were released, or may have been, and are not in the store: a loss took them, or retention."""
    with _reading(place) as store:
        end, gaps = 0, list[int]()
        for record in store.streams():
            gaps += range(end + 1, max(record.last_tick, store.removed_tick(record.incarnation) or 0) + 1)
            end = store.visible(record.incarnation)
        return gaps


def _verified_lives(store: Journal, newest: KeyRing, progress: Progress | None) -> tuple[int, int, int]:
    """Check every life of a stream, row by row; gives how many they are, their seals and their releases."""
    seals = releases = 0
    lives = store.lives(newest)
    store.check_owners()
    check_lives(store, newest)
    ends = [(record.last_tick, store.last_tick("seals", record.incarnation)) for record, _ in lives]
    total = sum(end - begin for begin, end in ends if end is not None)
    for number, (record, ring) in enumerate(lives, 1):

        def look(seal: Seal, keys: KeyRing = ring) -> None:
            nonlocal seals, releases
            seals += 1
            stored = store.release(seal.incarnation, seal.tick)
            if stored is not None:
                stored.check(keys.epoch(seal.epoch), seal)
                releases += 1
            if progress is not None and (seals % _TOLD_EVERY == 0 or seals == total):
                progress(seals, total)

        last = check_seals(store, record, ring, look=look)
        check_rows(store, record, last, lives[number][0] if number < len(lives) else None)
    return len(lives), seals, releases


@contextmanager
def _reading(place: Place | Path | str) -> Iterator[Journal]:
    """The store at a place where a stream is, in one state whatever its writer does meanwhile."""
    found = place if isinstance(place, Place) else Place.of(place, witness=_NO_WITNESS)
    with closing(Journal(found.connect(create=False, read_only=True))) as store:
        if not store.is_made():
            raise StoreError(f"there must be a stream at {store.place}, got none")
        with store.reading():
            if not store.streams():
                raise StoreError(f"there must be a stream at {store.place}, got none")
            with _undamaged(store):
                yield store


@contextmanager
def _undamaged(store: Journal) -> Iterator[None]:
    """What is read without the secret is not verified, so that any of it may be anything."""
    try:
        yield
    except PianissimoError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, *_POLARS):
        raise DamageError(
            f"{store.place} must hold a stream as it was written, got other content; run verify, or restore a backup"
        ) from None
