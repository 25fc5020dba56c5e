"""Entries chained by a keyed digest: to change, drop or move one is to break all that follow.

An entry's digest is BLAKE2b (RFC 7693) over the digest before it and an injective encoding of all its fields; the first
follows from the root, which covers what a ledger is created with, its cap included. Without a key anyone can make a
whole new chain; with one, only a cut at the end goes unseen, and that is what a witness is for.
"""

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self, get_args

from pianissimo.errors import LedgerError, ParameterError
from pianissimo.ledger.units import LARGEST, Charge
from pianissimo.noise import Secret
from pianissimo.noise.keyed import encode_path

VERSION = 1
Kind = Literal["reserve", "settle"]
Units = tuple[int, int, int, int]

_NOTHING: Units = (0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class LastEntry:
    """How many entries a ledger has and the digest of the last: what a witness outside keeps.

    >>> LastEntry.parse("3:" + "ab" * 32).count
    3
    """

    count: int
    digest: bytes

    def __str__(self) -> str:
        return f"{self.count}:{self.digest.hex()}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` wrote.

        >>> LastEntry.parse("three")
        Traceback (most recent call last):
        pianissimo.errors.ParameterError: a witness must read COUNT:DIGEST, with 64 hexadecimal digits, ...
        """
        count, _, digest = text.partition(":")
        try:
            if count.isascii() and count.isdigit() and len(digest) == 64:
                return cls(int(count), bytes.fromhex(digest))
        except ValueError:
            pass
        raise ParameterError("a witness must read COUNT:DIGEST, with 64 hexadecimal digits, got something else")


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a ledger is created with; never changed."""

    identity: bytes
    """Random, so that entries of another ledger under the same key do not fit."""

    dataset: str
    created: str
    keyed: bool
    cap: Charge


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of a ledger.

    >>> Entry.__slots__[:4]
    ('number', 'kind', 'time', 'who')
    """

    number: int
    kind: Kind
    time: str
    """UTC."""

    who: str
    question: str
    idempotency_key: str | None
    """Of a reserve."""

    ticket: bytes
    """The digest of something random: by it the caller who reserved is known from one who comes later with the key."""

    settles: int | None
    """Of a settle: the number of its reserve."""

    change: Units
    """Added to what is spent: of a settle, not above zero."""

    spent: Units
    """After this entry."""

    digest: bytes = b""


class Chain:
    """Makes and checks digests under one key.

    >>> header = Header(identity=bytes(16), dataset="clicks", created="", keyed=False, cap=Charge(steps=5))
    >>> len(Chain(None).root(header))
    32
    """

    __slots__ = ("_key",)

    def __init__(self, key: Secret | None) -> None:
        # A key of its own, so that the secret may serve another purpose as well.
        self._key = b"" if key is None else _blake(b"ledger key", bytes(key), b"")

    @property
    def keyed(self) -> bool:
        """Whether a key is held."""
        return bool(self._key)

    def root(self, header: Header) -> bytes:
        """The digest that the first entry follows."""
        return _blake(
            b"ledger root",
            self._key,
            encode_path(VERSION, header.identity, header.dataset, header.created, int(header.keyed), *header.cap.units),
        )

    def digest(self, previous: bytes, entry: Entry) -> bytes:
        """The digest of an entry, whatever digest it carries itself."""
        fields = encode_path(
            previous,
            entry.number,
            entry.kind,
            entry.time,
            entry.who,
            entry.question,
            "none" if entry.idempotency_key is None else "key",
            entry.idempotency_key or "",
            entry.ticket,
            -1 if entry.settles is None else entry.settles,
            *entry.change,
            *entry.spent,
        )
        return _blake(b"ledger entry", self._key, fields)

    def check(self, previous: bytes, entry: Entry) -> None:
        """Refuse an entry that does not carry its digest.

        >>> entry = Entry(number=1, kind="settle", time="", who="", question="", idempotency_key=None,
        ...               ticket=b"", settles=None, change=(0, 0, 0, 0), spent=(0, 0, 0, 0))
        >>> Chain(None).check(bytes(32), entry)
        Traceback (most recent call last):
        pianissimo.errors.LedgerError: entry 1 must carry its digest, got another: the ledger was altered, ...
        """
        if not hmac.compare_digest(self.digest(previous, entry), entry.digest):
            raise broken(f"entry {entry.number} must carry its digest, got another")

    def check_root(self, header: Header, root: bytes) -> None:
        """Refuse a header that does not carry its digest, be it for an edit or for another key."""
        if header.keyed != self.keyed or not hmac.compare_digest(self.root(header), root):
            raise broken("the ledger's cap and names must carry their digest, got another")


def check_chain(
    chain: Chain,
    header: Header,
    root: bytes,
    count: int,
    spent: Units,
    entries: Sequence[Entry],
    witnesses: Sequence[LastEntry] = (),
) -> LastEntry:
    """Refuse a ledger in which anything was edited, dropped, moved or, before a witness, cut off; give its head."""
    chain.check_root(header, root)
    previous, total = root, _NOTHING
    keys: set[str] = set()
    reserved: dict[int, Units] = {}
    digests = [root]
    for number, entry in enumerate(entries, start=1):
        if entry.number != number:
            raise broken(f"entry {number} must follow entry {number - 1}, got a gap")
        chain.check(previous, entry)
        _check_meaning(entry, keys, reserved)
        total = _add(total, entry.change)
        if entry.spent != total or not _within(total, header.cap.units):
            raise broken(f"what is spent at entry {number} must be the sum of the changes and within the cap")
        previous = entry.digest
        digests.append(previous)
    if (count, spent) != (len(entries), total):
        raise broken("the balance must be the sum of the entries, got another")
    for seen in witnesses:
        if seen.count >= len(digests) or not hmac.compare_digest(digests[seen.count], seen.digest):
            raise broken(f"the ledger must hold the {seen.count} entries that were seen before, got others or fewer")
    return LastEntry(len(entries), previous)


def broken(what: str) -> LedgerError:
    """The error for a ledger that is not as it was written."""
    return LedgerError(f"{what}: the ledger was altered, or the key is another; stop and look at a backup")


def ticket_digest(ticket: bytes) -> bytes:
    """What a ledger keeps of a ticket, so that nobody who reads it can settle for another.

    >>> len(ticket_digest(bytes(16)))
    32
    """
    return _blake(b"ledger ticket", b"", ticket)


def check_types(entry: Entry) -> Entry:
    """Refuse values of another type than the ledger writes: a store may hold anything."""
    texts = (entry.kind, entry.time, entry.who, entry.question, entry.idempotency_key or "")
    numbers = (entry.number, entry.settles or 0, *entry.change, *entry.spent)
    well_formed = (
        all(type(text) is str for text in texts)
        and all(type(number) is int and abs(number) <= LARGEST for number in numbers)
        and all(type(each) is bytes for each in (entry.ticket, entry.digest))
        and entry.kind in get_args(Kind)
    )
    if not well_formed:
        raise broken("an entry must hold numbers, texts and bytes where they belong")
    return entry


def _check_meaning(entry: Entry, keys: set[str], reserved: dict[int, Units]) -> None:
    """The rules that the writer keeps, checked again: a digest shows who wrote, not that it was right."""
    if entry.kind == "reserve":
        sound = (
            entry.idempotency_key is not None
            and entry.idempotency_key not in keys
            and entry.settles is None
            and _within(_NOTHING, entry.change)
        )
        keys.add(entry.idempotency_key or "")
        reserved[entry.number] = entry.change
    else:
        charge = reserved.pop(entry.settles or 0, None)  # popped: nothing is settled twice
        refund: Units = tuple(-each for each in entry.change)  # type: ignore[assignment]
        sound = (
            charge is not None
            and entry.idempotency_key is None
            and _within(_NOTHING, refund)
            and _within(refund, charge)
        )
    if not sound:
        raise broken(f"entry {entry.number} must be a charge, or settle one charge once")


def _add(left: Units, right: Units) -> Units:
    return tuple(a + b for a, b in zip(left, right, strict=True))  # type: ignore[return-value]


def _within(left: Units, right: Units) -> bool:
    return all(a <= b for a, b in zip(left, right, strict=True))


def _blake(purpose: bytes, key: bytes, content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=32, key=key, person=purpose).digest()
