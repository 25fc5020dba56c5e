"""What everything in PostgreSQL shares: its driver, its addresses, and a server that forgets no commit."""

import re
from collections.abc import Mapping
from types import ModuleType
from typing import Any, TypeGuard
from urllib.parse import unquote

from pianissimo.checks import check_name
from pianissimo.errors import ParameterError, PianissimoError

_LONGEST_NAME = 50  # PostgreSQL cuts names off at 63 bytes, and two of them would become one
_HOST = r"(?:[A-Za-z0-9_.-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]+)?"
# An @ after the first slash or question mark may be the end of a password with such a sign in it.
_SHOWN = re.compile(
    rf"postgres(?:ql)?://(?:[^@/?#]*@)?(?P<host>{_HOST}(?:,{_HOST})*)(?P<database>(?:/[A-Za-z0-9_.%-]*)?)(?:\?[^@#]*)?"
)

# Mistyped, relative to a folder, or the driver's other notation: whatever may hold a password and is no plain path.
_LIKE_A_URL = re.compile(
    r"[a-z][a-z0-9+.-]+:/|.*://|(?:.*/)?postgres(?:ql)?(?::|//)|.*:[^/]*@|.*\bpassword\s*=", re.IGNORECASE | re.DOTALL
)

Refusal = type[PianissimoError]
"""What is raised, by whoever asks: a ledger's error, or a store's."""


def driver(what: str, refusal: Refusal) -> ModuleType:
    """The module that speaks to the server, which is an extra."""
    try:
        import psycopg
    except ImportError:
        raise refusal(f"a {what} in PostgreSQL must have its driver; pip install pianissimo[postgres]") from None
    return psycopg


def settle_in(connection: Any, what: str, refusal: Refusal, patience: Mapping[str, int]) -> None:
    """Set how long to wait, in milliseconds, and refuse a server that could forget a commit."""
    for name, milliseconds in patience.items():
        connection.execute("SELECT set_config(%s, %s, false)", (name, str(milliseconds)))
    for name in ("fsync", "full_page_writes", "synchronous_commit"):
        (value,) = connection.execute("SELECT current_setting(%s)", (name,)).fetchone()
        if value == "off":
            raise refusal(f"{name} must be on for a {what}, got off; a crash could undo what was committed")


def name_in(url: str, option: str, default: str) -> tuple[str, str]:
    """The URL without an option of ours, and the name that it holds, or the default.

    >>> name_in("postgresql://localhost/shop?state=visits&sslmode=require", "state", "state")
    ('postgresql://localhost/shop?sslmode=require', 'visits')
    """
    address, _, query = url.partition("?")
    options = [each for each in query.split("&") if each]  # as they are: the driver has rules of its own for them
    names = [unquote(each.partition("=")[2]) for each in options if each.startswith(f"{option}=")] or [default]
    if len(names) != 1:
        raise ParameterError(f"{option} must be named once in a URL, got {len(names)} names")
    check_name(**{option: names[0]})
    if len(names[0]) > _LONGEST_NAME:
        raise ParameterError(f"{option} must have a name of at most {_LONGEST_NAME} letters, got {len(names[0])}")
    rest = "&".join(each for each in options if not each.startswith(f"{option}="))
    return f"{address}?{rest}" if rest else address, names[0]


def is_server(place: object) -> TypeGuard[str]:
    """Whether a place is a database on a server.

    >>> is_server("postgresql://localhost/shop"), is_server("shop")
    (True, False)
    """
    return isinstance(place, str) and place.startswith(("postgresql://", "postgres://"))


def is_like_a_url(place: object) -> bool:
    """Whether a text was meant as a URL, though it may be none: it is never shown, and never becomes a file.

    >>> [is_like_a_url(place) for place in ("postgresql:/ada:geheim@host/shop", "host=h password=geheim", "C:/shop")]
    [True, True, False]
    """
    return isinstance(place, str) and _LIKE_A_URL.match(place) is not None


def shown_place(place: object) -> str:
    """A path, or a URL without what may be a password.

    >>> shown_place("postgresql://ada:geheim@db.example/shop"), shown_place("visits")
    ('postgresql://db.example/shop', 'visits')
    """
    return shown_url(str(place)) if is_like_a_url(place) else str(place)


def shown_url(url: str) -> str:
    """A URL for people: scheme, host and database if they are plainly those, and never what may be a password.

    >>> shown_url("postgresql://ada:geheim@db.example:5432/shop?sslmode=require")
    'postgresql://db.example:5432/shop'
    >>> shown_url("postgresql://ada:ge/heim@db.example/shop")
    'postgresql://...'
    """
    found = _SHOWN.fullmatch(url)
    return "postgresql://..." if found is None else f"postgresql://{found['host']}{found['database']}"


def kind_of(error: Exception) -> str:
    """The kind of an error alone: the server's text may quote what was in a row, or the connection's address.

    >>> kind_of(ValueError("a customer's name"))
    'ValueError'
    """
    return type(error).__name__
