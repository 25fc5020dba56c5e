"""What every answer has in common: its headers, its errors, and how a client's copy is told to be still good."""

import hashlib
from collections.abc import Iterable
from typing import Any

from fastapi import Response

from pianissimo.service.shelf import as_json

Headers = list[tuple[bytes, bytes]]

POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
POLICY += "base-uri 'none'; form-action 'none'; frame-ancestors {frames}"

MESSAGES = {
    400: ("bad_request", "a request must be as the schema at /openapi.json says, got another"),
    401: ("unauthorized", "a token must be sent as 'Authorization: Bearer TOKEN', got none that holds"),
    402: ("too_dear", "a question must cost at most what it says it may, got a higher price; ask for the price first"),
    403: ("forbidden", "a token must be of the role that this route is for, got another"),
    404: ("not_found", "there must be something here that may be seen, got nothing"),
    405: ("not_allowed", "a route must be asked by a method that it has, got another"),
    406: ("not_acceptable", "an answer must be wanted in a form that there is, got another"),
    408: ("too_slow", "a body must come within its time, got one that did not"),
    409: ("conflict", "an Idempotency-Key must be sent with one question alone, got it with another"),
    411: ("length_required", "a body must say how long it is, got one that does not"),
    413: ("too_large", "a body must be within the limits, got a larger one"),
    415: ("unsupported_media_type", "a body must be of a type that is taken here, got another"),
    421: ("wrong_host", "a request must name a host that is served here, got another"),
    429: ("too_many", "requests must come less often, got too many"),
    500: ("internal", "the service must be able to answer, got a fault of its own"),
    503: ("unavailable", "the service must have room and its store, got none now; try again"),
}
"""What each status is called, and what is said. Nothing in it depends on what was asked."""

_MORE = {401: ((b"www-authenticate", b"Bearer"),), 429: ((b"retry-after", b"1"),), 503: ((b"retry-after", b"1"),)}


def safe_headers(embedded_in: Iterable[str] = ()) -> Headers:
    """On every answer; `embedded_in` are the origins whose pages may hold ours."""
    frames = " ".join(embedded_in) or "'none'"
    return [
        (b"content-security-policy", POLICY.format(frames=frames).encode("ascii")),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"cross-origin-opener-policy", b"same-origin"),
        (b"cross-origin-resource-policy", b"same-origin"),
    ]


def refusal_body(status: int, message: str | None = None) -> bytes:
    """The JSON of an error."""
    code, usual = MESSAGES.get(status, MESSAGES[400])
    return as_json({"error": {"code": code, "message": message or usual}})


def refusal_headers(status: int) -> Headers:
    """What an error has beside the safe headers."""
    return [
        (b"content-type", b"application/json"),
        (b"cache-control", b"no-store"),
        *_MORE.get(status, ()),
    ]


def told_now(content: Any) -> Response:
    """Plain data as an answer that nobody keeps."""
    return Response(as_json(content), headers={"cache-control": "no-store"}, media_type="application/json")


def tag_of(body: bytes) -> str:
    """An ETag: the digest of the bytes."""
    return f'"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'


def is_known(tag: str, header: str | None) -> bool:
    """Whether a client says, by If-None-Match, that it has these bytes.

    >>> is_known('"a"', '"b", W/"a"'), is_known('"a"', None), is_known('"a"', "*")
    (True, False, True)
    """
    if header is None:
        return False
    return header.strip() == "*" or any(each.strip().removeprefix("W/") == tag for each in header.split(","))


def header_of(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str | None:
    """The one header of a name; None where there is none, or more than one."""
    found = [value for each, value in headers if each == name]
    return found[0].decode("latin-1") if len(found) == 1 else None


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors of a route, for the schema."""
    return {
        status: {
            "description": MESSAGES[status][0],
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}},
        }
        for status in statuses
    }
