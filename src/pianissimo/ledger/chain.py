"""Entries chained by a keyed digest: to change, drop or move one is to break all that follow.

An entry's digest is BLAKE2b (RFC 7693) over the digest before it and an injective encoding of all its fields; the first
follows from the root, which covers what a ledger is created with, its budget included. Without a key anyone can make a
whole new chain; with one, only a cut at the end goes unseen, and that is what the last entry that was seen is for.

Whoever loses a ledger and takes one from a backup, or cuts off its end, would spend the same budget again. So after
each charge its head is written to a second file, beside the key, and synced. It is never ahead of the ledger, and a
ledger that does not hold it is refused.

Where it is follows from the ledger's place and from where its key is, and from nothing else (`head_beside`): whoever
makes a ledger and whoever opens it look in one place. It comes before key and ledger, and says then that a ledger is
being made. So a key or a ledger without it has lost it; and a making that was cut off is told from a ledger that is
lost: of the first nothing was ever charged.
"""

import contextlib
import hashlib
import hmac
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self, get_args

from pianissimo.errors import LedgerError, ParameterError
from pianissimo.ledger.units import LARGEST, Charge
from pianissimo.noise import Secret
from pianissimo.noise.keyed import encode_path
from pianissimo.storage.files import NO_FOLLOW, opened, read_private, reason, sync, wait_for_lock, write_once

VERSION = 1
Kind = Literal["reserve", "settle", "mix"]
"""A charge; what it cost in the end; that charges may hide different units from here on."""

Units = tuple[int, int, int, int]

_NOTHING: Units = (0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class LastEntry:
    """How many entries a ledger has and the digest of the last: what a witness outside keeps."""

    count: int
    digest: bytes

    def __str__(self) -> str:
        return f"{self.count}:{self.digest.hex()}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` wrote."""
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
    budget: Charge


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of a ledger."""

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

    hides: str | None = None
    """Of a reserve: whom it hides, if that is said; earlier versions did not."""

    @property
    def marked_kind(self) -> str:
        """The kind with whom it hides, as it is stored and as its digest covers it."""
        return self.kind if self.hides is None else f"{self.kind} {self.hides}"


class Chain:
    """Makes and checks digests under one key."""

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
            encode_path(
                VERSION, header.identity, header.dataset, header.created, int(header.keyed), *header.budget.units
            ),
        )

    def digest(self, previous: bytes, entry: Entry) -> bytes:
        """The digest of an entry, whatever digest it carries itself."""
        fields = encode_path(
            previous,
            entry.number,
            entry.marked_kind,
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
        """Refuse an entry that does not carry its digest."""
        if not hmac.compare_digest(self.digest(previous, entry), entry.digest):
            raise broken(f"entry {entry.number} must carry its digest, got another")

    def check_all(
        self,
        header: Header,
        root: bytes,
        balance: tuple[int, Units],
        entries: Sequence[Entry],
        witnesses: Sequence[LastEntry],
    ) -> LastEntry:
        """Refuse a ledger in which anything was edited, dropped, moved or, before a witness, cut off; give its head."""
        # A header does not carry its digest if it was edited, or if the key is another.
        if header.keyed != self.keyed or not hmac.compare_digest(self.root(header), root):
            raise broken("the ledger's budget and names must carry their digest, got another")
        previous, total = root, _NOTHING
        keys: set[str] = set()
        reserved: dict[int, Units] = {}
        digests = [root]
        for number, entry in enumerate(entries, start=1):
            if entry.number != number:
                raise broken(f"entry {number} must follow entry {number - 1}, got a gap")
            self.check(previous, entry)
            _check_meaning(entry, keys, reserved)
            total = _add(total, entry.change)
            if entry.spent != total or not _within(total, header.budget.units):
                raise broken(f"what is spent at entry {number} must be the sum of the changes and within the budget")
            previous = entry.digest
            digests.append(previous)
        if balance != (len(entries), total):
            raise broken("the balance must be the sum of the entries, got another")
        for seen in witnesses:
            if seen.count >= len(digests) or not hmac.compare_digest(digests[seen.count], seen.digest):
                raise broken(
                    f"the ledger must hold the {seen.count} entries that were seen before, got others or fewer"
                )
        return LastEntry(len(entries), previous)


def broken(what: str) -> LedgerError:
    """The error for a ledger that is not as it was written."""
    return LedgerError(f"{what}: the ledger was altered, or the key is another; stop and look at a backup")


def ticket_digest(ticket: bytes) -> bytes:
    """What a ledger keeps of a ticket, so that nobody who reads it can settle for another."""
    return _blake(b"ledger ticket", b"", ticket)


def check_types(entry: Entry) -> Entry:
    """Refuse values of another type than the ledger writes: a store may hold anything."""
    texts = (entry.kind, entry.hides or "", entry.time, entry.who, entry.question, entry.idempotency_key or "")
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
    elif entry.kind == "mix":
        sound = (entry.idempotency_key, entry.settles, entry.hides, entry.change) == (None, None, None, _NOTHING)
    else:
        charge = reserved.pop(entry.settles or 0, None)  # popped: nothing is settled twice
        refund: Units = tuple(-each for each in entry.change)  # type: ignore[assignment]
        sound = (
            charge is not None
            and (entry.idempotency_key, entry.hides) == (None, None)
            and _within(_NOTHING, refund)
            and _within(refund, charge)
        )
    if not sound:
        raise broken(f"entry {entry.number} must be a charge, settle one charge once, or allow several units")


def _add(left: Units, right: Units) -> Units:
    return tuple(a + b for a, b in zip(left, right, strict=True))  # type: ignore[return-value]


def _within(left: Units, right: Units) -> bool:
    return all(a <= b for a, b in zip(left, right, strict=True))


def _blake(purpose: bytes, key: bytes, content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=32, key=key, person=purpose).digest()


_LENGTH = 19 + 1 + 64 + 1
_BEING_MADE = LastEntry(0, bytes(32))


def key_beside(place: str | Path) -> Path:
    """Where the key of a ledger in a file is, unless somebody says where."""
    return Path(f"{place}.key")


def head_beside(place: str | Path, key: Path | None) -> Path | None:
    """Where the last head of a ledger is kept: beside the file of its key, or beside the ledger if the key is in none.

    A ledger on a server whose key is in no file has none.
    """
    if key is not None:
        return Path(f"{key}.head")
    return None if "://" in str(place) else Path(f"{place}.head")


class LastSeen:
    """A file of one line that names the last head seen."""

    __slots__ = ("path",)

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> LastEntry | None:
        """The head it names; None if there is no file, or if the ledger is being made."""
        found = self._read()
        return None if found == _BEING_MADE else found

    def is_being_made(self) -> bool:
        """Whether it says that a ledger is being made: by another process now, or by one that was killed."""
        return self._read() == _BEING_MADE

    def begin(self) -> bool:
        """Say that a ledger is being made; False if there was one before."""
        with self._speaking():
            return write_once(self.path, _line(_BEING_MADE)) or self.is_being_made()

    def make(self, head: LastEntry) -> None:
        """Begin with a head, in the file's first moment."""
        with self._speaking():
            if not write_once(self.path, _line(head)):
                raise self._of_another()

    def claim(self) -> None:
        """Say that a ledger is being made, or refuse."""
        if not self.begin():
            raise self._of_another()

    def _of_another(self) -> LedgerError:
        return LedgerError(
            f"{self.path} must belong to the ledger beside it, got that of an earlier one; put that ledger back, or, "
            "to begin a new budget, move this file away"
        )

    def advance(self, head: LastEntry) -> None:
        """Name this head from now on, on disk, unless a later one is named."""
        with self._speaking(), opened(self.path, os.O_RDWR | NO_FOLLOW) as file:
            wait_for_lock(file, self.path, time.monotonic() + 30.0)
            named = self._parsed(os.read(file, 2 * _LENGTH))
            if named.count < head.count or named == _BEING_MADE:
                # One line of one length, so that a crash leaves the old one or the new one.
                os.lseek(file, 0, os.SEEK_SET)
                os.write(file, _line(head))
                sync(file)

    def _read(self) -> LastEntry | None:
        with self._speaking():
            try:
                return self._parsed(read_private(self.path, 2 * _LENGTH))
            except FileNotFoundError:
                return None

    def _parsed(self, content: bytes) -> LastEntry:
        try:
            if len(content) == _LENGTH:
                return LastEntry.parse(content.decode("ascii").strip())
        except (ParameterError, UnicodeDecodeError):
            pass
        raise LedgerError(
            f"{self.path} must name the last head of the ledger, got something else; look at the ledger, move this "
            "file away, and give the witness that `pianissimo budget` shows"
        )

    @contextlib.contextmanager
    def _speaking(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise LedgerError(f"{self.path} must be a file of one's own, got {reason(error)}") from None


def _line(head: LastEntry) -> bytes:
    return f"{head.count:019}:{head.digest.hex()}\n".encode("ascii")
