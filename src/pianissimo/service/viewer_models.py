"""What viewers are told, as the schema of the API has it."""

from typing import Any

from pydantic import BaseModel, Field


class Fault(BaseModel):
    """What went wrong."""

    code: str
    message: str


class Refusal(BaseModel):
    """The body of every error."""

    error: Fault


class QueryTold(BaseModel):
    """A query of a stream."""

    name: str
    kind: str
    called: str
    every: int
    per: int | None
    labels: bool | None
    watched: bool
    never_below_zero: bool
    about: str
    words: list[str]
    threshold: int | None
    no_windows: str | None


class StreamTold(BaseModel):
    """A stream and where it stands."""

    name: str
    incarnation: str
    tick: int = Field(ge=0)
    first_tick: int
    oldest_tick: int
    last_tick: int | None
    tick_length: str | None
    origin: str | None
    time_zone: str | None
    start: str | None
    end: str | None
    publish_after: str | None
    next_publication: str | None
    coverage: float
    unit: str
    hides: str
    promise: dict[str, Any]
    budget: dict[str, Any]
    queries: list[QueryTold]


class StreamList(BaseModel):
    """All streams that a token is for."""

    streams: list[StreamTold]


class StoredBytes(BaseModel):
    """One release, as it was stored."""

    stream: str
    incarnation: str
    tick: int
    start: str | None = None
    end: str | None = None
    since: dict[str, str | int] = {}
    coverage: float
    columns: dict[str, dict[str, str]]
    releases: dict[str, list[dict[str, Any]]]


class BudgetTold(BaseModel):
    """What was charged for the data set."""

    stream: str
    available: bool
    cap: dict[str, float | None] | None
    spent: dict[str, float | None] | None
    left: dict[str, float | None] | None
    charges: list[dict[str, Any]]


class HistoryPage(BaseModel):
    """Some ticks: whole releases, or the rows of one query."""

    stream: str
    query: str | None = None
    from_: int = Field(alias="from")
    to: int
    next: int | None
    releases: list[StoredBytes] | None = None
    columns: dict[str, str] | None = None
    rows: list[dict[str, Any]] | None = None


class WindowTold(BaseModel):
    """What some ticks added."""

    from_: int = Field(alias="from")
    to: int
    start: str | None = None
    end: str | None = None
    releases: dict[str, list[dict[str, Any]]]


class WindowList(BaseModel):
    """One window, or several of one length in a row; `next` tells after which tick the next page begins."""

    stream: str
    coverage: float
    without: dict[str, str]
    next: int | None
    windows: list[WindowTold]


class AlarmList(BaseModel):
    """What rang at some ticks."""

    stream: str
    from_: int = Field(alias="from")
    to: int
    next: int | None
    alarms: list[dict[str, Any]]
    exhausted: dict[str, int | None]
