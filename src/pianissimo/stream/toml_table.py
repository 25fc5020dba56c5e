"""Tables of a TOML file, read field by field. Every fault is told, with its field, what must hold and what came."""

import ast
import difflib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from datetime import date, time
from functools import cache
from pathlib import Path
from typing import Any

from pianissimo.errors import ParameterError

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

    def inner(self, name: str, *, is_hidden: bool = False) -> "TomlTable | None":
        """The table under a name; None, and a fault, if something else stands there."""
        value, hidden = self.content.get(name), self._is_hidden or is_hidden
        if not isinstance(value, dict):
            self.fault(f"must be a table, got {'something else' if hidden else shown(value)}", name)
            return None
        return TomlTable(self.faults, (*self._path, name), value, is_hidden=hidden)

    def read(self, readers: Mapping[str, Reader], required: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The values of the fields that are given and sound; `required` says what each required one is."""
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
    """A text that is not empty.

    >>> text("shop")
    'shop'
    """
    if not isinstance(value, str) or not value:
        raise ParameterError(f"must be a text, got {shown(value)}")
    return value


def flag(value: object) -> bool:
    """True or false.

    >>> flag(True)
    True
    """
    if not isinstance(value, bool):
        raise ParameterError(f"must be true or false, got {shown(value)}")
    return value


def one_of(*words: str) -> Reader:
    """One of some words.

    >>> one_of("count", "drop")("count")
    'count'
    """

    def read(value: object) -> object:
        if value not in words:
            *most, last = map(repr, words)
            raise ParameterError(f"must be {', '.join(most)} or {last}, got {shown(value)}")
        return value

    return read


def path_from(folder: Path, name: str) -> Path:
    """A path found from a folder. What stands there is not shown: it may be something that belongs elsewhere.

    >>> path_from(Path("/data"), "events.csv").name
    'events.csv'
    """
    if "\0" in name:
        raise ParameterError("must be a path, got a text with a NUL in it")
    return folder / name


def listed(names: Iterable[str]) -> str:
    """Names one after the other.

    >>> listed(["a", "b"])
    "'a', 'b'"
    """
    return ", ".join(map(repr, names))


def shown(value: object) -> str:
    """A value as it stands in TOML, cut to a readable length.

    >>> shown({"a": True})
    '{ a = true }'
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        words = "{ " + ", ".join(f"{name} = {shown(each)}" for name, each in value.items()) + " }" if value else "{}"
    else:
        words = value.isoformat() if isinstance(value, date | time) else repr(value)
    return words if len(words) <= _LONGEST_SHOWN else words[:_LONGEST_SHOWN] + "..."


@cache
def field_docs(kind: Any) -> dict[str, str]:
    """What the docstrings of a dataclass's fields say, those of the classes it stands on included.

    >>> from pianissimo.queries import Histogram
    >>> field_docs(Histogram)["name"]
    'What the release is called.'
    """
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__[:-1]):
        try:
            body: Any = ast.parse(textwrap.dedent(inspect.getsource(each))).body[0]
        except (OSError, TypeError):  # without its source a class has no docstrings of fields
            continue
        for field, below in zip(body.body, body.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
                found[ast.unparse(field.target)] = inspect.cleandoc(str(ast.literal_eval(below.value)))
    return {each.name: found.get(each.name, "") for each in fields(kind)}
