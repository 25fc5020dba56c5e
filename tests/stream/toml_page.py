"""The tables of docs/toml.md that are about units and queries, from their fields and what stands below these.

`python -m tests.stream.toml_page` writes them; a test compares.
"""

import dataclasses
from pathlib import Path
from typing import Any

from pianissimo.queries import KINDS, Query
from pianissimo.stream.toml_table import field_docs
from pianissimo.unit import User

PAGE = Path(__file__).parents[2] / "docs" / "toml.md"
BEGIN, END = "<!-- fields -->", "<!-- end of fields -->"
HEAD = ["| field | unless given | meaning |", "| --- | --- | --- |"]


def toml_of(value: Any) -> str:
    """A default as it would stand in a file; nothing where leaving it out is the only way to say it."""
    if value is dataclasses.MISSING:
        return "must be given"
    if value is None:
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`{list(value)}`"
    return f'`"{value}"`' if isinstance(value, str) else f"`{value}`"


def rows_of(kind: Any, names: list[str], *, named: dict[str, str] | None = None) -> list[str]:
    """A line for each of these fields of a class."""
    docs, fields = field_docs(kind), {each.name: each for each in dataclasses.fields(kind)}
    called = {name: (named or {}).get(name, name) for name in names}
    return [f"| `{called[name]}` | {toml_of(fields[name].default)} | {docs[name]} |" for name in names]


def own_fields(kind: Any) -> list[str]:
    common = {each.name for each in dataclasses.fields(Query)}
    return [each.name for each in dataclasses.fields(kind) if each.name not in common]


def written() -> str:
    """All tables in Markdown."""
    common = [each.name for each in dataclasses.fields(Query) if each.name != "name"]
    lines = ["", "## The unit", ""]
    lines += ['`unit = "event"`, the default, hides one event. A table hides a user:', "", *HEAD]
    lines += rows_of(User, [each.name for each in dataclasses.fields(User)], named={"column": "user"})
    lines += [
        "",
        "## Every query",
        "",
        "`kind` says which one it is, and must be given. Beside it every query may have:",
        "",
    ]
    lines += [*HEAD, *rows_of(Query, common)]
    for kind in KINDS:
        lines += ["", f'### `kind = "{kind.kind}"`', ""]
        lines += [f"`pp.{kind.__name__}` in Python: {' '.join((kind.__doc__ or '').split('.')[0].split())}.", ""]
        lines += [*HEAD, *rows_of(kind, own_fields(kind))] if own_fields(kind) else ["It has no other fields."]
    return "\n".join([*lines, "", ""])


def on_page() -> str:
    """What stands in the page."""
    return PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]


if __name__ == "__main__":
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{written()}{END}{rest.partition(END)[2]}", encoding="utf-8")
