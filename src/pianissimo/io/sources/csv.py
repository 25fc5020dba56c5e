"""Rows of a CSV file: a header, then one row a line, fields cut by commas, everything text.

A field that holds a comma or a quote stands in quotes, quotes in it doubled (RFC 4180). A line break in a
field is not read: a forgotten quote would otherwise swallow the rows of other people. Blank lines are
passed over. Where an event may hold several labels, they are joined by `;` in one field, and an empty field
is an event without labels; elsewhere an empty field is a null and `""` an empty label. Values are decimal
numbers with a point, such as `-12.50` or `1e3`, without spaces; any other text is no value.

Polars reads the fields, but only of lines whose form was checked: by itself it fills up lines that are too
short, and what it makes of one line can depend on another.
"""

import csv
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from pianissimo.errors import InputError
from pianissimo.io.sources.piece import REFUSED, Piece, Wanted, read_blocks, split_lines

LABEL_SEPARATOR = ";"
_FIELD = r'(?:"(?:[^"]|"")*"|[^",]*)'
_DECIMAL = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"


def read_csv_file(path: Path, wanted: Wanted) -> Iterator[Piece]:
    """The rows of a CSV file, block by block."""
    header: list[str] | None = None
    for first, block in read_blocks(path):
        lines = pl.DataFrame({"text": split_lines(block)}).with_row_index("line", first)
        lines = lines.filter(pl.col("text").is_null() | (pl.col("text") != ""))
        if header is None and lines.height:
            header = header_of(str(path), lines["text"][0], wanted)
            lines = lines[1:]
        if header is not None:
            yield csv_piece(lines, header, wanted)
    if header is None:
        raise InputError(f"{path} must begin with a header of column names, got blank lines only")


def header_of(place: str, text: str | None, wanted: Wanted) -> list[str]:
    """The names in a header, or an `InputError` if it lacks what is wanted.

    >>> header_of("visits.csv", "time,drug", Wanted(labels={"drug": False}))
    ['time', 'drug']
    """
    if text is None:
        raise InputError(f"{place} must be UTF-8 text, got other bytes in its header")
    try:
        names = next(csv.reader([text], strict=True))
    except csv.Error:
        raise InputError(f"{place} must begin with a header of column names, got quotes that do not match") from None
    wanted.check_present(place, names)
    for name in wanted.names:
        if names.count(name) > 1:
            raise InputError(f"{place}: column {name!r} must be in the header once, got it {names.count(name)} times")
    return names


def csv_piece(lines: pl.DataFrame, header: list[str], wanted: Wanted) -> Piece:
    """The rows of lines after the header, in columns line and text, none of them blank."""
    form = rf"^(?:{_FIELD},){{{len(header) - 1}}}{_FIELD}$"
    well_formed = pl.col("text").str.contains(form).fill_null(value=False)
    good, bad = lines.filter(well_formed), lines.filter(~well_formed)
    fields = _fields(good["text"], header, wanted.names)
    reason = f"a line must be UTF-8 text of {len(header)} fields, in quotes where they hold a comma or a quote"
    return Piece(
        lines=good["line"].cast(pl.Int64),
        columns=fields.select(
            *(_split(pl.col(name)) if lists else pl.col(name) for name, lists in wanted.labels.items()),
            *(_number(pl.col(name)) for name in wanted.values),
        ),
        times=wanted.times(fields),
        refused=bad.select("line", reason=pl.lit(reason)).cast(REFUSED),  # type: ignore[arg-type]
    )


def _fields(texts: pl.Series, header: list[str], names: list[str]) -> pl.DataFrame:
    """The named fields of well-formed lines."""
    places = sorted((header.index(name), name) for name in names)
    if not len(texts):
        return pl.DataFrame(schema={name: pl.String for _, name in places})
    # Polars takes a byte order mark from the first line: that one is ours, so that no label depends on its place.
    guard = "," * (len(header) - 1) if len(header) > 1 else "guard"
    fields = pl.read_csv(
        f"{guard}\n{texts.str.join(chr(10)).item()}".encode(),
        has_header=False,
        schema={str(place): pl.String for place in range(len(header))},
        columns=[place for place, _ in places],
    )[1:]
    if fields.height != len(texts):
        raise InputError("lines of a CSV file must be read one by one, got another number of rows; please report this")
    return fields.rename({str(place): name for place, name in places})


def _number(field: pl.Expr) -> pl.Expr:
    # The form is checked first: polars' cast also takes "nan" and "inf".
    return pl.when(field.str.contains(_DECIMAL)).then(field).cast(pl.Float64, strict=False)


def _split(field: pl.Expr) -> pl.Expr:
    text = field.fill_null("")
    none = pl.lit([], dtype=pl.List(pl.String))
    return pl.when(text == "").then(none).otherwise(text.str.split(LABEL_SEPARATOR)).alias(field.meta.output_name())
