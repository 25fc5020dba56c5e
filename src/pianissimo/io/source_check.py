"""What the owner of a source sees of it before a stream is run: `pianissimo check FILE`.

All of it is exact, and none of it is private: it is no release, and for those alone who may see the data. Nothing is
charged. Rows are judged as a run judges them: all those of complete files, those that are there now of files that are
followed, and the first of a Kafka topic; where complete files come before, these too. A *fault* says which key of the
stream file must be changed, since the source cannot be read so. A *note* says what a run would do without a word.
"""

import csv
import difflib
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import product
from typing import Any

import msgspec
import polars as pl

from pianissimo.errors import InputError, SourceError, SpecError
from pianissimo.io.kafka import kafka_settings
from pianissimo.io.source_caps import UnitsBesideCaps
from pianissimo.io.source_sizes import CUT_SHARE, SourceSizes, StrangeTexts, as_texts, strange_texts
from pianissimo.io.sources import make_feed
from pianissimo.io.sources.event_files import READERS, find_files, written_as
from pianissimo.io.sources.rows.text_rows import Piece, Written, read_blocks, split_lines
from pianissimo.io.sources.source_records import Clock, RowJudge
from pianissimo.queries.shared.columns import fault_of
from pianissimo.queries.shared.key_query import not_listed
from pianissimo.stream.batches import user_input
from pianissimo.stream.choosing import periods_of
from pianissimo.stream.source_spec import FileSource, LiveSource, SparkSource
from pianissimo.stream.spec import StreamSpec

NOT_PRIVATE = "Exact and not private: for the eyes of the data's owner only. Nothing is released or charged."

SAMPLE = 1000
"""So many of the first records tell which columns there are; of a topic, few more are read."""

_SIGNS = ",;\t|"
_DAYS = ("%Y-%m-%d", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%Y/%m/%d", "%d %b %Y", "%Y%m%d")
_HOURS = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", "T%H:%M:%S")
_GUESSES = ("iso", "epoch_s", "epoch_ms", "epoch_us", *map("".join, product(_DAYS, _HOURS, ("", " %z"))))
_SINCE_1990, _UNTIL_2100 = 631_152_000_000_000, 4_102_444_800_000_000


def check_source(spec: StreamSpec) -> dict[str, Any]:
    """What a run would make of the source of a stream file, as plain data for its owner: exact, not private."""
    found = _Check(spec).run()
    if spec.before is None:
        return found
    whole = _Check(spec.before).run()
    refused = sum(found["refused"].values())
    told = f"figures are of source.path; source.follow holds {found['rows']} rows, {refused} of them refused"
    followed = [f"source.follow: {note}" for note in found["notes"] if note not in whole["notes"]]
    faults = list(dict.fromkeys(whole["faults"] + found["faults"]))
    return whole | {"faults": faults, "notes": [*whole["notes"], told, *followed]}


_NOTHING_READ: dict[str, Any] = {"first_time": None, "last_time": None, "rows": None, "rows_per_tick": None} | {
    name: {} for name in ("refused", "nulls", "outside", "cut_share", "unread_share", "not_listed", "above_cap")
}
"""What is told of a source that cannot be read to its end: numbers of a part of it would be taken for those of all."""


class _Check:
    """Looks at a source, and keeps what it saw: secret."""

    def __init__(self, spec: StreamSpec) -> None:
        source, calendar = spec.source, spec.stream.calendar
        if source is None or calendar is None:
            raise SpecError("a stream file must have a [source] and stream.origin to be checked, got none; add them")
        if isinstance(source, LiveSource) and source.stdin:
            raise SpecError(
                "source.stdin must not be looked at, got it: what is read of it is gone; write some lines to a file, "
                "and check that with source.follow"
            )
        if isinstance(source, SparkSource):
            raise SpecError("source.spark must be looked at with Spark, got `check`; check some rows in a file instead")
        self.spec, self.source = spec, source
        self.clock = Clock(calendar=calendar, last_tick=spec.last_tick)
        is_timed = isinstance(source, FileSource) or source.late == "drop"
        self.judge = RowJudge(
            spec.stream.queries,
            spec.stream.user,
            time=source.time if is_timed else None,
            clock=self.clock if isinstance(source, FileSource) else None,
            written=written_as(spec),
            tells=False,
        )
        self.wanted = self.judge.wanted
        self.keys = _keys_of(spec, self.wanted.time)
        self.columns: dict[str, list[Any]] = {}
        self.rows = 0
        self.refused: Counter[str] = Counter()
        self.nulls = Counter(dict.fromkeys((query.name for query in spec.stream.queries), 0))
        self.outside: Counter[str] = Counter()
        self.not_listed: Counter[str] = Counter()
        self.labels: Counter[str] = Counter()
        self.plan = spec.stream.plan()
        self.sizes = SourceSizes(self.plan)
        self.caps = UnitsBesideCaps(self.plan)
        self.strange: dict[str, StrangeTexts] = {}
        self.ticks: Counter[int] = Counter()
        self.given: set[str] = set()
        self.times: list[int] = []
        self.faults: list[str] = []
        self.notes: list[str] = []

    def run(self) -> dict[str, Any]:
        try:
            for piece in self._pieces():
                self._see(piece)
        except (InputError, SourceError, csv.Error) as error:
            missing = self._missing() if self.columns else []
            self.faults = self.faults or missing or self._guessed() or [str(error)]
            counted: dict[str, Any] = _NOTHING_READ
        else:
            self._tell_rows()
            counted = self._counted()
        plan = self.plan.to_dict()
        self.notes += plan["warnings"]
        return {
            "private": False,
            "columns": {name: _kind(values) for name, values in self.columns.items()},
            **counted,
            "plan": {query["name"]: query["words"] for query in plan["queries"]},
            "faults": self.faults,
            "notes": self.notes,
        }

    def _counted(self) -> dict[str, Any]:
        """What all rows hold."""
        return {
            "first_time": _moment(min(self.times, default=None)),
            "last_time": _moment(max(self.times, default=None)),
            "rows": self.rows,
            "refused": dict(self.refused.most_common()),
            "nulls": dict(self.nulls),
            "rows_per_tick": _per_tick(self.ticks, self.spec.last_tick) if self.judge.clock else None,
            "outside": dict(self.outside),
            "cut_share": self.sizes.cut_shares,
            "unread_share": {name: each.unread_share for name, each in self.strange.items()},
            "not_listed": dict(self.not_listed),
            "above_cap": self.caps.above,
        }

    def _pieces(self) -> Iterator[Piece]:
        if isinstance(self.source, FileSource):
            files = find_files(self.source)
            path, form = files[0]
            if form == "parquet":
                with suppress(OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException):
                    self.columns = pl.read_parquet(path, n_rows=SAMPLE, glob=False).to_dict(as_series=False)
            else:
                lines = split_lines(next(read_blocks(path))[1]).drop_nulls().head(SAMPLE + 1).to_list()
                first = "".join(lines[:1])
                self.columns = _json(lines) if form == "jsonl" else self._csv(path.name, first, lines[1:])
            for path, form in files:
                yield from READERS[form](path, self.wanted)
            return
        if self.source.http:
            self.notes.append("events of source.http are sent when the stream runs, and there are none to look at")
            return
        topic = self.source.kafka
        with closing(make_feed(self.source, {} if topic is None else kafka_settings(topic))) as feed:
            feed.seek(None)
            for records in feed.read(feed.end()):
                lines, header = records.texts.drop_nulls().head(SAMPLE).to_list(), records.header
                if not self.columns:
                    self.columns = _json(lines) if header is None else self._csv(records.place, header, lines)
                yield self.judge.piece(records)
                if topic is not None and self.rows >= SAMPLE:
                    self.notes.append("only the first records of the topic were looked at")
                    return

    def _csv(self, place: str, header: str, lines: list[str]) -> dict[str, list[Any]]:
        names, *rows = csv.reader([header, *lines], delimiter=self.wanted.written.sign(place))
        found = {name: [row[place] for row in rows if place < len(row)] for place, name in enumerate(names)}
        if len(names) == 1 and any(sign in header for sign in _SIGNS):
            sign = max(_SIGNS, key=header.count)
            self.faults.append(f"source.delimiter must be the sign between fields; the header looks like {sign!r}")
        return found

    def _missing(self) -> list[str]:
        """Which columns of the stream file no row has."""
        found = []
        for name in [name for name in self.keys if name not in self.columns and name not in self.given]:
            near = difflib.get_close_matches(name.lower(), [each.lower() for each in self.columns], n=1)
            close = [repr(each) for each in self.columns if each.lower() in near]
            way_out = (
                f"did you mean {close[0]}?" if close else f"there are {', '.join(map(repr, self.columns)) or 'none'}"
            )
            found.append(f"{self._key(name)} must name a column of the source, got {name!r}; {way_out}")
        return found

    def _see(self, piece: Piece) -> None:
        judged = self.judge.judged(piece)
        self.rows += judged.table.height + judged.refused.height
        self.refused.update(judged.refused["reason"].to_list())
        self.given |= judged.given
        if self.wanted.time is not None:
            times = self.wanted.written.instants(piece.times).drop_nulls()
            self.times += [min(times), max(times)] if len(times) else []
        if self.judge.clock is not None:
            self.ticks.update(self.clock.ticks(judged.times).to_list())
        for query in self.spec.stream.queries:
            column, matches = query.column(piece.columns), query.matches(piece.columns)
            if column is not None:
                bad = fault_of(column)
                self.nulls[query.name] += int((bad if matches is None else bad & matches).sum())
            listed = not_listed(query, column if matches is None or column is None else column.filter(matches))
            if listed is not None:
                self.not_listed[query.name] += listed[0]
                self.labels[query.name] += listed[1]
            outside = query.cut_off(piece.columns)
            if outside is not None:
                self.outside[query.name] += int(outside.sum())
        self.sizes.see(judged.table)
        user = self.spec.stream.user
        if user is not None:
            content = user_input(self.spec.stream.queries, judged.table, user, drop_bad_rows=False)
            periods = periods_of(self.spec.stream, user)
            if periods is not None and self.judge.clock is not None:
                # In each period she begins anew.
                ticks = self.clock.ticks(judged.times).to_list()
                first = {tick: periods.span(tick)[0] for tick in set(ticks)}
                begin = pl.Series("period", [first[tick] for tick in ticks], dtype=pl.Int64)
                content = content.with_columns(pl.struct("user", begin).alias("user"))
            self.caps.see(content)

    def _tell_rows(self) -> None:
        """What must be changed, and what a run would do, by what was seen."""
        half, refused = self.rows / 2, self.refused.total()
        if not self.rows:
            self.notes.append("the source holds no rows")
            return
        unread = sum(count for why, count in self.refused.items() if why.endswith(self.wanted.written.asked_of_times))
        early = sum(count for why, count in self.refused.items() if "before the origin" in why)
        late = sum(count for why, count in self.refused.items() if "before the end of tick" in why)
        if unread > half:
            self.faults += self._guessed()
        self.faults += self._missing()
        for name in self.keys if not self.faults else ():
            if name not in self.given:
                what = "numbers with a point" if name in self.wanted.values else "a value in any row"
                self.faults.append(f"{self._key(name)} must name a column that has {what}, got {name!r} with none")
        if early > half:
            self.faults.append(
                "stream.origin must not be after the times of events, got "
                f"{_moment(self.clock.calendar.microsecond(1))}; the first is {_moment(min(self.times))}"
            )
        if late > half:
            key = "stream.horizon" if self.source.until is None else "source.until"
            self.faults.append(
                f"{key} must reach over the times of events, got an end after tick {self.spec.last_tick}; the last is "
                f"{_moment(max(self.times))}"
            )
        self.notes += [
            f"queries.{name}.domain lists no label that the source holds: are they written alike? Booleans are 'true' "
            "and 'false', dates as '2026-01-31', whole numbers without a point"
            for name, number in self.not_listed.items()
            if number == self.labels[name] > 0
        ]
        self.faults += self._broken_lines()
        if refused > half and not self.faults:
            self.faults.append(
                f"rows must be such that they can be counted, got more than half that cannot be: "
                f"{self.refused.most_common(1)[0][0]}"
            )
        if refused > self.source.max_refused * self.rows:
            self.notes.append("a run would stop: more rows are refused than source.max_refused lets pass")
        elif refused >= CUT_SHARE * self.rows and not self.faults:
            (why, count), *_ = self.refused.most_common(1)
            self.notes.append(
                f"{refused:,} of {self.rows:,} rows ({refused / self.rows:.1%}) are refused: they are in no number, "
                f"and no bar tells of it ({count:,}: {why}). Mend them or the stream file; a run lists their lines"
            )
        offsets = {str(each)[-6:] for each in self.columns.get(self.wanted.time or "", [])}
        if len(offsets) == 1 and re.fullmatch(r"[+-](?!00:00)[0-9]{2}:[0-9]{2}", offset := offsets.pop()):
            zone = self.wanted.written.time_zone
            self.notes.append(f"times have the offset {offset}, and days are those of stream.time_zone, {zone!r}")
        self.strange = self._strange_texts()
        self.notes += [each.told(self._key(name), name) for name, each in self.strange.items()]
        self.notes += self._spelled_twice()
        for name, count in self.nulls.items():
            if count > half:
                self.notes.append(f"queries.{name}: more than half of the rows have no value that it counts")
        self.notes += self.sizes.cut_notes(self.rows, self.outside)
        if isinstance(self.source, FileSource):
            self.notes += [*self.caps.notes(), *self.sizes.size_notes(self.caps.beyond(), self.spec.last_tick)]

    def _spelled_twice(self) -> list[str]:
        """Which columns hold, in their first rows, labels that a person reads as one and a run counts as two."""
        found = []
        for name in self.wanted.labels:
            values = (each if isinstance(each, list) else [each] for each in self.columns.get(name, []))
            labels = {label for several in values for label in several if isinstance(label, str)}
            if len({unicodedata.normalize("NFC", label) for label in labels}) < len(labels):
                found.append(
                    f"{self._key(name)}: {name!r} holds texts that differ only by their Unicode form, as an accent "
                    "in one character or in two does, and count as different ones; bring them to one form (NFC)"
                )
        return found

    def _strange_texts(self) -> dict[str, StrangeTexts]:
        """Columns of numbers with texts that are none; of files all rows are looked at, else the first."""
        wanted, source = as_texts(self.wanted), self.source
        if not wanted.labels or not any(self.nulls.values()):
            return {}
        if not isinstance(source, FileSource):
            first = {
                name: [each for each in self.columns.get(name, []) if isinstance(each, str)] for name in wanted.labels
            }
            return strange_texts(
                (pl.DataFrame({name: texts}, schema={name: pl.String}) for name, texts in first.items())
            )
        files = [(path, form) for path, form in find_files(source) if form != "parquet"]
        return strange_texts(piece.columns for path, form in files for piece in READERS[form](path, wanted))

    def _broken_lines(self) -> list[str]:
        """Whether more lines of CSV are rows where fields in quotes may hold line breaks."""
        written, source = self.wanted.written, self.source
        malformed = sum(count for why, count in self.refused.items() if "fields, in quotes" in why)
        if written.line_breaks or not malformed or not isinstance(source, FileSource):
            return []
        joined = replace(self.wanted, written=replace(written, line_breaks=True))
        pieces = (piece for path, form in find_files(source) for piece in READERS[form](path, joined))
        if sum(len(piece.lines) for piece in pieces) <= self.rows - malformed:
            return []
        return ["source.line_breaks must be true, got false; fields in quotes hold line breaks"]

    def _guessed(self) -> list[str]:
        """How times seem to be written, if not as the file says."""
        written, values = self.wanted.written, self.columns.get(self.wanted.time or "", [])
        texts = pl.Series([str(each) for each in values if isinstance(each, str | int | float) and each != ""])
        if not len(texts):
            return []

        def fit(form: str) -> tuple[int, int]:
            times = Written(time_format=form, time_zone=written.time_zone).instants(texts)
            sound = times.filter(times.is_between(_SINCE_1990, _UNTIL_2100))
            return len(sound), self.clock.faults("", sound).null_count()

        best = max(_GUESSES, key=fit)
        if best == written.time_format or fit(best)[0] <= len(texts) / 2:
            return []
        told = f"got {written.time_format!r}; they look like {best!r}"
        return [f"source.time_format must be how the times in {self.wanted.time!r} are written, {told}"]

    def _key(self, name: str) -> str:
        return " and ".join(self.keys[name])


def _keys_of(spec: StreamSpec, time: str | None) -> dict[str, list[str]]:
    """The columns that are read, and the keys of the stream file that name each."""
    found: dict[str, list[str]] = defaultdict(list)
    user = spec.stream.user
    for key, column in (("source.time", time), ("stream.unit.user", None if user is None else user.column)):
        if column is not None:
            found[column].append(key)
    for query in spec.stream.queries:
        for each in query.reads:
            own = [field.name for field in fields(query) if getattr(query, field.name) == each.name]
            found[each.name].append(f"queries.{query.name}.{own[-1] if own else 'where'}")
    return found


def _json(lines: list[str]) -> dict[str, list[Any]]:
    rows: list[dict[str, Any]] = []
    for line in lines:
        with suppress(msgspec.MsgspecError, RecursionError):
            rows.append(msgspec.json.decode(line, type=dict[str, Any]))
    return {name: [row.get(name) for row in rows] for name in dict.fromkeys(name for row in rows for name in row)}


def _kind(values: list[Any]) -> str:
    """What the values of a column look like."""
    there = [each for each in values if each not in (None, "")]
    if there and all(isinstance(each, str) for each in there):
        texts = pl.Series(there, dtype=pl.String)
        if texts.str.contains(r"^[+-]?[0-9]+$").all():
            return "whole numbers"
        if texts.cast(pl.Float64, strict=False).is_not_null().all():
            return "numbers"
        return "texts" if Written().instants(texts).null_count() else "date-times"
    names = {
        bool: "true or false",
        int: "whole numbers",
        float: "numbers",
        Decimal: "numbers",
        str: "texts",
        list: "lists",
        dict: "objects",
    }
    return " or ".join(sorted({names.get(type(each), "date-times") for each in there})) or "empty"


def _moment(microseconds: int | None) -> str | None:
    with suppress(OverflowError):
        epoch = datetime(1970, 1, 1, tzinfo=UTC)
        return None if microseconds is None else (epoch + timedelta(microseconds=microseconds)).isoformat()
    return "beyond all calendars"


def _per_tick(ticks: Counter[int], last_tick: int) -> dict[str, float]:
    counts, empty = sorted(ticks.values()), last_tick - len(ticks)

    def at(place: int) -> int:
        return 0 if place < empty else counts[place - empty]

    median = (at((last_tick - 1) // 2) + at(last_tick // 2)) / 2
    return {"ticks": last_tick, "empty": empty, "smallest": at(0), "median": median, "largest": at(last_tick - 1)}
