"""Rows of a JSONL file: one JSON object a line; blank lines are passed over.

Labels are texts or whole numbers, or lists of these; values are numbers; times are texts. Each line is parsed and
checked alone, by pydantic's parser. Polars' reader of whole files (2.1) would let one line decide about others: it
refuses the file for a line that is malformed or no object. It also reads 1.5 and true as texts where texts are asked
for, and a column that is missing as null.
"""

from collections.abc import Iterator
from pathlib import Path

import polars as pl
from pydantic_core import SchemaValidator, ValidationError, core_schema

from pianissimo.engine.sources.lines import read_blocks
from pianissimo.engine.sources.piece import REFUSED, Piece, Wanted

_LABEL = core_schema.nullable_schema(
    core_schema.union_schema(
        [core_schema.str_schema(strict=True), core_schema.int_schema(strict=True, ge=-(2**63), lt=2**64)]
    )
)
_LABELS = core_schema.union_schema([core_schema.list_schema(_LABEL, strict=True), _LABEL])
_VALUE = core_schema.nullable_schema(core_schema.float_schema(strict=True))
_TIME = core_schema.nullable_schema(core_schema.str_schema(strict=True))


def read_jsonl_file(path: Path, wanted: Wanted) -> Iterator[Piece]:
    """The rows of a JSONL file, block by block."""
    validator = _validator(wanted)
    for first, block in read_blocks(path):
        yield _piece(first, block, validator, wanted)


def _validator(wanted: Wanted) -> SchemaValidator:
    columns = {name: _LABELS if lists else _LABEL for name, lists in wanted.labels.items()}
    columns |= dict.fromkeys(wanted.values, _VALUE) | ({} if wanted.time is None else {wanted.time: _TIME})
    fields = {name: core_schema.typed_dict_field(schema) for name, schema in columns.items()}
    return SchemaValidator(core_schema.typed_dict_schema(fields, extra_behavior="ignore"))


def _piece(first: int, block: bytes, validator: SchemaValidator, wanted: Wanted) -> Piece:
    numbers, rows, refused = [], [], []
    for number, line in enumerate(block.split(b"\n"), first):
        try:
            rows.append(validator.validate_json(line))
            numbers.append(number)
        except ValidationError as fault:
            if line.strip():
                refused.append((number, _reason(fault, wanted)))
    return Piece(
        lines=pl.Series(numbers, dtype=pl.Int64),
        columns=pl.DataFrame(
            [
                *(_labels(name, [row[name] for row in rows], lists=lists) for name, lists in wanted.labels.items()),
                *(pl.Series(name, [row[name] for row in rows], dtype=pl.Float64) for name in wanted.values),
            ]
        ),
        times=pl.Series([row.get(wanted.time) for row in rows], dtype=pl.String),
        refused=pl.DataFrame(refused, schema=REFUSED, orient="row"),
    )


def _labels(name: str, values: list[object], *, lists: bool) -> pl.Series:
    if not lists:
        return pl.Series(name, [_text(value) for value in values], dtype=pl.String)
    events = [
        [_text(each) for each in value] if isinstance(value, list) else None if value is None else [_text(value)]
        for value in values
    ]
    return pl.Series(name, events, dtype=pl.List(pl.String))


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else str(value)


def _reason(fault: ValidationError, wanted: Wanted) -> str:
    """What must hold. The fault's own message would show what came."""
    first = fault.errors(include_url=False, include_input=False, include_context=False)[0]
    if not first["loc"]:
        return "a line must be a JSON object in UTF-8"
    name = str(first["loc"][0])
    if first["type"] == "missing":
        return f"column {name!r} must be given"
    if name == wanted.time:
        return f"column {name!r} must be a date-time as an ISO 8601 text"
    if name in wanted.values:
        return f"column {name!r} must be a number"
    lists = " or a list of these" if wanted.labels[name] else ""
    return f"column {name!r} must be a text or a whole number{lists}"
