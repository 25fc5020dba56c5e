"""Rows of text: what every reader is asked for and hands back; lines of CSV are read here, of JSON in `json_rows`.

A row is a line, whatever it holds: no row can reach into the next, and what becomes of a line depends on that line
only. Files are read some megabytes at a time. Blank lines are passed over.

**CSV.** A header, then one row a line, fields cut by commas or another sign, everything text. A field that holds that
sign or a quote stands in quotes, quotes in it doubled (RFC 4180). A line break in a field is not read: a forgotten
quote would otherwise swallow the rows of other people. Where an event may hold several labels, they are joined by `;`
in one field, and an empty field is an event without labels; elsewhere an empty field is a null and `""` an empty label.
Values are decimal numbers with a point, such as `-12.50` or `1e3`, without spaces; any other text is no value. Polars
reads the fields, but only of lines whose form was checked: by itself it fills up lines that are too short, and what it
makes of one line can depend on another.
"""

import csv
import gzip
import re
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from pianissimo.checks import decoded
from pianissimo.errors import InputError
from pianissimo.stream.calendar import asked_of_times, microseconds

REFUSED = {"line": pl.Int64, "reason": pl.String}


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """How rows are written."""

    time_format: str = "iso"
    """ISO 8601; seconds, milliseconds or microseconds since 1970; or a pattern such as `%d/%m/%Y %H:%M`."""

    time_zone: str = "UTC"
    """Of times without an offset."""

    delimiter: str | None = None
    """Between the fields of CSV; without it a comma, or a tab in files whose names end in .tsv."""

    line_breaks: bool = False
    """Whether fields of CSV in quotes may hold line breaks. A forgotten quote then swallows the rows of others."""

    def sign(self, place: str) -> str:
        """What stands between the fields of a file."""
        return self.delimiter or ("\t" if ".tsv" in place.lower() else ",")

    @property
    def asked_of_times(self) -> str:
        """What a time must be."""
        return asked_of_times(self.time_format)

    def instants(self, times: pl.Series) -> pl.Series:
        """Times as microseconds since 1970 in UTC."""
        return microseconds(times, self.time_format, self.time_zone)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The columns that are read: those of labels, and whether each holds lists; those of numbers; the one of times.

    A column holds lists where a query lets an event hold more than one label.
    """

    labels: Mapping[str, bool]
    values: Sequence[str] = ()
    time: str | None = None
    """None where nothing depends on when an event happened."""

    never_lists: Collection[str] = ()
    """Columns of labels in which a list is none, as in that of users; elsewhere its first label counts."""

    written: Written = Written()

    @property
    def names(self) -> list[str]:
        """All columns, each once."""
        times = [] if self.time is None else [self.time]
        return list(dict.fromkeys([*self.labels, *self.values, *times]))

    def times(self, table: pl.DataFrame) -> pl.Series:
        """The column of times; nulls where none is wanted."""
        if self.time is None:
            return pl.repeat(None, table.height, eager=True, dtype=pl.String)
        return table[self.time]

    def check_present(self, place: str, columns: Sequence[str], *, certain: bool = False) -> None:
        """Refuse a file that lacks a column.

        What was found is shown only where it is certain to be names: the first line of a file without a header is an
        event.
        """
        missing = [name for name in self.names if name not in columns]
        if missing:
            if certain:
                came = ", ".join(map(repr, columns)) or "no column"
            else:
                came = f"a header that lacks them (columns: {len(columns)})"
            raise InputError(f"{place}: columns {', '.join(map(repr, missing))} must be in the file, got {came}")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Piece:
    """Some rows of a file: secret.

    Labels are texts, or lists of texts where lists are wanted; values are floating-point numbers, null where a row
    holds none.
    """

    lines: pl.Series
    columns: pl.DataFrame
    """The columns of labels and of values."""

    times: pl.Series
    refused: pl.DataFrame
    """The lines that are no rows, and why."""

    unread: frozenset[str] = frozenset()
    """The columns of values in which a row has a text that is no number."""

    def given(self, time: str | None) -> frozenset[str]:
        """The columns that a row has a value in."""
        found = [*self.columns.iter_columns(), *([] if time is None else [self.times.alias(time)])]
        return frozenset(column.name for column in found if column.null_count() < len(column))


def no_rows(wanted: Wanted, refused: pl.DataFrame) -> Piece:
    """A piece in which every line is refused."""
    labels = {name: pl.List(pl.String) if lists else pl.String() for name, lists in wanted.labels.items()}
    return Piece(
        lines=pl.Series(dtype=pl.Int64),
        columns=pl.DataFrame(schema={**labels, **dict.fromkeys(wanted.values, pl.Float64())}),
        times=pl.Series(dtype=pl.String),
        refused=refused.cast(REFUSED),  # type: ignore[arg-type]
    )


PACKED = (".gz", ".zst")
"""How names of packed files of text end."""

LONGEST_LINE = 8 * 2**20
"""Bytes; a longer line is refused, however it comes in."""

BLOCK_BYTES = LONGEST_LINE

NO_TEXT = b"\xff"
"""Stands for a line that is refused whatever it holds."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


Part = tuple[int, int]
"""Some bytes of a file, from one place up to another; of a Parquet file, rows."""


def read_blocks(path: Path, part: Part | None = None) -> Iterator[tuple[int, bytes]]:
    """Blocks of whole lines without the last line's end, each with the number of its first line.

    Of a line that is longer than any may be, no more is kept than tells that. Of a part of a file, which lies between
    two line ends, lines are counted from its beginning.
    """
    number, rest, is_skipping = 1, bytearray(), False
    start, end_of_part = part or (0, None)
    try:
        with _unpacked(path) as file:
            if start:
                file.seek(start)
            left = None if end_of_part is None else end_of_part - start
            while block := file.read(BLOCK_BYTES if left is None else min(BLOCK_BYTES, left)):
                left = None if left is None else left - len(block)
                if number == 1 and not rest and not start:
                    block = block.removeprefix(BYTE_ORDER_MARK)
                if is_skipping:
                    _, found, block = block.partition(b"\n")
                    is_skipping = not found
                # No line within a block is longer than the block: only one that began before may be.
                begun = block.find(b"\n")
                if begun >= 0 and len(rest) + begun > LONGEST_LINE:
                    rest, block = bytearray(NO_TEXT), block[begun:]
                end = block.rfind(b"\n")
                if end < 0:
                    rest += block
                else:
                    whole, rest = b"".join((rest, memoryview(block)[:end])), bytearray(block[end + 1 :])
                    yield number, whole
                    number += whole.count(b"\n") + 1
                if len(rest) > LONGEST_LINE:
                    yield number, NO_TEXT
                    number, rest, is_skipping = number + 1, bytearray(), True
    except (OSError, EOFError, zlib.error) as fault:
        reason = getattr(fault, "strerror", None) or "damaged content"
        raise InputError(f"{path} must be a file that can be read, got: {reason}") from None
    if rest:
        yield number, bytes(rest)
    elif number == 1 and part is None:
        raise InputError(f"{path} must hold rows, got an empty file; leave it out if there were no events")


def _unpacked(path: Path) -> Any:
    """A file, opened; unpacked where its name says that it is packed."""
    if path.suffix.lower() == ".gz":
        return gzip.open(path)
    if path.suffix.lower() == ".zst":
        try:
            import pyarrow as pa
        except ImportError:
            raise InputError(
                f"{path} must be unpacked with pyarrow, got none: pip install pianissimo[pandas]"
            ) from None
        return pa.input_stream(path.open("rb"), compression="zstd")
    return path.open("rb")


def split_lines(block: bytes) -> pl.Series:
    """The lines of a block as texts, null where a line is not UTF-8."""
    try:
        lines = pl.Series([block.decode()]).str.split("\n").explode()
    except UnicodeDecodeError:
        lines = pl.Series([decoded(line) for line in block.split(b"\n")], dtype=pl.String)
    return lines.str.strip_suffix("\r")


LABEL_SEPARATOR = ";"
_DECIMAL = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"
MOST_COLUMNS = 4096
"""In the header of a CSV file."""


def read_csv_file(path: Path, wanted: Wanted, part: Part | None = None, named: str | None = None) -> Iterator[Piece]:
    """The rows of a CSV file, or of a part of it that does not begin with its header, block by block."""
    header = None if named is None else header_of(str(path), named, wanted)
    for lines in _csv_lines(path, part, joined=wanted.written.line_breaks):
        lines = lines.filter(pl.col("text").is_null() | (pl.col("text") != ""))
        if header is None and lines.height:
            header = header_of(str(path), lines["text"][0], wanted)
            lines = lines[1:]
        if header is not None:
            yield csv_piece(lines, header, wanted, wanted.written.sign(path.name))
    if header is None:
        raise InputError(f"{path} must begin with a header of column names, got blank lines only")


def _csv_lines(path: Path, part: Part | None = None, *, joined: bool) -> Iterator[pl.DataFrame]:
    """The columns line and text; joined, lines that end within quotes go on in the next."""
    rest = pl.DataFrame(schema={"line": pl.Int64, "text": pl.String})
    for first, block in read_blocks(path, part):
        lines = pl.DataFrame({"text": split_lines(block)}).with_row_index("line", first).cast({"line": pl.Int64})
        if not joined:
            yield lines
            continue
        lines = pl.concat([rest, lines.select("line", "text")])
        is_open = lines["text"].fill_null("").str.count_matches('"', literal=True).cum_sum() % 2 == 1
        record = (~is_open).shift(1, fill_value=True).cum_sum()
        is_whole = record < record[-1] if is_open[-1] else record > 0
        rest = lines.filter(~is_whole)
        text = pl.col("text").str.join("\n", ignore_nulls=False)
        whole = lines.with_columns(record=record).filter(is_whole)
        yield whole.group_by("record", maintain_order=True).agg(pl.col("line").first(), text).drop("record")
    if rest.height:
        yield rest


def header_of(place: str, text: str | None, wanted: Wanted) -> list[str]:
    """The names in a header, or an `InputError` if it lacks what is wanted."""
    if text is None:
        raise InputError(f"{place} must be UTF-8 text, got other bytes in its header")
    try:
        names = next(csv.reader([text], strict=True, delimiter=wanted.written.sign(place)))
    except csv.Error:
        raise InputError(f"{place} must begin with a header of column names, got quotes that do not match") from None
    if len(names) > MOST_COLUMNS:
        raise InputError(f"{place} must have at most {MOST_COLUMNS} columns, got more")
    wanted.check_present(place, names)
    for name in wanted.names:
        if names.count(name) > 1:
            raise InputError(f"{place}: column {name!r} must be in the header once, got it {names.count(name)} times")
    return names


def csv_piece(lines: pl.DataFrame, header: list[str], wanted: Wanted, sign: str = ",") -> Piece:
    """The rows of lines after the header, in columns line and text, none of them blank."""
    field = rf'(?:"(?:[^"]|"")*"|[^"{re.escape(sign)}]*)'
    form = rf"^(?:{field}{re.escape(sign)}){{{len(header) - 1}}}{field}$"
    well_formed = pl.col("text").str.contains(form).fill_null(value=False)
    good, bad = lines.filter(well_formed), lines.filter(~well_formed)
    fields = _fields(good["text"], header, wanted.names, sign)
    what = "a comma" if sign == "," else repr(sign)
    reason = f"a line must be UTF-8 text of {len(header)} fields, in quotes where they hold {what} or a quote"
    columns = fields.select(
        *(_split(pl.col(name)) if lists else pl.col(name) for name, lists in wanted.labels.items()),
        *(_number(pl.col(name)) for name in wanted.values),
    )
    return Piece(
        lines=good["line"].cast(pl.Int64),
        columns=columns,
        unread=frozenset(name for name in wanted.values if _some_unread(fields[name], columns[name])),
        times=wanted.times(fields),
        refused=bad.select("line", reason=pl.lit(reason)).cast(REFUSED),  # type: ignore[arg-type]
    )


def _fields(texts: pl.Series, header: list[str], names: list[str], sign: str) -> pl.DataFrame:
    """The named fields of well-formed lines."""
    places = sorted((header.index(name), name) for name in names)
    if not len(texts):
        return pl.DataFrame(schema={name: pl.String for _, name in places})
    # Polars takes a byte order mark from the first line: that one is ours, so that no label depends on its place.
    guard = sign * (len(header) - 1) if len(header) > 1 else "guard"
    fields = pl.read_csv(
        f"{guard}\n{texts.str.join(chr(10)).item()}".encode(),
        has_header=False,
        separator=sign,
        schema={str(place): pl.String for place in range(len(header))},
        columns=[place for place, _ in places],
    )[1:]
    if fields.height != len(texts):
        raise InputError("lines of a CSV file must be read one by one, got another number of rows; please report this")
    return fields.rename({str(place): name for place, name in places})


def is_number(texts: pl.Series) -> pl.Series:
    """Whether each text is a number as values are written."""
    return texts.str.contains(_DECIMAL)


def _number(field: pl.Expr) -> pl.Expr:
    # The form is checked first: polars' cast also takes "nan" and "inf".
    return pl.when(field.str.contains(_DECIMAL)).then(field).cast(pl.Float64, strict=False)


def _some_unread(texts: pl.Series, numbers: pl.Series) -> bool:
    """Whether a text that is not empty has become no number."""
    if numbers.null_count() == texts.null_count():
        return False
    return bool((texts.filter(numbers.is_null()).str.strip_chars() != "").any())


def _split(field: pl.Expr) -> pl.Expr:
    text = field.fill_null("")
    none = pl.lit([], dtype=pl.List(pl.String))
    return pl.when(text == "").then(none).otherwise(text.str.split(LABEL_SEPARATOR)).alias(field.meta.output_name())
