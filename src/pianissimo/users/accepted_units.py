"""Units of users by label, and which of them the cap has let in: what all statistics by label of users begin with.

A unit of a user on a label is an event of hers that holds it, of which there are fewer than `per_label` before: her
first one, where users are counted. Of her units the first so many count, as many as the cap says; what it leaves out is
kept, up to the last cap, and let in when the cap is raised. All of this looks at her own rows in her own order, and at
the caps, which are public. What others do, how popular a label is, and how full a table is, make no difference: an
acceptance that looked at any of these would let one user move the counts of others. Card: units and windows, U1.

A batch is gathered into each user once, her rows that can be units, and the labels they hold. That is the same however
the rows of different users are mixed, so it can be stored before it is counted. Where that is by slot, users and
labels that the ticks before have given slots are in it by these, and a user who has no units left is not in it at all.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo import codec
from pianissimo.errors import InputError
from pianissimo.labels import LONGEST_LABEL, LabelIndex, any_too_long
from pianissimo.mechanism import Conversation, Value, answered
from pianissimo.noise import Noise
from pianissimo.noise.keyed import Keys
from pianissimo.noise.plan import NoisePlan
from pianissimo.stored_parts import Storable
from pianissimo.text_views import number_texts
from pianissimo.users.caps import AdaptiveCap, Cap, Course
from pianissimo.users.user_table import (
    NEW_USER,
    Column,
    OpenRows,
    PairUnits,
    Rows,
    Slots,
    UnitRows,
    Units,
    UserRows,
    UserUnits,
    joined_rows,
    rows_by_name,
    users_by_shard,
)


class LetIn(NamedTuple):
    """What a cap lets in that was not in before: secret."""

    over: int
    """How many users are above the cap."""

    slots: Slots
    """The labels of which there is any, each once where one has the whole state."""

    moves: NDArray[np.int64]
    """What is let in of each, one number or several."""


class AcceptedUnits:
    """The units of all users under a cap, some of them waiting for it to be raised: secret."""

    def __init__(self, noise: Noise, cap: Cap, horizon: int, per_label: int | None) -> None:
        self.users = UserUnits(noise, cap.caps[0])
        self.course = Course(cap, horizon)
        self.pairs = PairUnits(noise, per_label, horizon)
        """Part of the state by itself, since it is stored tick by tick."""
        self._last = cap.caps[-1]
        self._told = self._last if isinstance(cap, AdaptiveCap) else max(self._last, cap.told or 0)
        self._pending, self._left_out = Rows(), Rows()

    def open_rows(self, users: pl.Series) -> OpenRows:
        """The rows of users who have units left: others change nothing."""
        return self.users.open_rows(users, self._told)

    def open_names(self, names: Keys) -> OpenRows:
        """The same of rows that come with the names of their users."""
        return self.users.open_names(names, self._told)

    def add(self, rows: UserRows, columns: Callable[[Units], Sequence[Column]] = lambda _: ()) -> None:
        """Take the rows of users by the slots of their labels, user after user.

        `columns` gives what stands beside them, of how many units each row's user had before it.
        """
        before = self.pairs.add(self.users, rows, self._told)
        # What is beyond the last cap is never accepted, and what is no unit is beyond all.
        within = before < np.uint64(self._last)
        order = before[within]
        beside = [column[within] for column in columns(before)]
        labels = rows.labels[within]
        self._pending.append([order.astype(np.uint32) if self._last < 2**32 else order, labels, *beside])

    def converse(self, tick: int, noise: Noise) -> Conversation[list[list[Any]]]:
        """Test the cap at the end of a tick: the answers of whoever has users, round after round.

        The first are under the cap that held when the tick began. Each that it is raised to is asked for in turn.
        """
        level, rounds = self.course.level, list[list[Any]]()
        while True:
            rounds.append((yield [self.course.cap, len(rounds)]))
            if not self.course.is_raised(sum(over for over, *_ in rounds[-1]), tick, noise):
                break
        self.course.settle(level, tick)
        return rounds

    def let_in(self, question: Sequence[int], tick: int) -> tuple[int, list[Column]]:
        """How many users are above a cap, and what it lets in that was not in before.

        That is of each unit the slot of its label and the columns beside it; no columns at all where there is nothing.
        """
        cap, earlier = question
        if not earlier:
            self.pairs.close()
        if cap != self.users.cap:
            self.users.set_cap(cap)
        found = [self._pending.take(lambda before: before < cap)]
        if earlier:
            found.append(self._left_out.take(lambda before: before < cap))
        rest = self._pending.take_all()
        if rest:
            self._left_out.append(rest)
        over = self.users.over
        if self.course.ends_period(tick):
            self.users.clear()
            self.pairs.clear()
        return over, [np.concatenate(parts) for parts in zip(*[rows[1:] for rows in found if rows], strict=True)]

    def to_plain(self) -> codec.Plain:
        return [part.to_plain() for part in self._parts]

    def take_plain(self, content: codec.Plain) -> None:
        for part, stored in zip(self._parts, content, strict=True):
            part.take_plain(stored)

    @property
    def _parts(self) -> tuple[Storable, ...]:
        return self.users, self.course, self._pending, self._left_out

    def __repr__(self) -> str:
        return "AcceptedUnits(hidden)"


class OfAcceptedUnits(Generic[Value]):
    """A mechanism by label of what a cap lets in, as a base class. Its users may be in shards, which draw nothing.

    Labels, what they count and their noise are with whoever asks the shards. `moves(columns)` is what units add to
    their labels, and `closed(state, rounds, tick, noise)` what is published of what came in, round after round.
    """

    __slots__ = ()
    shard_plans: ClassVar[tuple[NoisePlan, ...]] = ()

    def split(self, gathered: codec.Plain, shards: int) -> dict[int, codec.Plain]:
        return dict(cut_by_shard(gathered, shards))

    def release(self: Any, state: Any, tick: int, noise: Noise) -> Value:
        # The same conversation with oneself, in which labels are known by their slots.
        talk = state.units.converse(tick, noise)
        rounds = answered(talk, lambda question: self._let_in(state, question, tick))
        value: Value = self.closed(state, [own for (own,) in rounds], tick, noise)
        return value

    def converse(self: Any, state: Any, tick: int, noise: Noise) -> Conversation[Value]:
        rounds = yield from state.units.converse(tick, noise)
        # As if one more shard had nothing: there may be none yet.
        none = [0, NO_LABELS, self.moves([NO_SLOTS] * 2)[1]]
        value: Value = self.closed(state, [slots_of(state.index, [none, *each]) for each in rounds], tick, noise)
        return value

    def answer(self, state: Any, question: Any, tick: int, noise: Noise) -> list[Any]:  # noqa: ARG002
        """How many users are above a cap, and what labels grow by for the units that it lets in."""
        over, slots, moves = self._let_in(state, question, tick)
        return [over, state.index.labels.gather(slots), moves]

    def _let_in(self: Any, state: Any, question: Any, tick: int) -> LetIn:
        over, columns = state.units.let_in(question, tick)
        return LetIn(over, *self.moves(columns or [NO_SLOTS] * 2))


def in_window(earlier: int, tick: int) -> bool:
    """Whether a window counts what a round of a tick let in: under the cap that held when the tick began, or at tick 1.

    Where the cap is raised at tick 1, before anything was released, the higher one counts as that.
    """
    return not earlier or tick == 1


def slots_of(index: LabelIndex, answers: Sequence[Sequence[Any]]) -> LetIn:
    """What all shards let in under one cap, by the slots of one index."""
    labels = pl.concat([own for _, own, _ in answers])
    slots = index.slots_or_new(labels).astype(np.uint32)
    return LetIn(sum(over for over, *_ in answers), slots, np.concatenate([moves for *_, moves in answers], axis=-1))


def cut_by_shard(gathered: Sequence[codec.Plain], shards: int) -> dict[int, list[codec.Plain]]:
    """What each shard counts of rows that are stored by name, with the columns beside them: her own of each user."""
    names, counts, labels, numbers, *beside = gathered
    found = {}
    for shard, users, rows in users_by_shard(names, counts, shards):
        # Labels in the order in which they appear in the rows, as they are gathered.
        used, first, places = np.unique(numbers[rows], return_index=True, return_inverse=True)
        order = np.argsort(first)
        rank = np.empty(len(order), dtype=np.uint32)
        rank[order] = np.arange(len(order), dtype=np.uint32)
        held = used[order]
        own = labels.gather(held) if isinstance(labels, pl.Series) else labels[held]
        columns = [codec.narrow(column) for column in (rank[places], *(each[rows] for each in beside))]
        found[shard] = [names[users], codec.narrow(counts[users]), own, *columns]
    return found


def pairs_of(events: pl.DataFrame, most: int | None) -> pl.DataFrame:
    """One row for each event and label of it, in their order; an event holds a text, or a list of which `most` count.

    Each label of an event counts once. How many count is a question of what is asked, and not of what it costs: every
    one of them is a unit of its user.
    """
    labels = events["label"]
    if isinstance(labels.dtype, pl.List):
        distinct = pl.col("label").list.unique(maintain_order=True)
        cut = distinct if most is None else distinct.list.head(most)
        events = events.with_columns(cut).filter(pl.col("label").list.len() > 0).explode("label")
        labels = events["label"]
    if labels.dtype in (pl.Categorical, pl.Enum):
        events = events.with_columns(pl.col("label").cast(pl.String))
    elif labels.dtype != pl.String:
        raise InputError(f"labels must be texts or lists of texts, got {labels.dtype}")
    if labels.null_count():
        raise InputError("labels must not be null, got nulls; drop these rows")
    return events


def joined_labels(pieces: Sequence[codec.Plain]) -> tuple[pl.Series | None, OpenRows, list[Column]]:
    """The rows of several pieces one after the other: the labels they hold, whose each is, and the columns beside them.

    A piece is each user once, how many rows she has, the labels, the number of each row's label and further columns.
    Where labels are numbers of a domain there are none to tell, and the first column has these numbers.
    """
    labels = None
    held = [piece[2] for piece in pieces]
    if isinstance(held[0], pl.Series):
        starts = np.cumsum([0, *map(len, held)])
        labels, places = number_texts(pl.concat(held))
        held = np.split(places, starts[1:-1])
    rows = [[own[numbers], *beside] for own, (_, _, _, numbers, *beside) in zip(held, pieces, strict=True)]
    names, columns = joined_rows(pieces, rows)
    return labels, rows_by_name(names), columns


class LabelSlots(NamedTuple):
    """Labels that rows hold by their numbers, and their slots."""

    slots: NDArray[np.int64]
    """Of each label, -1 where it has none."""

    texts: pl.Series
    """Of each label; where all have slots, none."""


def joined_by_slot(pieces: Sequence[codec.Plain]) -> tuple[LabelSlots, OpenRows, NDArray[np.uint32]]:
    """The rows of several pieces one after the other: the labels, whose each row is, and the number of its label."""
    slots = np.unique(np.concatenate([piece[3] for piece in pieces]))
    texts, places = number_texts(pl.concat([piece[4] for piece in pieces]))
    starts = np.cumsum([0, *(len(piece[4]) for piece in pieces)])
    users, names, numbers = [], [], []
    for (known, new, counts, held, _, own), start, end in zip(pieces, starts[:-1], starts[1:], strict=True):
        ids = np.concatenate([np.searchsorted(slots, held), len(slots) + places[start:end].astype(np.int64)])
        all_users = np.concatenate([known, np.full(len(new), NEW_USER, dtype=np.uint32)])
        users.append(np.repeat(all_users, counts))
        names.append(np.repeat(new, counts[len(known) :], axis=0))
        numbers.append(ids[own].astype(np.uint32))
    none = pl.repeat(None, len(slots), dtype=pl.String, eager=True).alias(texts.name)
    labels = LabelSlots(np.append(slots.astype(np.int64), np.full(len(texts), -1)), pl.concat([none, texts]))
    return labels, OpenRows(None, np.concatenate(users), np.concatenate(names)), np.concatenate(numbers)


def checked_labels(labels: pl.Series) -> pl.Series:
    """The labels of all rows of a batch, whoever has units left: what is refused depends on no state."""
    if any_too_long(labels):
        raise InputError(f"labels must have at most {LONGEST_LABEL} bytes, got a longer one")
    return labels


def stored_by_name(rows: UnitRows, labels: pl.Series | None) -> list[codec.Plain]:
    """What is stored of rows: users, how many rows each has, labels, and the number of each row's label among these.

    Without `labels` the numbers of labels are their slots.
    """
    used = rows.labels if labels is None else labels.gather(rows.labels)
    return [rows.names, codec.narrow(rows.counts), used, codec.narrow(rows.numbers)]


def stored_by_slot(rows: UnitRows, labels: LabelSlots) -> list[codec.Plain]:
    """The same by the slots of users and labels, and before what has none what has one."""
    slots = labels.slots[rows.labels]
    known = slots >= 0
    place = np.where(known, np.cumsum(known), known.sum() + np.cumsum(~known)) - 1
    new = labels.texts.gather(rows.labels[~known]).alias("key")
    users = [rows.slots, rows.names, codec.narrow(rows.counts)]
    return [*users, slots[known].astype(np.uint32), new, codec.narrow(place.astype(np.uint32)[rows.numbers])]


def restored_rows(gathered: Sequence[codec.Plain], index: LabelIndex) -> UserRows:
    """The rows that were stored, new labels with the next slots."""
    if len(gathered) == _BY_NAME:
        names, counts, labels, numbers = gathered
        known, new = (NO_SLOTS, labels) if isinstance(labels, pl.Series) else (labels, NO_LABELS)
        gathered = [NO_SLOTS, names, counts, known, new, numbers]
    slots, names, counts, known, new, numbers = gathered
    labels = np.concatenate([known, index.slots_or_new(new).astype(np.uint32)])
    return UserRows(slots, names, counts.astype(np.uint32), labels[numbers])


NO_SLOTS = np.empty(0, dtype=np.uint32)
NO_LABELS = pl.Series("key", [], dtype=pl.String)
_BY_NAME = 4
"""So many parts have rows that are stored by name."""
