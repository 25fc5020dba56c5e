"""The routes of viewers: what a stream released, its plan and its budget, and the page that shows them.

Every answer is a function of the request, the visible releases, the plan and the tokens. The gate has checked the token
and the stream before a route is asked.
"""

import io
import json
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

import polars as pl
from fastapi import APIRouter, Header, Path, Query, Request, Response
from pydantic import BaseModel

from pianissimo.errors import PianissimoError
from pianissimo.io.folder import plain_text, with_tick
from pianissimo.service.answers import documented, is_known, tag_of
from pianissimo.service.gate import GateError, stored_headers
from pianissimo.service.library import Library
from pianissimo.service.pushed import PushedReleases
from pianissimo.service.room import BusyError
from pianissimo.service.shelf import Shelf, as_json
from pianissimo.service.viewer_models import (
    AlarmList,
    BudgetTold,
    HistoryPage,
    StoredBytes,
    StreamList,
    StreamTold,
    WindowList,
)
from pianissimo.stream.release import table_of

MOST_TICKS = 1000
"""Ticks of one page of the history."""

MOST_BYTES = 16 << 20
"""Bytes of the releases of one page, unless a single one has more."""

MOST_WINDOWS_AT_ONCE = 240
MOST_READERS = 4096
"""Who may wait for the next tick at once, in one process."""

_LARGEST_TICK = 2**53
_TYPES = {
    "json": "application/json",
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
    "arrow": "application/vnd.apache.arrow.stream",
}
_NAME = r"^[A-Za-z0-9_-]{1,64}$"
StreamName = Annotated[str, Path(pattern=_NAME, description="The name of the stream.")]
QueryName = Annotated[str | None, Query(pattern=_NAME, description="One query alone.")]
TickNumber = Annotated[int, Path(ge=1, le=_LARGEST_TICK)]
TickAsked = Annotated[int | None, Query(ge=0, le=_LARGEST_TICK)]
_Found = TypeVar("_Found")


_USUAL = documented(400, 401, 403, 404, 405, 421, 429, 503)


def _answers(model: type[BaseModel], **content: Any) -> dict[int | str, dict[str, Any]]:
    return {**_USUAL, 200: {"model": model, **({"content": content} if content else {})}}


class ViewerRoutes:
    """What viewers may ask of a library."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._kept = "public" if library.public else "private"
        self._readers = 0
        self.router = APIRouter(prefix="/v1/streams", tags=["viewer"])
        get: Callable[..., Any] = self.router.get
        get("", responses=_answers(StreamList), response_class=Response)(self.streams)
        get("/{name}", responses=_answers(StreamTold), response_class=Response)(self.stream)
        get("/{name}/plan", responses={**_USUAL, 200: _OBJECT}, response_class=Response)(self.plan)
        get("/{name}/budget", responses=_answers(BudgetTold), response_class=Response)(self.budget)
        get("/{name}/releases/{tick}", responses=_answers(StoredBytes), response_class=Response)(self.release)
        others: dict[str, Any] = {_TYPES[each].partition(";")[0]: {} for each in ("csv", "parquet", "arrow")}
        history = _answers(HistoryPage, **others, **{"text/event-stream": {}})
        get("/{name}/releases", responses=history, response_class=Response)(self.releases)
        get("/{name}/windows", responses=_answers(WindowList), response_class=Response)(self.windows)
        get("/{name}/alarms", responses=_answers(AlarmList), response_class=Response)(self.alarms)

    async def streams(self, request: Request) -> Response:
        """The streams that the token is for, and where each stands."""
        grant = request.scope["state"].get("grant")
        shown = [each for name, each in self._library.shelves.items() if grant is None or grant.covers(name)]
        return self._fresh(request, b'{"streams":[' + b",".join(shelf.seen.body for shelf in shown) + b"]}")

    async def stream(self, request: Request, name: StreamName) -> Response:
        """One stream: its promise, its queries, and where it stands."""
        return self._fresh(request, self._shelf(name).seen.body)

    async def plan(self, request: Request, name: StreamName) -> Response:
        """The plan that was chosen before any data, with mechanisms, theorems and what else would have fitted."""
        return self._fresh(request, self._shelf(name).seen.plan_body)

    async def budget(self, request: Request, name: StreamName) -> Response:
        """The ledger of the data set: its cap, what is spent and what is left, and who was charged when."""
        return self._fresh(request, as_json(await self._work(self._shelf(name).budget)))

    async def release(self, request: Request, name: StreamName, tick: TickNumber) -> Response:
        """The stored bytes of one release, for ever the same. A tick that may not be seen is as one that never was."""
        found = await self._work(self._shelf(name).release, tick)
        if found is None:
            raise GateError(404)
        return self._lasting(request, found.payload, f'"{found.digest.hex()}"')

    async def releases(
        self,
        request: Request,
        name: StreamName,
        after: Annotated[TickAsked, Query(description="Send all after this tick, then each as it comes (SSE).")] = None,
        from_: Annotated[TickAsked, Query(alias="from", description="The first tick of the history.")] = None,
        to: Annotated[TickAsked, Query(description="Its last tick.")] = None,
        last: Annotated[int | None, Query(ge=1, le=MOST_TICKS, description="So many of the last ticks.")] = None,
        query: QueryName = None,
        format: Literal["json", "csv", "parquet", "arrow"] = "json",  # noqa: A002
        last_event_id: Annotated[str | None, Header()] = None,
    ) -> Response:
        """The history of releases in bounded pages; with `after`, releases pushed as server-sent events."""
        shelf = self._shelf(name)
        if after is not None:
            if any(each is not None for each in (from_, to, last, query)):
                raise GateError(400, "after must be given alone, got from, to, last or query with it")
            goes_on = last_event_id is not None and last_event_id.isascii() and last_event_id.isdigit()
            return self._pushed(shelf, int(last_event_id[:15]) if goes_on and last_event_id else after)
        if last is not None and (from_ is not None or to is not None):
            raise GateError(400, "last must be given without from and to, got both")
        if query is None and format != "json":
            raise GateError(400, "query must be given for a table, got none")
        seen = shelf.seen
        end = seen.tick if to is None else min(to, seen.tick)
        begin = max(seen.oldest, end - last + 1 if last is not None else from_ or 0)
        if query is None:
            body, following = await self._work(_whole_page, shelf, begin, end)
        else:
            known = {each["name"] for each in seen.told["queries"]} | set(seen.columns)
            if query not in known:
                raise GateError(404)
            body, following = await self._work(_query_page, shelf, begin, end, query, format)
        answer = self._fresh(request, body, _TYPES[format])
        if query is not None and format != "json":
            file = f"{name}-{query}-{begin}-{(following or end + 1) - 1}.{format}"
            answer.headers["content-disposition"] = f'attachment; filename="{file}"'
        if following is not None:
            link = f"/v1/streams/{name}/releases?from={following}&to={end}&format={format}"
            answer.headers["link"] = f'<{link}{"" if query is None else f"&query={query}"}>; rel="next"'
        return answer

    def _pushed(self, shelf: Shelf, after: int) -> Response:
        if self._readers >= MOST_READERS:
            raise GateError(503)
        routes = self

        class _Counted(PushedReleases):
            async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
                routes._readers += 1
                try:
                    await super().__call__(scope, receive, send)
                finally:
                    routes._readers -= 1

        return _Counted(self._library, shelf, after)

    async def windows(
        self,
        request: Request,
        name: StreamName,
        from_: Annotated[int, Query(alias="from", ge=0, le=_LARGEST_TICK, description="What came after this tick.")],
        to: Annotated[int, Query(ge=1, le=_LARGEST_TICK, description="Up to this one.")],
        step: Annotated[int | None, Query(ge=1, le=_LARGEST_TICK, description="Cut into windows so long.")] = None,
        query: QueryName = None,
    ) -> Response:
        """What ticks added: the difference of two stored releases, with the bars of this difference."""
        shelf = self._shelf(name)
        length = to - from_ if step is None else step
        if not from_ < to or (to - from_) % length or (to - from_) // length > MOST_WINDOWS_AT_ONCE:
            raise GateError(
                400,
                f"from must be before to, by a multiple of step, and at most {MOST_WINDOWS_AT_ONCE} windows be asked "
                "for, got another",
            )
        body = await self._work(_windows, shelf, range(from_, to, length), query)
        if body is None:
            raise GateError(404)
        return self._lasting(request, body, tag_of(body))

    async def alarms(
        self,
        request: Request,
        name: StreamName,
        from_: Annotated[TickAsked, Query(alias="from", description="The first tick.")] = None,
        to: Annotated[TickAsked, Query(description="The last tick.")] = None,
    ) -> Response:
        """What alarms and trends reported, in bounded pages; and how many users at most had no charge left."""
        shelf = self._shelf(name)
        seen = shelf.seen
        end = seen.tick if to is None else min(to, seen.tick)
        begin = max(seen.oldest, from_ or 0)
        last = min(end, begin + MOST_TICKS - 1)
        rang, exhausted = await self._work(shelf.alarms, begin, last)
        following = last + 1 if last < end else None
        told = {"stream": name, "from": begin, "to": last, "next": following, "alarms": rang, "exhausted": exhausted}
        return self._fresh(request, as_json(told))

    def _shelf(self, name: str) -> Shelf:
        return self._library.shelves[name]

    async def _work(self, do: Callable[..., _Found], *args: Any) -> _Found:
        try:
            return await self._library.at_work(do, *args)
        except (BusyError, PianissimoError):
            raise GateError(503) from None

    @staticmethod
    def _fresh(request: Request, body: bytes, kind: str = _TYPES["json"]) -> Response:
        """An answer that a client may keep if it asks each time whether it is still good."""
        tag = tag_of(body)
        headers = {"etag": tag, "cache-control": "no-cache"}
        if is_known(tag, request.headers.get("if-none-match")):
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers, media_type=kind)

    def _lasting(self, request: Request, body: bytes, tag: str) -> Response:
        """An answer that never changes."""
        headers = {name.decode(): value.decode() for name, value in stored_headers(tag, self._kept.encode())}
        if is_known(tag, request.headers.get("if-none-match")):
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers, media_type=_TYPES["json"])


_OBJECT = {"description": "The plan, as plain data.", "content": {"application/json": {"schema": {"type": "object"}}}}


def _whole_page(shelf: Shelf, begin: int, end: int) -> tuple[bytes, int | None]:
    """Stored bytes as they are, one after the other; and where the next page begins."""
    found, size, following = list[bytes](), 0, None
    for stored in shelf.releases(begin, end):
        if len(found) == MOST_TICKS or (found and size + len(stored.payload) > MOST_BYTES):
            following = stored.tick
            break
        found.append(stored.payload)
        size += len(stored.payload)
    told = {"stream": shelf.name, "from": begin, "to": (following or end + 1) - 1, "next": following}
    return as_json(told)[:-1] + b',"releases":[' + b",".join(found) + b"]}", following


def _query_page(shelf: Shelf, begin: int, end: int, query: str, format: str) -> tuple[bytes, int | None]:  # noqa: A002
    """The rows of one query at some ticks, and where the next page begins."""
    tables, size, ticks, following = [], 0, 0, None
    for stored in shelf.releases(begin, end):
        if ticks == MOST_TICKS or (ticks and size + len(stored.payload) > MOST_BYTES):
            following = stored.tick
            break
        table = table_of(stored.payload, query)
        ticks, size = ticks + 1, size + len(stored.payload)
        if table is not None:
            tables.append(with_tick(stored.tick, table))
    whole = pl.concat(tables, how="diagonal_relaxed") if tables else pl.DataFrame({"tick": []}, {"tick": pl.Int64})
    if format == "json":
        told = {"stream": shelf.name, "query": query, "from": begin, "to": (following or end + 1) - 1}
        columns = {name: str(kind) for name, kind in whole.schema.items()}
        rows = json.dumps(told)[:-1] + f', "next": {json.dumps(following)}, "columns": {json.dumps(columns)}, "rows": '
        return rows.encode() + as_json(whole.to_dicts()) + b"}", following
    if format == "csv":
        return whole.with_columns(plain_text(whole)).write_csv().encode(), following
    output = io.BytesIO()
    if format == "parquet":
        whole.write_parquet(output)
    else:
        whole.write_ipc_stream(output)
    return output.getvalue(), following


def _windows(shelf: Shelf, starts: range, query: str | None) -> bytes | None:
    """The windows that begin after some ticks, each as long as they are apart."""
    found, without, size, following = list[bytes](), dict[str, str](), 0, None
    for begin in starts:
        window = shelf.window(begin, begin + starts.step)
        if window is None:
            return None
        body = window.body(query)
        if found and size + len(body) > MOST_BYTES:
            following = begin
            break
        found.append(body)
        size += len(body)
        without |= window.without
    told = {"stream": shelf.name, "coverage": shelf.seen.told["coverage"], "without": without, "next": following}
    return as_json(told)[:-1] + b',"windows":[' + b",".join(found) + b"]}"
