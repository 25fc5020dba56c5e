"""Tables of a TOML file, read field by field. Every fault is told, with its field, what must hold and what came."""

import ast
import dataclasses
import difflib
import inspect
import re
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from pianissimo.budget import Budget
from pianissimo.checks import (
    check_at_least,
    check_name,
    check_positive,
    length_of,
    length_text,
    size_fault,
    whole_ticks_in,
)
from pianissimo.errors import ParameterError, SpecError
from pianissimo.labels import Domain, label_text
from pianissimo.loss.losses import Unit
from pianissimo.stream.calendar import as_utc
from pianissimo.unit import User

Reader = Callable[[Any], Any]
"""Makes a value of what stands in a field, or raises `ParameterError`."""

_LONGEST_SHOWN = 60


class TomlTable:
    """One table of a file, the faults of which it adds to those of all tables.

    >>> table = TomlTable([], ("stream",), {"tick": 3, "nam": "shop"})
    >>> table.read({"name": str, "tick": text})
    {}
    >>> print("; ".join(table.faults))
    stream.tick must be a text, got 3; stream.nam must be one of the fields 'name', 'tick', got 'nam'; ...
    """

    def __init__(
        self, faults: list[str], path: tuple[str, ...], content: Mapping[str, Any], *, is_hidden: bool = False
    ) -> None:
        self.faults = faults
        self.content = content
        self._path = path
        self._is_hidden = is_hidden

    def inner(self, name: str, about: str = "", *, is_hidden: bool = False) -> "TomlTable | None":
        """The table under a name; None, and a fault, if something else stands there, or nothing that is required.

        `about` says what a required table is.
        """
        value, hidden = self.content.get(name), self._is_hidden or is_hidden
        if name not in self.content:
            if about:
                self.fault(f"must be given, got nothing; it is {about}", name)
            return None
        if not isinstance(value, dict):
            self.fault(f"must be a table, got {'something else' if hidden else shown(value)}", name)
            return None
        return TomlTable(self.faults, (*self._path, name), value, is_hidden=hidden)

    def read(
        self,
        readers: Mapping[str, Reader],
        required: Mapping[str, str] | None = None,
        elsewhere: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """The values of the fields that are given and sound; `required` says what each required one is.

        `elsewhere` has fields that are none here, each with what to ask for instead.
        """
        found = {}
        for name, reader in readers.items():
            if name in self.content:
                try:
                    found[name] = reader(self.content[name])
                except ParameterError as refusal:
                    self.refuse(refusal, name)
            elif required and name in required:
                self.fault(f"must be given, got nothing; it is {required[name]}", name)
        for name in self.content:
            if name not in readers:
                near = difflib.get_close_matches(name, readers, n=1)
                way_out = f"; did you mean {near[0]!r}?" if near else ""
                if elsewhere and name in elsewhere:
                    way_out = f"; {elsewhere[name]}"
                self.fault(f"must be one of the fields {listed(readers)}, got {name!r}{way_out}", name)
        return found

    def choice(self, name: str, choices: Iterable[str]) -> str | None:
        """Which of some words stands in a field; None, and a fault, if it is none of them."""
        choices = list(choices)
        value = self.content.get(name)
        if isinstance(value, str) and value in choices:
            return value
        came = "something else" if self._is_hidden else shown(value)
        self.fault(f"must be one of {listed(choices)}, got {came if name in self.content else 'nothing'}", name)
        return None

    def refuse(self, refusal: ParameterError, name: str | None = None) -> None:
        """Tell why a value is refused; without a field's name, the message begins with one or is about several."""
        reason = str(refusal)
        if name is None:
            first = re.match(r"(\w+) (?=must )", reason)
            name = first[1] if first else None
        # Messages begin with "must" or with a parameter's name; this field's own is in the path already.
        reason = reason.removeprefix(f"{name} ")
        if self._is_hidden:
            reason = f"{reason.partition(', got ')[0]}, got something else"
        self.fault(reason, *([] if name is None else [name]))

    def fault(self, message: str, *names: str) -> None:
        """Tell a fault of this table, or of a field of it."""
        path = ".".join(part if re.fullmatch(r"[\w-]+", part) else repr(part) for part in (*self._path, *names))
        self.faults.append(f"{path} {message}" if message.startswith("must") else f"{path}: {message}")


def text(value: object) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value:
        raise ParameterError(f"must be a text, got {shown(value)}")
    return value


def flag(value: object) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ParameterError(f"must be true or false, got {shown(value)}")
    return value


def one_of(*words: str) -> Reader:
    """One of some words."""

    def read(value: object) -> object:
        if value not in words:
            *most, last = map(repr, words)
            raise ParameterError(f"must be {', '.join(most)} or {last}, got {shown(value)}")
        return value

    return read


def path_from(folder: Path, name: str) -> Path:
    """A path found from a folder. What stands there is not shown: it may be something that belongs elsewhere."""
    if "\0" in name:
        raise ParameterError("must be a path, got a text with a NUL in it")
    return folder / name


def listed(names: Iterable[str]) -> str:
    """Names one after the other."""
    return ", ".join(map(repr, names))


def shown(value: object) -> str:
    """A value as it stands in TOML, cut to a readable length."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        words = "{ " + ", ".join(f"{name} = {shown(each)}" for name, each in value.items()) + " }" if value else "{}"
    elif isinstance(value, int) and size_fault(value):
        words = "a number with more digits than can be read"
    else:
        words = value.isoformat() if isinstance(value, date | time) else repr(value)
    return words if len(words) <= _LONGEST_SHOWN else words[:_LONGEST_SHOWN] + "..."


@cache
def field_docs(kind: Any) -> dict[str, str]:
    """What the docstrings of a dataclass's fields say, in one line, those of the classes it stands on included."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__[:-1]):
        try:
            body: Any = ast.parse(textwrap.dedent(inspect.getsource(each))).body[0]
        except (OSError, TypeError):  # without its source a class has no docstrings of fields
            continue
        for field, below in zip(body.body, body.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
                found[ast.unparse(field.target)] = " ".join(str(ast.literal_eval(below.value)).split())
    return {each.name: found.get(each.name, "") for each in dataclasses.fields(kind)}


def kept(check: Callable[[Any], object]) -> Reader:
    """Keep what passes a check of parameters."""

    def keep(value: Any) -> Any:
        check(value)
        return value

    return keep


EPSILON_AND_DELTA: dict[str, Reader] = {
    "epsilon": kept(lambda value: check_positive(epsilon=value)),
    "delta": kept(lambda value: Budget(epsilon=1, delta=value)),
}


def field_readers(kind: Any) -> tuple[dict[str, Reader], Mapping[str, str]]:
    """How the fields of a query are read, and what those are that must be given; its name stands elsewhere."""
    own = [each for each in dataclasses.fields(kind) if each.name != "name"]
    required = _Required(kind, tuple(each.name for each in own if each.default is MISSING))
    return {each.name: _any_or(each) for each in own}, required


@dataclasses.dataclass(frozen=True, slots=True)
class _Required(Mapping[str, str]):
    """What the fields are that must be given: read from their source only where one of them is not."""

    kind: Any
    names: tuple[str, ...]

    def __getitem__(self, name: str) -> str:
        if name not in self.names:
            raise KeyError(name)
        said = field_docs(self.kind)[name]
        return f"{said[:1].lower()}{said[1:].removesuffix('.')}"

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self.names


def _any_or(field: dataclasses.Field[Any]) -> Reader:
    """What a query's field says: itself, or "any" where None is allowed and is not what is left out."""
    says_none = "None" in str(field.type) and field.default is not None and field.default is not MISSING
    return lambda value: None if says_none and value == "any" else value


def domain_from(folder: Path, value: object) -> Domain | list[Any]:
    """Labels that are listed, each with a part for each column of a key, or that stand in a file."""
    about = "must be a list of labels or a file with one label a line"
    if isinstance(value, list):
        parts = [each for label in value for each in (label if isinstance(label, list) else [label])]
        wrong = [label for label in parts if label_text(label) is None]
        if wrong:
            raise ParameterError(
                f"must be a list of texts, whole numbers, booleans or dates, got {shown(wrong[0])} in it"
            )
        return value if any(isinstance(label, list) for label in value) else Domain(value)
    if not isinstance(value, str) or not value:
        raise ParameterError(f"{about}, got {shown(value)}")
    try:
        lines = (folder / value).read_text(encoding="utf-8-sig").split("\n")
    except (OSError, ValueError) as fault:
        reason = fault.strerror if isinstance(fault, OSError) else "it is not UTF-8 text"
        raise ParameterError(f"{about}, got {value!r}: {reason}") from None
    return Domain([line for line in lines if line])


def is_name(table: TomlTable, name: str) -> bool:
    """Whether a table may be called so; a fault if not."""
    try:
        check_name(name=name)
    except ParameterError as refusal:
        table.fault(f"must have names, each {str(refusal).removeprefix('name must be ')}")
        return False
    return True


def unit_of(value: object) -> Unit | User:
    """Who is hidden."""
    if value == Unit.EVENT.value:
        return Unit.EVENT
    if not isinstance(value, dict):
        raise ParameterError(f"must be 'event' or {{ user = 'column' }}, got {shown(value)}")
    fields = dict(value)
    column = fields.pop("user", None)
    known = {each.name for each in dataclasses.fields(User)} - {"column"}
    unknown = [name for name in fields if name not in known]
    if unknown:
        raise ParameterError(f"must have the fields {listed(['user', *sorted(known)])}, got {unknown[0]!r}")
    return User(column, **fields)


def horizon_of(value: object) -> int | str | None:
    """A number of ticks, None, or a duration as it was written: what it is in ticks depends on the tick."""
    if value == "none":
        return None
    if isinstance(value, int):
        check_at_least(1, horizon=value)
        return value
    if not isinstance(value, str):
        raise ParameterError(
            f"must be a duration such as '365d', a whole number of ticks or 'none', got {shown(value)}"
        )
    length_of(value)
    return value


def history_of(value: object, tick: timedelta | str | None = None) -> int | str:
    """How far back windows reach: a number of ticks, or without a tick a duration as it was written."""
    if isinstance(value, int):
        check_at_least(0, history=value)
        return value
    if not isinstance(value, str):
        raise ParameterError(f"must be a whole number of ticks or a duration such as '7d', got {shown(value)}")
    length_of(value)
    return value if tick is None else whole_ticks(value, tick)


def whole_ticks(value: object, tick: timedelta | str) -> int:
    """How many ticks a length of time is."""
    count = whole_ticks_in(value, tick)
    if count is None:
        raise ParameterError(f"must be a whole number of ticks, got {shown(value)} with ticks of {length_text(tick)}")
    return count


def every_of(value: object, tick: timedelta | str | None, released: int, name: str = "every") -> int:
    """At every how many ticks a query is published, or of how many it tells."""
    if isinstance(value, int):
        check_at_least(1, **{name: value})
    elif not isinstance(value, str):
        raise ParameterError(f"must be a whole number of ticks or a duration such as '1h', got {shown(value)}")
    # Without a tick, the tick itself is at fault and named.
    ticks = value if isinstance(value, int) else whole_ticks(value, length_of(value) if tick is None else tick)
    if not ticks <= released:
        raise ParameterError(f"must be at most the {released} ticks that are released, got {ticks} ticks")
    return ticks


def moment_of(value: object, about: str = "a date-time") -> datetime:
    """A moment in UTC."""
    try:
        return as_utc(value)
    except (TypeError, ValueError, OverflowError):
        raise ParameterError(f"must be {about} such as 2026-01-31T12:00:00Z, got {shown(value)}") from None


def until_of(value: object) -> object:
    """The last tick, or the moment at which it ends, as it was written: it may be one of the stream's time zone."""
    if isinstance(value, int):
        check_at_least(1, until=value)
    else:
        moment_of(value, "a number of ticks or a date-time")
    return value


TIME_FORMATS = ("iso", "epoch_s", "epoch_ms", "epoch_us")


def time_format_of(value: object) -> str:
    """How times are written: a word, or a pattern that tells the day."""
    words = text(value)
    if words in TIME_FORMATS:
        return words
    moment = datetime(2026, 1, 31, 13, 45, tzinfo=UTC)
    try:
        tells = datetime.strptime(moment.strftime(words), words).date() == moment.date()
    except (ValueError, re.error):
        tells = False
    # Names of zones are passed over by whoever reads them; fractions that follow no point are read in two ways.
    if not tells or "%Z" in words or "%f" in words.replace(".%f", ""):
        raise ParameterError(
            f"must be one of {listed(TIME_FORMATS)} or a pattern of strptime that tells the day, such as "
            f"'%d/%m/%Y %H:%M:%S.%f' or '%Y-%m-%d %H:%M %z', got {shown(value)}"
        )
    return words


def share_of(value: object) -> float:
    """A share of all: a text such as "1%", or a number."""
    is_text = isinstance(value, str) and value.endswith("%")
    try:
        share = float(value[:-1]) / 100 if is_text else value  # type: ignore[index]
    except ValueError:
        share = None
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise ParameterError(f"must be a share such as '1%', or a number from 0 to 1, got {shown(value)}")
    return float(share)


def check_sizes(table: TomlTable) -> None:
    """Tell every number, however deep, that is beyond what any field takes."""

    def look(value: object, *names: str) -> None:
        if isinstance(value, dict):
            for name, each in value.items():
                look(each, *names, name)
        elif isinstance(value, list):
            for each in value:
                look(each, *names)
        elif isinstance(value, int | float) and not isinstance(value, bool) and (fault := size_fault(value)):
            table.fault(fault, *names)

    look(table.content)


def settings_of(value: object) -> dict[str, str]:
    """Settings of a client, as texts."""
    if not isinstance(value, dict) or not all(isinstance(each, str | int | bool) for each in value.values()):
        raise ParameterError('must be a table of texts such as { "sasl.username" = "me" }, got something else')
    return {name: str(each).lower() if isinstance(each, bool) else str(each) for name, each in value.items()}


def budget_of(table: TomlTable | None) -> Budget | None:
    """An epsilon with its delta; None where one of them is missing."""
    about = {"epsilon": "the budget of the data set, such as 4.0", "delta": "its delta, such as 1e-6"}
    found = {} if table is None else table.read(EPSILON_AND_DELTA, about)
    return Budget(**found) if len(found) == len(about) else None


def read_toml(path: Path) -> dict[str, Any]:
    """What stands in a file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as fault:
        raise spec_error(path, [f"must be a file that can be read, got: {fault.strerror}"]) from None
    except UnicodeDecodeError:
        raise spec_error(path, ["must be UTF-8 text, got other bytes"]) from None
    except (ValueError, RecursionError) as fault:
        # The parser's message ends in "(at line 3, column 9)". A number of thousands of digits has no place.
        what, _, where = str(fault).partition(" (at ")
        place = where.removesuffix(")") or "an unknown place"
        raise spec_error(path, [f"must be TOML, got a fault at {place}: {what}"]) from None


def spec_error(path: Path, messages: Any) -> SpecError:
    """All that is wrong with a file, one fault a line."""
    return SpecError("\n".join(f"{path}: {message}" for message in messages))
