"""Who may do what at the service: tokens, of which a file keeps digests alone.

A token names its role, and a role allows its own routes and no others: who writes cannot read, who reads cannot write.
It is 256 random bits, so that a digest without a salt is enough, and guessing is hopeless; its last letters are a
checksum, so that a mistyped one is told from a wrong one without looking. A file that cannot be read lets nobody in.
"""

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, get_args

from pianissimo.checks import check_name, duration_of
from pianissimo.errors import InputError, ParameterError, StoreError
from pianissimo.storage.files import OWNER_ALONE, fault_of, locked, write_whole
from pianissimo.stream.calendar import as_utc, iso

Access = Literal["viewer", "analyst", "writer", "operator"]
"""What a token is for."""

TOKEN_FILE = "pianissimo.tokens"  # noqa: S105  a file's name
_TOKEN = re.compile(r"pnm_(?P<role>[a-z]+)_(?P<secret>[0-9a-f]{64})(?P<check>[0-9a-f]{8})")
_LONGEST_FILE = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What one token allows. Nothing in it tells the token."""

    id: str
    """Its name, for people: it is in no way secret."""

    role: Access
    streams: tuple[str, ...] | None
    """The streams it is for; None for all."""

    until: str | None
    """When it ends, UTC; None for never."""

    created: str
    digest: str

    def is_valid(self, now: datetime) -> bool:
        """Whether it has not ended."""
        return self.until is None or now < as_utc(self.until)

    def covers(self, stream: str) -> bool:
        """Whether it is for a stream."""
        return self.streams is None or stream in self.streams

    def to_dict(self) -> dict[str, Any]:
        """As people see it: without the digest."""
        return {name: value for name, value in asdict(self).items() if name != "digest"}


def made_token(role: Access) -> str:
    """A new token of a role."""
    start = f"pnm_{role}_{secrets.token_hex(32)}"
    return f"{start}{_check_of(start)}"


def is_token(text: str) -> bool:
    """Whether a text has the form of a token, and its checksum.

    >>> is_token(made_token("viewer")), is_token("pnm_viewer_guess")
    (True, False)
    """
    found = _TOKEN.fullmatch(text)
    return found is not None and hmac.compare_digest(found["check"], _check_of(text[:-8]))


def digest_of(token: str) -> str:
    """What is stored of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def _check_of(start: str) -> str:
    return hashlib.blake2b(start.encode(), digest_size=4).hexdigest()


class TokenFile:
    """The tokens that a file lists.

    >>> import tempfile
    >>> file = TokenFile(Path(tempfile.mkdtemp(), "tokens"))
    >>> token, grant = file.add("viewer", streams=["shop"], until="30d")
    >>> file.look().granted(token) == grant, token in file.path.read_text()
    (True, False)
    >>> file.revoke(grant.id)
    >>> file.look().granted(token) is None
    True
    """

    def __init__(self, path: Path | str = TOKEN_FILE) -> None:
        self.path = Path(path)
        self._seen: tuple[int, ...] | None = None
        self._known = KnownTokens({})

    def grants(self) -> list[Grant]:
        """All that are listed, in the order in which they were made."""
        try:
            with self.path.open("rb") as file:
                return _parsed(file.read(_LONGEST_FILE), self.path)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise fault_of(error, self.path) from None

    def add(
        self, role: Access, *, streams: Iterable[str] | None = None, until: str | timedelta | datetime | None = None
    ) -> tuple[str, Grant]:
        """A new token, which is shown once and never again, and what it allows; `until` as "30d" or a moment."""
        if role not in get_args(Access):
            raise ParameterError(f"role must be one of {', '.join(get_args(Access))}, got {role!r}")
        named = None if streams is None else tuple(sorted(set(streams)))
        for each in named or ():
            check_name(stream=each)
        token = made_token(role)
        digest, now = digest_of(token), datetime.now(UTC).replace(microsecond=0)
        end = None if until is None else iso(_end_of(until, now))
        grant = Grant(id=digest[:12], role=role, streams=named, until=end, created=iso(now), digest=digest)
        with self._changing() as grants:
            grants.append(grant)
        return token, grant

    def revoke(self, id: str) -> None:  # noqa: A002
        """Let a token open nothing any more."""
        with self._changing() as grants:
            kept = [each for each in grants if each.id != id]
            if len(kept) == len(grants):
                raise InputError(f"a token must be listed to be revoked, got {id!r}; see: pianissimo token list")
            grants[:] = kept

    @contextmanager
    def _changing(self) -> Iterator[list[Grant]]:
        """The list, written anew at the end, while no other process changes it."""
        try:
            with locked(self.path.with_name(f".{self.path.name}.lock"), create=True):
                grants = self.grants()
                yield grants
                content = json.dumps({"tokens": [asdict(each) for each in grants]}, indent=1)
                write_whole(self.path, content.encode(), OWNER_ALONE)
        except OSError as error:
            raise fault_of(error, self.path) from None

    def look(self) -> "KnownTokens":
        """What holds now: read anew where the file is another than it was."""
        try:
            found = self.path.stat()
            seen = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
            if seen != self._seen:
                self._known = KnownTokens({each.digest: each for each in self.grants()})
                self._seen = seen
        except (OSError, StoreError, InputError):
            # Closed: whoever had a token may have lost it in the version that cannot be read.
            self._seen, self._known = None, KnownTokens({})
        return self._known


@dataclass(frozen=True, slots=True)
class KnownTokens:
    """Tokens by their digests, as they were at one moment."""

    grants: Mapping[str, Grant]

    def granted(self, token: str) -> Grant | None:
        """What a token allows; None for one that is not listed."""
        if not is_token(token):
            return None
        digest = digest_of(token)
        found = self.grants.get(digest)
        return found if found is not None and hmac.compare_digest(found.digest, digest) else None


def _end_of(until: str | timedelta | datetime, now: datetime) -> datetime:
    try:
        return now + duration_of(until)
    except (ParameterError, OverflowError):
        pass
    try:
        return as_utc(until)
    except (TypeError, ValueError, OverflowError):
        raise ParameterError(f"until must be a length such as '30d' or a date-time, got {until!r}") from None


def _parsed(content: bytes, path: Path) -> list[Grant]:
    try:
        found = [
            Grant(**{**each, "streams": None if each["streams"] is None else tuple(each["streams"])})
            for each in json.loads(content)["tokens"]
        ]
        for each in found:
            _ = each.is_valid(datetime.now(UTC)), dict.fromkeys(get_args(Access))[each.role]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise InputError(f"{path} must be a file of tokens, got something else; make it anew with: token add") from None
    return found
