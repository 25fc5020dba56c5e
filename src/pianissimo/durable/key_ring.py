"""Keys of a durable stream: where its secret comes from, and the ring of secrets.

The secret is in a file, in an environment variable or printed by a command; never in the store. It becomes one key for
each purpose (`storage.purpose_keys`). Rotations leave a ring of secrets.

Noise is bound to the incarnation, the plan and the data sealed before a draw is first made. If storage ever lies (a
restored backup, a cloned disk, a lost tail), other data are sealed under the same tick number. Their digest is another,
so is the path, and the noise that begins then is independent. Noise that began before is the same over both: where both
are shown, their difference tells the truth for some ticks (docs/limits.md), which is what the witness is against. What
is drawn without `sealed` is bound to the incarnation and the plan alone.
"""

import contextlib
import hmac
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from pianissimo.errors import DamageError, ParameterError, SecretError
from pianissimo.noise import Secret
from pianissimo.storage.files import check_key_path, key_file
from pianissimo.storage.purpose_keys import Keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """A row of the ring: from which tick on a secret holds, and the secrets before, closed under it."""

    number: int
    first_tick: int
    key_id: bytes
    check_value: bytes
    earlier: bytes


@dataclass(frozen=True, slots=True, repr=False)
class KeyRing:
    """The keys of all epochs of a stream. A rotation begins one; what was bound to an earlier one stays with it."""

    first_ticks: tuple[int, ...]
    secrets: tuple[Secret, ...]
    keys: tuple[Keys, ...] = field(default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", tuple(map(_keys_of, self.secrets)))

    @property
    def newest(self) -> Keys:
        """The keys of what is written now."""
        return self.keys[-1]

    def number_at(self, tick: int) -> int:
        """The epoch of what belongs to a tick."""
        return max(number for number, first in enumerate(self.first_ticks) if first <= tick or number == 0)

    def epoch(self, number: int) -> Keys:
        """The keys of an epoch."""
        if not 0 <= number < len(self.keys):
            raise DamageError(f"a record must be of an epoch up to {len(self.keys) - 1}, got {number}")
        return self.keys[number]

    def named(self, key_id: bytes) -> Keys:
        """The keys of a secret by its public name."""
        for keys in self.keys:
            if hmac.compare_digest(keys.id, key_id):
                return keys
        raise SecretError(f"the secret {key_id.hex()} must be at hand, got others; give the one that was used then")

    def row(self, incarnation: bytes) -> Epoch:
        """What is stored of the newest epoch."""
        number = len(self.secrets) - 1
        earlier = b"".join(bytes(secret) for secret in self.secrets[:-1])
        closed = self.newest.closed(earlier, "earlier secrets", incarnation, number, *self.first_ticks)
        first = self.first_ticks[-1]
        check = check_value(self.newest, incarnation, number, first)
        return Epoch(number=number, first_tick=first, key_id=self.newest.id, check_value=check, earlier=closed)

    def rows(self, incarnation: bytes) -> list[Epoch]:
        """What is stored of all epochs, where an incarnation begins with several."""
        return [
            KeyRing(self.first_ticks[:count], self.secrets[:count]).row(incarnation)
            for count in range(1, len(self.secrets) + 1)
        ]

    def rotated(self, secret: Secret, first_tick: int) -> "KeyRing":
        """The ring with one more epoch."""
        return KeyRing((*self.first_ticks, first_tick), (*self.secrets, secret))

    def __repr__(self) -> str:
        return f"KeyRing(epochs={len(self.keys)})"


def open_ring(secret: Secret, incarnation: bytes, rows: Sequence[Epoch]) -> KeyRing:
    """The ring whose newest secret this is, or a `SecretError`."""
    if not rows or [row.number for row in rows] != list(range(len(rows))):
        raise DamageError("a stream must have its keys' epochs, got a gap; restore a backup")
    newest, keys = rows[-1], _keys_of(secret)
    if not hmac.compare_digest(newest.check_value, check_value(keys, incarnation, newest.number, newest.first_tick)):
        raise SecretError(
            f"the secret must be the one of this stream, {newest.key_id.hex()} since tick {newest.first_tick}, "
            f"got {keys.id.hex()}; nothing was read with it"
        )
    first_ticks = tuple(row.first_tick for row in rows)
    earlier = keys.opened(newest.earlier, "earlier secrets", incarnation, newest.number, *first_ticks)
    parts = [Secret(earlier[place : place + 32]) for place in range(0, len(earlier), 32)]
    if len(parts) != len(rows) - 1:
        raise DamageError("a stream must have the secrets of its earlier epochs, got others; restore a backup")
    return KeyRing(first_ticks, (*parts, secret))


def ring_among(secrets: Sequence[Secret], incarnation: bytes, rows: Sequence[Epoch]) -> KeyRing:
    """The ring of a life whose newest secret is one of these: a later life may have rotated them since."""
    for secret in secrets[:-1]:
        with contextlib.suppress(SecretError):
            return open_ring(secret, incarnation, rows)
    return open_ring(secrets[-1], incarnation, rows)


def check_value(keys: Keys, incarnation: bytes, number: int, first_tick: int) -> bytes:
    """What tells the right secret from a wrong one, and nothing else."""
    return keys.mac("key check", incarnation, number, first_tick)


@lru_cache(maxsize=64)
def _keys_of(secret: Secret) -> Keys:
    return Keys(secret)


def ring_of(secret: Secret) -> KeyRing:
    """The ring of a new stream."""
    return KeyRing((0,), (secret,))


Given = Secret | str | Path | None
_PATIENCE = 30


def read_secret(given: Given, *, beside: Path, create: bool) -> Secret:
    """The secret itself, or where it is: a path, `env:NAME` or `command:WORDS`; None for the file `beside`.

    With `create`, a file that is not there is made, open to its owner alone.
    """
    if isinstance(given, Secret):
        return given
    check_key_path("secret", given)
    if isinstance(given, str) and given.startswith("env:"):
        name = given.removeprefix("env:")
        return _parsed(os.environ.get(name), f"the variable {name}")
    if isinstance(given, str) and given.startswith("command:"):
        return _from_command(given.removeprefix("command:"))
    if given is not None and not isinstance(given, str | Path):
        raise ParameterError(f"secret must be a Secret, a path, env:NAME or command:WORDS, got {type(given).__name__}")
    path = beside if given is None else Path(given)
    if not create and not path.exists():
        raise SecretError(f"there must be a secret at {path}, got no such file; without it the stream cannot go on")
    return key_file(path, create=create, what="secret", refusal=SecretError)


def _from_command(text: str) -> Secret:
    import shlex

    try:
        words = shlex.split(text)
        if not words:
            raise SecretError("the command for the secret must be given after command:, got nothing")
        found = subprocess.run(words, capture_output=True, timeout=_PATIENCE, check=False)  # noqa: S603
    except (OSError, ValueError, subprocess.TimeoutExpired):
        raise SecretError("the command for the secret must run and end, got one that does not") from None
    if found.returncode != 0:
        raise SecretError(f"the command for the secret must succeed, got exit code {found.returncode}")
    return _parsed(found.stdout.decode("ascii", "replace"), "what the command for the secret prints")


def _parsed(text: str | None, what: str) -> Secret:
    if not text:
        raise SecretError(f"{what} must hold 64 hexadecimal digits, got nothing")
    try:
        return Secret(bytes.fromhex(text.strip()))
    except ValueError:  # a ParameterError is one too
        raise SecretError(f"{what} must hold 64 hexadecimal digits, got something else") from None
