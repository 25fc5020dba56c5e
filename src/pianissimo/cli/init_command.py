"""`pianissimo init`: a stream file with comments, from a few answers. Of the data it reads the names of columns alone.

What is promised and what is public (range, origin, tick) must not be read off the data, so it is asked for. Flags
answer beforehand; where nobody can be asked, what was not given is left at its default.
"""

import json
import re
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import click

from pianissimo.cli import PATH, arguments, plan_of
from pianissimo.errors import InputError, ParameterError, SpecError

_DELIMITERS = (",", ";", "\t", "|")
_LONGEST_HEADER = 2**16
_RANGE = re.compile(r"(?P<column>.+)=(?P<low>[-+.\deE]+?)\.\.(?P<high>[-+.\deE]+)")
_TIME_NAMES = (
    "time",
    "timestamp",
    "ts",
    "datetime",
    "date_time",
    "date",
    "when",
    "created_at",
    "created",
    "event_time",
)
_TIME_ENDS = ("_time", "_at", "_ts", "_timestamp", "_datetime", "_date", " time", " date")
"""A column of times is called so, or its name ends so and that of no other does."""

_NONE = "none"


@dataclass(frozen=True, slots=True)
class Answers:
    """What a new stream file is made of."""

    name: str
    epsilon: float
    delta: float
    tick: str
    horizon: str
    time_zone: str
    origin: str
    data: str
    delimiter: str
    time: str
    time_format: str
    user: str | None
    keys: tuple[str, ...]
    sums: tuple[tuple[str, float, float], ...]


@click.command()
@click.argument("file", type=PATH)
@click.option(
    "--csv", "data", type=PATH, help="A CSV file of your events. The names of its columns are read, no value."
)
@click.option("--name", help="What the stream is called.  [default: the name of FILE]")
@click.option("--time", help="The column that says when an event happened.")
@click.option("--time-format", help='How times are written: iso, epoch_s, epoch_ms, or such as "%d/%m/%Y %H:%M".')
@click.option("--user", help="The column that names a user, who is then hidden with all her events.")
@click.option(
    "--count-by", "keys", multiple=True, metavar="COLUMN", help="Count each label of this column. Repeatable."
)
@click.option(
    "--sum",
    "sums",
    multiple=True,
    metavar="COLUMN=LOW..HIGH",
    help="Add up a column of numbers, each cut to a public range, such as price=0..50. Repeatable.",
)
@click.option("--tick", help="How often something is released, such as 15m, 1h or 1d.")
@click.option("--horizon", help="How long it goes on, such as 30d.")
@click.option(
    "--time-zone",
    help="Whose days and clocks ticks follow, and times without an offset, such as Europe/Berlin.  [default: UTC]",
)
@click.option(
    "--origin",
    help="When the first tick begins, such as 2026-01-05T00:00:00Z; without an offset by the clocks of the time zone.",
)
@click.option("--epsilon", type=float, help="The privacy budget of the whole run: see docs/epsilon.md.")
@click.option("--delta", type=float, help="The small chance that goes with it.")
@click.option("--yes", is_flag=True, help="Ask nothing: what is not given is left at its default.")
def init(*, file: Path, data: Path | None, yes: bool, **given: object) -> None:
    """Write a new stream FILE, with comments, from a few answers.

    Nothing is asked about the values of your data, and none is read: of a CSV file the line with the names of the
    columns is. What `init` writes, `plan`, `check` and `run` accept.
    """
    if file.exists():
        raise InputError(f"FILE must be a new file, got {file}, which exists; take another name or move it away")
    columns, delimiter = _header(data) if data is not None else ([], ",")
    asking = _Asking(columns, is_asked=not yes and somebody_is_there())
    answers = _answers(asking, file, (data, delimiter), given)
    try:
        file.write_text(stream_file_text(answers), encoding="utf-8")
    except OSError as fault:
        raise InputError(f"FILE must be in a folder that can be written, got {file}: {fault.strerror}") from None
    try:
        from pianissimo.stream.spec import load_spec

        plan = plan_of(load_spec(file), file)
    except (SpecError, ParameterError):
        file.unlink()
        raise
    click.echo(f"{plan}\n\nWritten: {file}. Next:\n")
    for command, about in (
        ("plan", "what it promises; change the file and look again"),
        ("check", "can the data be read? For the owner's eyes: not private"),
        ("run", "release it; the same command goes on after a stop"),
    ):
        click.echo(f"  pianissimo {command:5} {file}   # {about}")


def somebody_is_there() -> bool:
    """Whether questions can be answered: standard input is a terminal."""
    return sys.stdin.isatty()


class _Asking:
    """Takes what a flag gave, or else asks, or else takes the default."""

    def __init__(self, columns: list[str], *, is_asked: bool) -> None:
        self._columns = columns
        self._is_asked = is_asked
        if is_asked and columns:
            click.echo(f"Columns: {', '.join(columns)}")

    def text(self, given: object, question: str, default: str) -> str:
        if given is not None or not self._is_asked:
            return default if given is None else str(given)
        return str(click.prompt(question, default=default))

    def number(self, given: object, question: str, default: float) -> float:
        if given is not None or not self._is_asked:
            return float(str(default if given is None else given))
        return float(click.prompt(question, default=default, type=float))

    def column(self, given: object, question: str, default: str, *, flag: str) -> str:
        found = self.text(given, question, default)
        if self._columns and found not in (*self._columns, _NONE):
            got = "none that is called like a time" if given is None and not self._is_asked else repr(found)
            raise InputError(f"{flag} must name a column, one of {', '.join(self._columns)}, got {got}")
        return found

    def guess_time(self, otherwise: str) -> str:
        """The column that is called like one of these, or alone ends as those of times do, if there is one."""
        called = [column for name in _TIME_NAMES for column in self._columns if column.lower() == name]
        ended = [column for column in self._columns if column.lower().endswith(_TIME_ENDS)]
        return called[0] if called else ended[0] if len(ended) == 1 else otherwise


def _answers(ask: _Asking, file: Path, data: tuple[Path | None, str], given: dict[str, object]) -> Answers:
    from pianissimo.stream.calendar import zone_of

    path, delimiter = data
    name = ask.text(given["name"], "What is the stream called?", re.sub(r"\W+", "_", file.stem).strip("_") or "stream")
    time = ask.column(given["time"], "Which column says when an event happened?", ask.guess_time("time"), flag="--time")
    how = 'How are its times written? iso (2026-01-31 14:05), epoch_s, epoch_ms, or such as "%d/%m/%Y %H:%M"'
    time_format = ask.text(given["time_format"], how, "iso")
    user = ask.column(
        given["user"], "Which column names a user? She is hidden with all her events", _NONE, flag="--user"
    )
    keys = _several(given["keys"]) or [
        each.strip()
        for each in ask.text(None, "Whose labels shall be counted? Columns, with commas between", _NONE).split(",")
        if each.strip() != _NONE
    ]
    sums = _several(given["sums"]) or [
        each.strip()
        for each in ask.text(None, "What shall be added up? Such as price=0..50, a public range", _NONE).split(",")
        if each.strip() != _NONE
    ]
    # A relative path is found from where the stream file is.
    place = "events.csv" if path is None else str(path.resolve())
    if path is not None and path.resolve().is_relative_to(file.resolve().parent):
        place = path.resolve().relative_to(file.resolve().parent).as_posix()
    tick = ask.text(given["tick"], "How often is something released? Such as 15m, 1h, 1d", "1h")
    horizon = ask.text(given["horizon"], "How long does it go on? Such as 30d", "30d")
    zone = ask.text(given["time_zone"], "Whose days and clocks do ticks follow? UTC, or such as Europe/Berlin", "UTC")
    with arguments():
        now = datetime.now(zone_of(zone))
    today = now.strftime(f"%Y-%m-%dT00:00:00{'Z' if zone == 'UTC' else ''}")
    return Answers(
        name=name,
        tick=tick,
        horizon=horizon,
        time_zone=zone,
        origin=_moment(
            ask.text(given["origin"], "When does the first tick begin? Public, not read off the data", today)
        ),
        epsilon=ask.number(given["epsilon"], "Epsilon? 1 is a good start: docs/epsilon.md", 1.0),
        delta=ask.number(given["delta"], "Delta?", 1e-9),
        data=place,
        delimiter=delimiter,
        time=time,
        time_format=time_format,
        user=None if user == _NONE else user,
        keys=tuple(ask.column(each, "", "", flag="--count-by") for each in keys),
        sums=tuple(_summed(each, ask) for each in sums),
    )


def _several(given: object) -> list[str]:
    return [str(each) for each in given] if isinstance(given, tuple) else []


def _summed(text: str, ask: _Asking) -> tuple[str, float, float]:
    found = _RANGE.fullmatch(text)
    try:
        if found is not None:
            return ask.column(found["column"], "", "", flag="--sum"), float(found["low"]), float(found["high"])
    except ValueError:
        pass
    raise InputError(f"a sum must be a column and a public range, such as price=0..50, got {text!r}")


def _moment(text: str) -> str:
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise InputError(f"origin must be a time such as 2026-01-05T00:00:00Z, got {text!r}") from None
    return when.isoformat().replace("+00:00", "Z")


def _header(path: Path) -> tuple[list[str], str]:
    """The names of the columns and the sign between them, of the first line alone."""
    try:
        with path.open("rb") as file:
            line = file.readline(_LONGEST_HEADER).decode("utf-8-sig").strip("\r\n")
    except (OSError, UnicodeDecodeError) as fault:
        reason = fault.strerror if isinstance(fault, OSError) else "it is not UTF-8 text"
        raise InputError(f"the CSV file must be readable, got {path}: {reason}") from None
    delimiter = max(_DELIMITERS, key=line.count)
    columns = [name.strip().strip('"') for name in line.split(delimiter)]
    if not all(columns) or len(set(columns)) < len(columns):
        raise InputError("the first line of the CSV file must hold a different name for each column, got another line")
    return columns, delimiter


def stream_file_text(answers: Answers) -> str:
    """A stream file with comments.

    >>> when = "2026-01-05T00:00:00Z"
    >>> answers = Answers("shop", 1.0, 1e-9, "1h", "30d", "UTC", when, "shop.csv", ",", "time", "iso", None, (), ())
    >>> print(stream_file_text(answers).splitlines()[6])
    [stream]
    """
    whom = "one user with all her events" if answers.user else "one event: somebody with many is not hidden"
    lines = [
        f"# The private stream {answers.name}. Look at what it promises, check the data, release:",
        "#",
        "#     pianissimo plan FILE",
        "#     pianissimo check FILE",
        "#     pianissimo run FILE",
        "",
        "[stream]",
        f"name = {_quoted(answers.name)}",
        f"epsilon = {answers.epsilon!r}    # for all ticks and queries together; less is more private: docs/epsilon.md",
        f"delta = {answers.delta!r}    # the chance that this does not hold; far below 1 / (number of people)",
        f"tick = {_quoted(answers.tick)}    # how often something is released",
        f"horizon = {_quoted(answers.horizon)}    # how long it goes on; it cannot be made longer later",
        f"origin = {answers.origin}    # when the first tick begins; public, never read off the data",
        ('# time_zone = "Europe/Berlin"' if answers.time_zone == "UTC" else f"time_zone = {_quoted(answers.time_zone)}")
        + "    # whose days and clocks ticks follow, and times without an offset; UTC without it",
        f"# Hidden is {whom}.",
    ]
    if answers.user:
        lines += [
            "",
            "[stream.unit]",
            f"user = {_quoted(answers.user)}",
            "# max_events_per_user = 20    # how many events of a user count; without it a cap follows the stream",
            "# If the plan's error is too large for your numbers: docs/how_to.md has a list of what to try.",
            '# within = "1d"    # hide a user\'s events of one day, in statistics that begin anew each day',
        ]
    lines += [
        "",
        "[source]",
        f"path = {_quoted(answers.data)}    # found from where this file is",
        f"time = {_quoted(answers.time)}",
        f"time_format = {_quoted(answers.time_format)}    "
        '# or "epoch_s", "epoch_ms", or a pattern such as "%d/%m/%Y %H:%M"',
        f"# until = {answers.origin}    # only if the data end before the horizon: when the last tick ends; public",
    ]
    if answers.delimiter != ",":
        lines.append(f"delimiter = {_quoted(answers.delimiter)}")
    lines += ["", "[queries.events]    # how many events", 'kind = "count"']
    taken = {"events"}
    for key in answers.keys:
        lines += [
            "",
            f"[queries.{_query_name(key, taken)}]    # how many of each label; rare labels stay hidden",
            'kind = "histogram"',
            f"key = {_quoted(key)}",
            "# domain = [...]    # if all labels are known and public: each is shown, with a smaller error",
        ]
    for column, low, high in answers.sums:
        lines += [
            "",
            f"[queries.{_query_name(f'sum_of_{column}', taken)}]    # larger values count as the end of the range",
            'kind = "sum"',
            f"value = {_quoted(column)}",
            f"range = [{low:.15g}, {high:.15g}]    # public: what a value can be, not what it is",
            *(
                ['max_per_user = "auto"    # how much one user adds at most; it follows the stream']
                if answers.user
                else []
            ),
        ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    # A text of JSON is one of TOML.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _query_name(column: str, taken: set[str]) -> str:
    """A name that a query may have, made of a column's, and no other's."""
    plain = re.sub(r"[^A-Za-z0-9_]+", "_", column).strip("_").lower() or "labels"
    name, number = plain, 2
    while name in taken:
        name, number = f"{plain}_{number}", number + 1
    taken.add(name)
    return name
