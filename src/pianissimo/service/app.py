"""The application that serves viewers: routes behind their gate, the schema, and the static page."""

import threading
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

import pianissimo
from pianissimo.durable.durable_stream import DurableStream
from pianissimo.io.metrics import Metrics
from pianissimo.service.analyst import AnalystRoutes, AskedTable
from pianissimo.service.answers import is_known, refusal_body, refusal_headers, tag_of
from pianissimo.service.gate import Gate, GateError
from pianissimo.service.inbox import Inbox
from pianissimo.service.library import Library
from pianissimo.service.operator import OperatorRoutes
from pianissimo.service.tokens import Access, TokenFile
from pianissimo.service.viewer import ViewerRoutes
from pianissimo.service.viewer_models import Refusal
from pianissimo.service.writer import WriterRoutes

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".json": "application/json",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
    ".webmanifest": "application/manifest+json",
}
Made = Callable[[], bytes]
"""Makes the bytes of an answer."""


def viewer_app(
    places: Sequence[Path | str],
    *,
    tokens: TokenFile | None = None,
    public: bool = False,
    hosts: Collection[str] = (),
    embedded_in: Collection[str] = (),
    inboxes: Mapping[str, Inbox] | None = None,
    tables: Mapping[str, AskedTable] | None = None,
    beside: Mapping[str, Made] | None = None,
) -> Gate:
    """What serves the streams at some places to viewers: read-only, and without a secret.

    With `inboxes` writers may send events of these streams; with `tables` analysts may ask these. `hosts` are the names
    under which it is reached, beside those of this machine; `embedded_in` the origins whose pages may hold ours.
    `beside` has further paths with JSON that is made when it is asked for: of the demo alone.
    """
    library = Library(places, tokens=tokens, public=public)
    inboxes, tables = inboxes or {}, tables or {}
    routers = [ViewerRoutes(library).router]
    routers += [WriterRoutes(library, inboxes).router] if inboxes else []
    routers += [AnalystRoutes(library, tables).router] if tables else []
    names: dict[Access, Collection[str]] = {"writer": inboxes.keys(), "analyst": tables.keys()}
    return gated(library, routers, hosts=hosts, embedded_in=embedded_in, beside=beside, names=names)


def operator_app(
    live: DurableStream, stop: threading.Event, state: str, *, tokens: TokenFile, metrics: Metrics | None = None
) -> Gate:
    """What serves those who run a stream: for a listener of its own."""
    library = Library((), tokens=tokens)
    routes = OperatorRoutes(library, live, stop, state, metrics)
    return gated(library, [routes.router], names={"operator": (live.plan.name,)})


def gated(
    library: Library,
    routers: Sequence[Any],
    *,
    hosts: Collection[str] = (),
    embedded_in: Collection[str] = (),
    beside: Mapping[str, Made] | None = None,
    names: Mapping[Access, Collection[str]] | None = None,
) -> Gate:
    """Routes behind their gate, with the schema and the page."""

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        async with library.open():
            yield

    app = FastAPI(
        title="Pianissimo",
        version=pianissimo.__version__,
        description="Releases of event streams under one privacy promise. Nothing here depends on unreleased data.",
        docs_url=None,
        redoc_url=None,
        lifespan=life,
    )
    for router in routers:
        app.include_router(router)
    _add_errors(app)
    _add_page(app)
    for path, made in (beside or {}).items():
        _add_made(app, path, made)
    _describe(app)
    return Gate(app, library, hosts=hosts, embedded_in=embedded_in, names=names)


def _add_errors(app: FastAPI) -> None:
    def refused(status: int, message: str | None = None) -> Response:
        headers = {name.decode(): value.decode() for name, value in refusal_headers(status)}
        return Response(refusal_body(status, message), status, headers)

    @app.exception_handler(GateError)
    async def _(_: Request, error: GateError) -> Response:
        return refused(error.status, error.message)

    @app.exception_handler(RequestValidationError)
    async def _(_: Request, error: RequestValidationError) -> Response:
        # Where and what, but never what came: it may be anything.
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if isinstance(part, str | int))
        return refused(400, f"{where} must be as the schema at /openapi.json says, got another")

    @app.exception_handler(HTTPException)
    async def _(_: Request, error: HTTPException) -> Response:
        answer = refused(error.status_code)
        if error.headers:
            answer.headers.update(error.headers)
        return answer

    @app.exception_handler(Exception)
    async def _(_: Request, __: Exception) -> Response:
        return refused(500)


def _add_page(app: FastAPI) -> None:
    """The page, as it lies in the package: read once, and served from memory."""
    folder = files("pianissimo.service") / "page"
    there = folder.iterdir() if folder.is_dir() else ()
    found = {each.name: each.read_bytes() for each in there if Path(each.name).suffix in _TYPES}

    def add(path: str, name: str) -> None:
        body = found[name]
        headers = {"etag": tag_of(body), "cache-control": "no-cache"}

        async def page(request: Request) -> Response:
            if is_known(headers["etag"], request.headers.get("if-none-match")):
                return Response(status_code=304, headers=headers)
            return Response(body, headers=headers, media_type=_TYPES[Path(name).suffix])

        app.add_api_route(path, page, include_in_schema=False, response_class=Response)

    for name in found:
        add("/" if name == "index.html" else f"/{name}", name)

    async def health() -> dict[str, str]:
        """That the service answers; it tells nothing of its streams."""
        return {"state": "ok"}

    app.add_api_route("/health", health, tags=["anyone"])


def _add_made(app: FastAPI, path: str, made: Made) -> None:
    async def route() -> Response:
        return Response(made(), headers={"cache-control": "no-store"}, media_type="application/json")

    app.add_api_route(path, route, include_in_schema=False, response_class=Response)


def _describe(app: FastAPI) -> None:
    """The schema, with the errors and the tokens that routes share."""
    made = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = made()
            parts = schema.setdefault("components", {})
            kinds = parts.setdefault("schemas", {})
            refusal = Refusal.model_json_schema(ref_template="#/components/schemas/{model}")
            kinds |= refusal.pop("$defs", {}) | {"Refusal": refusal}
            bearer = {"type": "http", "scheme": "bearer", "description": "A token of the role that a route is for."}
            parts["securitySchemes"] = {"token": bearer}
            for path, methods in schema["paths"].items():
                for route in methods.values():
                    route["responses"].pop("422", None)
                    if path.startswith(("/v1/", "/operator/")):
                        route["security"] = [{"token": []}, {}]
        assert app.openapi_schema is not None  # noqa: S101
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
