"""Lines of JSON: one object a line.

Labels are texts or whole numbers, or lists of these; values are numbers; times are texts. Of the columns that are not
wanted it is checked that they are JSON, and nothing else. A column that is given twice counts as it was given last, if
all that was given fits.

Each record is read alone. Plain ones are read by the core, some megabytes in one call; what is in any doubt there, such
as a list, a column given twice or a long number, is parsed by msgspec, record by record. Where the core answers, both
say the same: who reads a record is seen in nothing but the time it takes, and never depends on another record.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, TypedDict

import msgspec
import numpy as np
import polars as pl

from pianissimo import _core, codec
from pianissimo.checks import decoded
from pianissimo.io.sources.rows.text_rows import REFUSED, Part, Piece, Wanted, read_blocks
from pianissimo.labels import label_text
from pianissimo.queries.shared.columns import first_labels
from pianissimo.stream.calendar import EPOCHS

_MOST_COLUMNS = 64
"""More are not read by the core."""

_Label = str | int | bool | None
_NO_OBJECT = "a line must be a JSON object in UTF-8"
_UNREADABLE = (msgspec.MsgspecError, RecursionError)


def read_jsonl_file(path: Path, wanted: Wanted, part: Part | None = None) -> Iterator[Piece]:
    """The rows of a JSONL file, or of a part of it, block by block."""
    reader = JsonReader(wanted)
    for first, block in read_blocks(path, part):
        yield reader.read_block(first, block)


class JsonReader:
    """Reads JSON texts into the columns that are wanted."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        kinds: dict[str, Any] = {
            name: _Label if name in wanted.never_lists else list[_Label] | _Label for name in wanted.labels
        }
        kinds |= dict.fromkeys(wanted.values, float | None)
        if wanted.time is not None:
            is_number = wanted.written.time_format in EPOCHS
            kinds[wanted.time] = str | int | float | None if is_number else str | None
        self._kind, self._field = _record_of(kinds)
        self._decode = msgspec.json.Decoder(self._kind).decode
        self._decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
        self._decode_field = {name: msgspec.json.Decoder(each).decode for name, each in kinds.items()}
        self._plain = _plain_columns(wanted)

    def read(self, numbers: pl.Series, texts: pl.Series) -> Piece:
        """The rows of texts, in their order, and what is refused of them."""
        if self._plain is None:
            return self._one_by_one(numbers.to_list(), texts.to_list())
        there = texts.is_not_null()
        known, sound = (numbers, texts) if there.all() else (numbers.filter(there), texts.filter(there))
        text, lengths = codec.join_texts(sound)
        columns, places, odd = _core.read_json_lines(text, self._plain, lengths)
        at = [place for place, _, _ in odd]
        rest = [(number, None) for number in numbers.filter(~there)]
        rest += zip(known.gather(at).to_list(), sound.gather(at).to_list(), strict=True)
        return self._joined(known.gather(places).cast(pl.Int64), columns, sorted(rest, key=itemgetter(0)))

    def read_block(self, first: int, block: bytes) -> Piece:
        """The rows of the lines of a block, the first of which has this number."""
        if self._plain is None:
            texts = [decoded(line.removesuffix(b"\r")) for line in block.split(b"\n")]
            return self._one_by_one(range(first, first + len(texts)), texts)
        columns, places, odd = _core.read_json_lines(block, self._plain)
        rest = [(first + place, decoded(block[start:end])) for place, start, end in odd]
        return self._joined(pl.Series(places.astype(np.int64) + first), columns, rest)

    def _joined(self, lines: pl.Series, columns: Sequence[Any], rest: Sequence[tuple[int, str | None]]) -> Piece:
        """The rows that the core has read, and those of the records that it has not, by their numbers."""
        found = {
            name: _column(name, kind, *each) for (name, kind), each in zip(self._plain or (), columns, strict=True)
        }
        time = self._wanted.time
        times = pl.repeat(None, len(lines), eager=True, dtype=pl.String) if time is None else found[time].alias("")
        wanted = [found[name] for name in (*self._wanted.labels, *self._wanted.values)]
        plain = Piece(lines=lines, columns=pl.DataFrame(wanted), times=times, refused=pl.DataFrame(schema=REFUSED))
        if not rest:
            return plain
        others = self._one_by_one(*zip(*rest, strict=True))
        lines = pl.concat([plain.lines, others.lines])
        order = lines.arg_sort()
        both = pl.concat([plain.columns, others.columns]) if wanted else plain.columns
        return Piece(
            lines=lines.gather(order),
            columns=both.select(pl.all().gather(order)) if wanted else both,
            times=pl.concat([plain.times, others.times]).gather(order),
            refused=others.refused,
            unread=others.unread,
        )

    def _one_by_one(self, numbers: Sequence[int], texts: Sequence[str | None]) -> Piece:
        lines, rows, refused, unread = [], [], [], set[str]()
        decode = self._decode
        for number, text in zip(numbers, texts, strict=True):
            try:
                row = decode(text or "")
            except _UNREADABLE:
                row = self._in_part(text or "", unread)
            if row is not None:
                rows.append(row)
                lines.append(number)
            elif text is None or text.strip():
                refused.append((number, _NO_OBJECT))
        columns = {name: list(map(self._field(name), rows)) for name in self._wanted.names}
        times = [None] * len(rows) if self._wanted.time is None else columns[self._wanted.time]
        return Piece(
            lines=pl.Series(lines, dtype=pl.Int64),
            columns=pl.DataFrame(
                [
                    *(_labels(name, columns[name], lists=lists) for name, lists in self._wanted.labels.items()),
                    *(pl.Series(name, columns[name], dtype=pl.Float64) for name in self._wanted.values),
                ]
            ),
            times=_texts("", times),
            refused=pl.DataFrame(refused, schema=REFUSED, orient="row"),
            unread=frozenset(unread),
        )

    def _in_part(self, text: str, unread: set[str]) -> Any:
        """A record with nothing in the columns that lack a value of their kind; None if it is no object.

        Values that are there and no numbers have their columns in `unread`.
        """
        try:
            fields = self._decode_fields(text)
        except _UNREADABLE:
            return None
        found = {name: _decoded(fields, name, decode) for name, decode in self._decode_field.items()}
        there = (name for name in self._wanted.values if name in fields and found[name] is None)
        unread.update(name for name in there if bytes(fields[name]).strip(b' "') not in (b"", b"null"))
        return msgspec.convert(found, self._kind)


def _decoded(fields: Mapping[str, Any], name: str, decode: Callable[[Any], Any]) -> Any:
    try:
        return decode(fields[name])
    except (KeyError, *_UNREADABLE):
        return None


def _record_of(kinds: Mapping[str, Any]) -> tuple[Any, Callable[[str], Callable[[Any], Any]]]:
    """What a record is decoded to, and what gives the value of a column."""
    if any(sign in name for name in kinds for sign in '"\\') or not "".join(kinds).isprintable():
        # A struct takes no such name. This is half as fast.
        return TypedDict("Record", kinds), itemgetter  # type: ignore[operator]
    places = {name: f"column_{place}" for place, name in enumerate(kinds)}
    fields = [(places[name], kind) for name, kind in kinds.items()]
    names = {place: name for name, place in places.items()}
    return msgspec.defstruct("Record", fields, rename=names, gc=False), lambda name: attrgetter(places[name])


def _plain_columns(wanted: Wanted) -> list[tuple[str, str]] | None:
    """The columns as the core reads them; None where it does not: lists, or a column that is read in two ways."""
    times = [] if wanted.time is None else [wanted.time]
    names = wanted.names
    if any(wanted.labels.values()) or len(names) < len([*wanted.labels, *wanted.values, *times]):
        return None
    kinds = dict.fromkeys(wanted.labels, "label") | dict.fromkeys(wanted.values, "number")
    kinds |= dict.fromkeys(times, "text or integer" if wanted.written.time_format in EPOCHS else "text")
    return [(name, kinds[name]) for name in names] if len(names) <= _MOST_COLUMNS else None


def _column(name: str, kind: str, text: bytes, ends: Any, numbers: Any, has: Any) -> pl.Series:
    """A column that the core has read: of numbers, or of texts that lie one after the other."""
    if kind == "number":
        column = pl.Series(name, numbers)
    else:
        lengths = np.diff(ends, prepend=np.uint64(0))
        spans = pl.DataFrame({"start": (ends - lengths).astype(np.int64), "length": lengths})
        cut = pl.lit(text).bin.slice(pl.col("start"), pl.col("length")).cast(pl.String)
        column = spans.select(cut.alias(name)).to_series()
    return column if has.all() else column.set(pl.Series(~has), None)


def _labels(name: str, values: list[Any], *, lists: bool) -> pl.Series:
    if not lists and list not in set(map(type, values)):
        return _texts(name, values)
    events = [
        [_text(each) for each in value] if isinstance(value, list) else None if value is None else [_text(value)]
        for value in values
    ]
    column = pl.Series(name, events, dtype=pl.List(pl.String))
    return column if lists else first_labels(column)


def _texts(name: str, values: list[Any]) -> pl.Series:
    """A column of labels or times; row by row only where one is no text."""
    try:
        return pl.Series(name, values, dtype=pl.String)
    except (TypeError, OverflowError, UnicodeEncodeError):
        return pl.Series(name, [_text(value) for value in values], dtype=pl.String)


def _text(value: str | float | None) -> str | None:
    """A label, or a time: a floating-point number is no label, and was not read as one."""
    return str(value) if isinstance(value, float) else value if isinstance(value, str) else label_text(value)
