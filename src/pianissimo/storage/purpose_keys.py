"""The keys of one secret, one for each purpose.

HKDF (RFC 5869, SHA-256) turns a secret into keys for digests, for noise and for what is stored. Data at rest are under
AES-256-GCM with a random nonce, and what belongs to a record is authenticated with it, so that no ciphertext fits
anywhere else.
"""

import hashlib
import os

from pianissimo import _core
from pianissimo.errors import DamageError
from pianissimo.noise import Secret
from pianissimo.noise.keyed import PathPart, encode_path

_NONCE_BYTES = 12
_SALT = b"pianissimo/keys/v1"


class Keys:
    """The keys of one secret."""

    __slots__ = ("_at_rest", "_seal", "_secret", "noise", "user")

    def __init__(self, secret: Secret) -> None:
        self._secret = secret
        self.noise = Secret(_derived(bytes(secret), "noise"))
        self.user = Secret(_derived(bytes(secret), "user"))
        """The names key: what users and values are named with, and no noise is made of."""

        self._seal = _derived(bytes(secret), "seal")
        self._at_rest = _core.Vault(_derived(bytes(secret), "at rest"))

    @property
    def shards(self) -> Secret:
        """What the keys of all shards follow from, and the shards key; whoever draws for all of them has it."""
        return Secret(_derived(bytes(self._secret), "shards"))

    @property
    def opener(self) -> Secret:
        """Of these, the shards key: it opens the keys of shards that come with tasks, and none follow from it."""
        return Secret(_derived(bytes(self._secret), "opener"))

    def shard(self, number: int) -> Secret:
        """Of these, what the keys of one shard follow from. It tells nothing of another's."""
        return Secret(_derived(bytes(self._secret), f"shard {number}"))

    @property
    def id(self) -> bytes:
        """A short public name of the secret."""
        return _derived(bytes(self._secret), "id")[:8]

    def mac(self, purpose: str, *parts: PathPart) -> bytes:
        """A keyed digest of an injective encoding."""
        content = encode_path(purpose, *parts)
        return hashlib.blake2b(content, digest_size=32, key=self._seal, person=b"pianissimo-seal").digest()

    def digest(self, purpose: str, content: bytes) -> bytes:
        """A keyed digest of one large content."""
        head = encode_path(purpose, len(content))
        state = hashlib.blake2b(head, digest_size=32, key=self._seal, person=b"pianissimo-data")
        state.update(content)
        return state.digest()

    def closed(self, content: bytes, *place: PathPart) -> bytes:
        """The content, encrypted, for one place alone."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._at_rest.close(nonce, content, encode_path(*place))

    def opened(self, content: bytes, *place: PathPart) -> bytes:
        """What `closed` encrypted for this place."""
        nonce, closed = content[:_NONCE_BYTES], content[_NONCE_BYTES:]
        whole = self._at_rest.open(nonce, closed, encode_path(*place)) if len(nonce) == _NONCE_BYTES else None
        if whole is None:
            name = " ".join(str(part) for part in place if not isinstance(part, bytes))
            raise DamageError(f"stored {name} must be as it was written, got other bytes; restore a backup")
        return whole

    def __repr__(self) -> str:
        return "Keys(hidden)"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("keys are not pickled; make them anew from the secret where they are needed")


def _derived(secret: bytes, purpose: str) -> bytes:
    return _core.derived_key(secret, _SALT, purpose.encode())
