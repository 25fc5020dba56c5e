"""Rows of JSON texts, one object each; blank texts are passed over.

Labels are texts or whole numbers, or lists of these; values are numbers; times are texts. Each text is parsed and
checked alone, by pydantic's parser. Polars' reader (2.1) would let one text decide about others: it refuses all for one
that is malformed or no object. It also reads 1.5 and true as texts where texts are asked for, and a column that is
missing as null.

Most producers write every record alike. So the form of one record (its keys in their order, and whether each holds a
text or a number) is turned into a pattern that a text fits only if it is a JSON object of that form without a backslash
in it. Between the quotes of such a text lie its keys and its texts, always at the same places, and cutting there is all
that is left to do. Whatever fits no pattern is parsed. Both ways give the same row, so that a form, which is learned
from what came, decides how fast a text is read and nothing else.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

import polars as pl
from pydantic_core import SchemaValidator, ValidationError, core_schema

from pianissimo.errors import InputError
from pianissimo.io.sources.piece import REFUSED, Piece, Wanted

MOST_FORMS = 4
"""How many forms are known at once; records of further ones are parsed."""

_TRIES = 8
_LONGEST_LEARNED, _MOST_FIELDS = 4096, 64
_SPACE = r"[ \t]*"
_TEXT = r'"[^"\\\x00-\x1f]*"'
# The parser refuses some numbers for their length alone, also where nobody asked for them: no part of a pattern may be
# wider than what it takes for certain. Longer ones are left to it.
_ANY_NUMBER = r"-?(?:0|[1-9][0-9]{0,39})(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,4})?"
# Numbers that every parser reads alike.
_NUMBER = r"(?:-?[1-9][0-9]{0,14}(?:\.[0-9]{1,15})?|0|-?0\.[0-9]{1,15})(?:[eE][+-]?[0-9]{1,2})?"
_WHOLE_NUMBER = r"(?:0|-?[1-9][0-9]{0,17})"
_WORD = r"(?:true|false|null)"

_LABEL = core_schema.nullable_schema(
    core_schema.union_schema(
        [core_schema.str_schema(strict=True), core_schema.int_schema(strict=True, ge=-(2**63), lt=2**64)]
    )
)
_LABELS = core_schema.union_schema([core_schema.list_schema(_LABEL, strict=True), _LABEL])
_VALUE = core_schema.nullable_schema(core_schema.float_schema(strict=True))
_TIME = core_schema.nullable_schema(core_schema.str_schema(strict=True))


@dataclass(frozen=True, slots=True)
class _Form:
    """A pattern that records fit, and between which quotes the wanted columns lie."""

    pattern: str
    places: dict[str, int]
    width: int


class JsonReader:
    """Reads JSON texts into the columns that are wanted.

    >>> reader = JsonReader(Wanted(labels={"drug": False}))
    >>> piece = reader.read(pl.Series([1, 2, 3]), pl.Series(['{"drug": "aspirin"}', "{", '{"drug": 7}']))
    >>> piece.columns["drug"].to_list(), piece.refused["line"].to_list()
    (['aspirin', '7'], [2])
    """

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._validator = _validator(wanted)
        self._forms: list[_Form] = []

    def read(self, numbers: pl.Series, texts: pl.Series) -> Piece:
        """The rows of texts, in their order, and what is refused of them."""
        left = pl.DataFrame({"line": numbers.cast(pl.Int64), "text": texts})
        pieces: list[Piece] = []
        forms, self._forms = self._forms, []
        for form in forms:
            # A form that no record has any more makes room.
            left = self._cut(form, left, pieces)
        for number in range(_TRIES):
            if not left.height or len(self._forms) == MOST_FORMS:
                break
            # From here and there, since the first of all may be like no other.
            learned = _form_of(left["text"][number * left.height // _TRIES], self._wanted)
            if learned is not None:
                left = self._cut(learned, left, pieces)
        if left.height or not pieces:
            pieces.append(self._parsed(left))
        return pieces[0] if len(pieces) == 1 else _in_order(pieces)

    def _cut(self, form: _Form, left: pl.DataFrame, pieces: list[Piece]) -> pl.DataFrame:
        if not left.height:
            return left
        fits = left["text"].str.contains(form.pattern).fill_null(value=False)
        if fits.any():
            self._forms.append(form)
            every = fits.all()
            pieces.append(self._cut_all(form, left if every else left.filter(fits)))
            left = left.clear() if every else left.filter(~fits)
        return left

    def _cut_all(self, form: _Form, rows: pl.DataFrame) -> Piece:
        wanted, cuts = self._wanted, pl.DataFrame()
        if form.places:
            cuts = pl.read_csv(
                rows["text"].str.join("\n").item().encode(),
                has_header=False,
                separator='"',
                quote_char=None,
                empty_string_is_null=False,
                schema={str(place): pl.String for place in range(form.width)},
                columns=sorted(set(form.places.values())),
            )
            if cuts.height != rows.height:
                raise InputError("records must be read one by one, got another number of them; please report this")

        def cut(name: str) -> pl.Series:
            place = form.places[name]
            # Keys, and with them texts, lie at odd places; a number lies with the signs around it.
            column = cuts[str(place)].alias(name)
            return column if place % 2 else column.str.strip_chars(":,} \t")

        return Piece(
            lines=rows["line"],
            columns=pl.DataFrame(
                [
                    *(_in_lists(cut(name)) if lists else cut(name) for name, lists in wanted.labels.items()),
                    *(cut(name).cast(pl.Float64) for name in wanted.values),
                ]
            ),
            times=pl.repeat(None, rows.height, eager=True, dtype=pl.String)
            if wanted.time is None
            else cut(wanted.time),
            refused=pl.DataFrame(schema=REFUSED),
        )

    def _parsed(self, left: pl.DataFrame) -> Piece:
        wanted, validate = self._wanted, self._validator.validate_json
        numbers, rows, refused = [], [], []
        for number, text in zip(left["line"].to_list(), left["text"].to_list(), strict=True):
            if text is None:
                refused.append((number, _NO_OBJECT))
                continue
            try:
                rows.append(validate(text))
                numbers.append(number)
            except ValidationError as fault:
                if text.strip():
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


def _in_order(pieces: list[Piece]) -> Piece:
    lines = pl.concat([piece.lines for piece in pieces])
    order = lines.arg_sort()
    columns = pl.concat([piece.columns for piece in pieces])
    return Piece(
        lines=lines.gather(order),
        columns=columns[order] if columns.width else columns,
        times=pl.concat([piece.times.alias("") for piece in pieces]).gather(order),
        refused=pl.concat([piece.refused for piece in pieces]).sort("line"),
    )


def _form_of(text: str | None, wanted: Wanted) -> _Form | None:
    """The form of a record that can be cut; None if it is to be parsed."""
    if text is None or len(text) > _LONGEST_LEARNED or "\\" in text:
        return None
    try:
        pairs = json.loads(text, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        return None
    if not isinstance(pairs, _Pairs) or len(pairs) > _MOST_FIELDS or len({key for key, _ in pairs}) < len(pairs):
        return None
    parts, places, base = [], {}, 0
    for key, value in pairs:
        kind = _kind_of(key, value, wanted)
        if kind is None:
            return None
        is_text = isinstance(value, str)
        if key in wanted.names:
            places[key] = base + (3 if is_text else 2)
        base += 4 if is_text else 2
        parts.append(rf'{_SPACE}"{re.escape(key)}"{_SPACE}:{_SPACE}{kind}{_SPACE}')
    if len(places) < len(wanted.names):
        return None
    pattern = rf"^{_SPACE}\{{{','.join(parts) or _SPACE}\}}{_SPACE}$"
    if not re.search(pattern, text):
        return None
    return _Form(pattern, places, base + 1)


class _Pairs(list[tuple[str, Any]]):
    """An object as it was written."""


def _kind_of(key: str, value: object, wanted: Wanted) -> str | None:
    """The pattern of a field's value; None if records with such a field are parsed."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if key == wanted.time and not isinstance(value, str):
        return None
    if key in wanted.labels:
        return _TEXT if isinstance(value, str) else _WHOLE_NUMBER if is_number and isinstance(value, int) else None
    if key in wanted.values:
        return _NUMBER if is_number else None
    if isinstance(value, str):
        return _TEXT
    if is_number:
        return _ANY_NUMBER
    return _WORD if value is None or isinstance(value, bool) else None


def _in_lists(column: pl.Series) -> pl.Series:
    return pl.select(pl.concat_list(column).alias(column.name)).to_series()


def _validator(wanted: Wanted) -> SchemaValidator:
    columns = {name: _LABELS if lists else _LABEL for name, lists in wanted.labels.items()}
    columns |= dict.fromkeys(wanted.values, _VALUE) | ({} if wanted.time is None else {wanted.time: _TIME})
    fields = {name: core_schema.typed_dict_field(schema) for name, schema in columns.items()}
    return SchemaValidator(core_schema.typed_dict_schema(fields, extra_behavior="ignore"))


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


_NO_OBJECT = "a line must be a JSON object in UTF-8"


def _reason(fault: ValidationError, wanted: Wanted) -> str:
    """What must hold. The fault's own message would show what came."""
    first = fault.errors(include_url=False, include_input=False, include_context=False)[0]
    if not first["loc"]:
        return _NO_OBJECT
    name = str(first["loc"][0])
    if first["type"] == "missing":
        return f"column {name!r} must be given"
    if name == wanted.time:
        return f"column {name!r} must be a date-time as an ISO 8601 text"
    if name in wanted.values:
        return f"column {name!r} must be a number"
    lists = " or a list of these" if wanted.labels[name] else ""
    return f"column {name!r} must be a text or a whole number{lists}"
