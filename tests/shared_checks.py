"""The checks that every mechanism passes, and noise that is written down beforehand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, Self

import polars as pl

from pianissimo import codec
from pianissimo.errors import HorizonError
from pianissimo.mechanism import Mechanism, Run, in_shards
from pianissimo.noise.keyed import Integers, Keys, Noise, PathPart
from pianissimo.testing import NoNoise, SeededNoise


@dataclass
class GivenNoise(NoNoise):
    """Gaussian draws written down beforehand by path, the same for every key; what is not written is zero.

    >>> GivenNoise({(0, 1): 7}).at(0, 1).gaussian(5.0)
    7
    """

    draws: Mapping[tuple[PathPart, ...], int]
    path: tuple[PathPart, ...] = ()

    def at(self, *path: PathPart) -> Self:
        """The draws further down the path."""
        return type(self)(self.draws, self.path + path)

    def draw(self, law: str, parameter: Fraction, keys: Keys, out: Integers) -> None:
        """The draw written down for this path."""
        out[:] = self.draws.get(self.path, 0) if law == "gaussian" else 0


def counting_noise(seed: int, drawn: list[int]) -> SeededNoise:
    """Noise that notes for how many keys each draw is."""

    class Counting(SeededNoise):
        __slots__ = ()

        def draw(self, law: str, parameter: Fraction, keys: Keys, out: Integers) -> None:
            drawn.append(len(keys))
            super().draw(law, parameter, keys, out)

    return Counting(seed)


def split_anyhow(batch: Sequence[Any], cuts: Sequence[int]) -> list[Sequence[Any]]:
    """The batch in consecutive pieces, cut at the given places.

    >>> split_anyhow([1, 2, 3], [1, 1])
    [[1], [], [2, 3]]
    """
    places = [0, *sorted(min(cut, len(batch)) for cut in cuts), len(batch)]
    return [batch[start:end] for start, end in pairwise(places)]


def releases_of(run: Run[Any, Any, Any], ticks: Sequence[Any]) -> list[Any]:
    """The value of each release, one batch a tick, as plain data."""
    values = []
    for batch in ticks:
        run.update(batch)
        values.append(plain_value(run.release().value))
    return values


def plain_value(value: Any) -> Any:
    """A released value as plain data that compares with ==."""
    return value.to_dict() if hasattr(value, "to_dict") else value


def check_splitting(mechanism: Mechanism[Any, Any, Any], batch: Sequence[Any], cuts: Sequence[int]) -> None:
    """A batch counts the same whole or in pieces."""
    whole, pieces = Run(mechanism, SeededNoise(1)), Run(mechanism, SeededNoise(1))
    whole.update(batch)
    for piece in split_anyhow(batch, cuts):
        pieces.update(piece)
    assert plain_value(whole.release().value) == plain_value(pieces.release().value)


def check_combining(mechanism: Mechanism[Any, Any, Any], batch: Sequence[Any], cuts: Sequence[int]) -> None:
    """What pieces of a batch add together is what the batch adds, byte for byte, also combined step by step."""
    run = Run(mechanism, SeededNoise(1))
    whole = codec.pack("gathered", 1, run.gather(batch))
    stored_pieces = [codec.pack("gathered", 1, run.gather(piece)) for piece in split_anyhow(batch, cuts)]
    pieces = [codec.unpack("gathered", 1, each) for each in stored_pieces]
    assert codec.pack("gathered", 1, run.combine(pieces)) == whole
    by_step = run.combine([run.combine(pieces[:2]), *pieces[2:]])
    assert codec.pack("gathered", 1, by_step) == whole
    if in_shards(mechanism):
        check_cutting(mechanism, pieces, run.combine(pieces))


def check_cutting(mechanism: Any, pieces: Sequence[codec.Plain], whole: codec.Plain) -> None:
    """What is cut into bundles, brought together and cut by shard is the whole cut by shard, byte for byte."""
    for bundles, shards in ((1, 5), (3, 6), (4, 4)):
        cut = mechanism.split(whole, shards)
        bundled = [mechanism.split(piece, bundles) for piece in pieces]
        found: dict[int, codec.Plain] = {}
        for number in range(bundles):
            own = [codec.unpack("x", 1, codec.pack("x", 1, each[number])) for each in bundled if number in each]
            together = mechanism.combine(own) if len(own) > 1 else own[0] if own else None
            within = {} if together is None else mechanism.split(together, shards)
            assert all(shard % bundles == number for shard in within)
            found |= within
        assert {shard: codec.pack("x", 1, each) for shard, each in found.items()} == {
            shard: codec.pack("x", 1, each) for shard, each in cut.items()
        }


def stored(run: Run[Any, Any, Any]) -> bytes:
    """What a store keeps of a run, beside its logs."""
    return codec.pack("state", 1, run.dump())


def resumed(
    mechanism: Mechanism[Any, Any, Any], noise: Noise, state: bytes, logs: Sequence[codec.Plain] = ()
) -> Run[Any, Any, Any]:
    """The run that goes on from what a store keeps."""
    run = Run(mechanism, noise)
    run.load(codec.unpack("state", 1, state), logs)
    return run


def check_gathering(mechanism: Mechanism[Any, Any, Any], ticks: Sequence[Any], order: Sequence[int]) -> None:
    """What a tick adds can be stored and counted later, does not depend on the order of events, and counts alike.

    The order is changed between users alone, where there are users: each one's first events may count.
    """
    straight = Run(mechanism, SeededNoise(5))
    expected = releases_of(straight, ticks)
    run = Run(mechanism, SeededNoise(5))
    values = []
    for batch in ticks:
        before = stored(run)
        gathered = codec.pack("gathered", 1, run.gather(batch))
        assert stored(run) == before
        places = sorted(range(len(batch)), key=_places_of_users(batch, order).__getitem__)
        shuffled = batch[places] if isinstance(batch, pl.Series | pl.DataFrame) else [batch[place] for place in places]
        assert codec.pack("gathered", 1, run.gather(shuffled)) == gathered
        run.add(codec.unpack("gathered", 1, gathered))
        values.append(plain_value(run.release().value))
    assert values == expected


def _places_of_users(batch: Any, order: Sequence[int]) -> list[int]:
    """Where each row goes: the rows of one user to one place."""
    if not isinstance(batch, pl.DataFrame):
        return [order[place % len(order)] for place in range(len(batch))]
    users = batch["user"].unique(maintain_order=True).to_list()
    return [order[users.index(user) % len(order)] * len(users) + users.index(user) for user in batch["user"].to_list()]


def check_resuming(mechanism: Mechanism[Any, Any, Any], ticks: Sequence[Any], stop: int) -> None:
    """Storing and resuming between two ticks changes nothing, and what is stored is the same again."""
    straight, first = Run(mechanism, SeededNoise(6)), Run(mechanism, SeededNoise(6))
    expected = releases_of(straight, ticks)
    logs = []
    before = []
    for batch in ticks[:stop]:
        before += releases_of(first, [batch])
        logs.append(codec.unpack("log", 1, codec.pack("log", 1, first.log())))
    second = resumed(mechanism, SeededNoise(6), stored(first), logs)
    assert second.tick == first.tick
    assert stored(second) == stored(first)
    assert codec.pack("log", 1, second.log()) == codec.pack("log", 1, first.log())
    assert before + releases_of(second, ticks[stop:]) == expected


def check_merging(mechanism: Any, left: Sequence[Any], right: Sequence[Any]) -> None:
    """Merging has no order and equals counting all events in one run."""
    together = Run(mechanism, SeededNoise(3))
    together.update(left)
    together.update(right)
    expected = plain_value(together.release().value)
    for one, other in ((left, right), (right, left)):
        run, second = Run(mechanism, SeededNoise(3)), Run(mechanism, SeededNoise(3))
        run.update(one)
        second.update(other)
        run._state = mechanism.merge(run._state, second._state)
        assert plain_value(run.release().value) == expected


def check_life_cycle(mechanism: Mechanism[Any, Any, Any], batch: Sequence[Any]) -> None:
    """The run stops at its horizon, shows no data, and its promise and error are there before any data."""
    run = Run(mechanism, SeededNoise(4))
    horizon = mechanism.guarantee.horizon
    for tick in range(1, horizon + 1):
        run.update(batch)
        release = run.release()
        assert release.tick == tick
        assert release.error == mechanism.error(tick, 0.95) > 0
    for late in (run.release, lambda: run.update(batch)):
        try:
            late()
        except HorizonError:
            continue
        raise AssertionError("a run must stop at its horizon")
    assert repr(run) == f"Run({mechanism!r}, tick={horizon})"
