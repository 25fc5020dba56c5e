"""Noise is a function, not a state: every draw follows from (secret, path, distribution, key).

Asked again, it answers the same, so a restart or a retry gives nothing to average away. The danger is the same noise
over different data, whose difference is the truth: whoever descends to a path puts into it all that the data depend
on.

The bits come from AES-256 under a key that BLAKE3 derives from the secret and the path. They become discrete Gaussian
or discrete Laplace draws (Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020)
through exact integer tables, a fixed number of bits a draw and nothing that loops on the result. `DRAW_DISTANCE` bounds
how far a draw is from its distribution; the argument is in `rust/src/samplers.rs`.
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NoReturn, Protocol, Self, overload, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from pianissimo import _core
from pianissimo.checks import is_utf8
from pianissimo.errors import ParameterError

Keys = NDArray[np.uint64]
"""Item keys: shape (n,), or (n, 2) for 128-bit keys as rows of (low, high)."""

Integers = NDArray[np.signedinteger[Any]]
"""Draws: int64, or int16 and int32 where they fit."""

PathPart = str | int | bytes

DRAW_DISTANCE = Fraction(1, 2**110)
"""The total variation between one draw and its ideal distribution is at most this; it is booked in delta."""

ONE_KEY: Keys = np.zeros(1, dtype=np.uint64)
"""What a single draw is made for."""

_TWO_LABELS = np.ones(2, dtype=np.uint32)
_NOT_PICKLED = "noise is not pickled: it carries the secret; make it anew from the secret where it is needed"


class Secret:
    """32 secret bytes from which all noise of a stream derives; shown and pickled by nobody by accident."""

    __slots__ = ("_bytes",)

    def __init__(self, value: bytes) -> None:
        if not isinstance(value, bytes) or len(value) != 32:
            raise ParameterError("secret must be 32 bytes, got something else; fresh_secret() makes one")
        self._bytes = value

    def __bytes__(self) -> bytes:
        return self._bytes

    def __len__(self) -> int:
        return len(self._bytes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._bytes, other._bytes)

    def __hash__(self) -> int:
        return hash(Secret)

    def __repr__(self) -> str:
        return "Secret(hidden)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret is not pickled; bytes(secret) gives its bytes to those who mean it")


def fresh_secret() -> Secret:
    """A new secret from the operating system's generator.

    >>> fresh_secret() == fresh_secret()
    False
    """
    return Secret(secrets.token_bytes(32))


class Noise(Protocol):
    """Where draws come from. Paths descend; draws are vectors over item keys.

    Whoever implements it says where `at` leads and how one law is drawn; `gaussian` and `laplace` turn into `draw`.
    """

    __slots__ = ()

    def at(self, *path: PathPart) -> Self:
        """The noise further down: `at("a", 1)` is `at("a").at(1)`."""

    def draw(self, law: str, parameter: Fraction, keys: Keys, out: Integers) -> None:
        """Fill `out` with a draw of a law for each key: `gaussian` of a variance, `laplace` of a scale."""

    def bits(self, keys: Keys) -> NDArray[np.uint64]:
        """128 uniform bits for each key, as rows of (low, high)."""

    def label_keys(self, text: bytes, lengths: NDArray[np.uint32]) -> Keys:
        """A keyed 128-bit item key for each label; `lengths` cut `text` into labels."""

    def naming(self, what: str) -> "Noise":
        """What users or values are named by, with its item keys: a stream may have a key of their own for names."""
        return self.at(what)

    @overload
    def gaussian(self, sigma: float | None = None, keys: None = None, *, variance: Fraction | None = None) -> int: ...
    @overload
    def gaussian(self, sigma: float, keys: Keys) -> NDArray[np.int64]: ...
    @overload
    def gaussian(
        self, sigma: float | None = None, *, keys: Keys, variance: Fraction | None = None
    ) -> NDArray[np.int64]: ...
    def gaussian(
        self, sigma: float | None = None, keys: Keys | None = None, *, variance: Fraction | None = None
    ) -> NDArray[np.int64] | int:
        """Discrete Gaussian draws, P(x) ~ exp(-x^2 / (2 variance)), of `sigma` or of an exact `variance`.

        One for each key, or a single one.
        """
        if (sigma is None) == (variance is None):
            raise ParameterError("either sigma or variance must be given, got both or neither")
        return self._drawn("gaussian", exact_scale(sigma=sigma) ** 2 if variance is None else variance, keys)

    @overload
    def laplace(self, scale: float | Fraction, keys: None = None) -> int: ...
    @overload
    def laplace(self, scale: float | Fraction, keys: Keys) -> NDArray[np.int64]: ...
    def laplace(self, scale: float | Fraction, keys: Keys | None = None) -> NDArray[np.int64] | int:
        """Discrete Laplace draws, P(x) ~ exp(-|x| / scale), one for each key, or a single one."""
        return self._drawn("laplace", exact_scale(scale=scale), keys)

    def _drawn(self, law: str, parameter: Fraction, keys: Keys | None) -> NDArray[np.int64] | int:
        drawn = np.empty(1 if keys is None else len(keys), dtype=np.int64)
        self.draw(law, parameter, ONE_KEY if keys is None else keys, drawn)
        return int(drawn[0]) if keys is None else drawn


class OuterNoise(Noise):
    """Noise that passes every call on to another: a base class, so that a noise around a noise says what it changes."""

    __slots__ = ("inner",)

    def __init__(self, inner: Noise) -> None:
        self.inner = inner

    def draw(self, law: str, parameter: Fraction, keys: Keys, out: Integers) -> None:
        self.inner.draw(law, parameter, keys, out)

    def bits(self, keys: Keys) -> NDArray[np.uint64]:
        return self.inner.bits(keys)

    def label_keys(self, text: bytes, lengths: NDArray[np.uint32]) -> Keys:
        return self.inner.label_keys(text, lengths)

    def naming(self, what: str) -> Noise:
        return self.inner.naming(what)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(hidden)"

    def __reduce__(self) -> NoReturn:
        raise TypeError(_NOT_PICKLED)


@runtime_checkable
class Sealable(Protocol):
    """Noise that can be bound to sealed data: other data, independent noise."""

    def sealed(self, tick: int) -> Noise:
        """The noise of what is first drawn when `tick` is sealed; 0 for before the first."""


def sealed(noise: Noise, tick: int) -> Noise:
    """The noise bound to what was sealed up to `tick`, or as it is where nothing is ever sealed.

    A draw is bound to one tick for ever, and never to a later one than is sealed when it is first made. Draws that are
    used at one tick alone are bound to that tick.
    """
    # As `isinstance` of the protocol would tell it, in a tenth of the time: every draw asks.
    own: Callable[[int], Noise] | None = getattr(noise, "sealed", None)
    return noise if own is None else own(tick)


def sealed_since(noise: Noise, tick: int) -> Noise:
    """The noise of what begins anew after `tick`: for it, `sealed` counts ticks from there."""
    return _Since(noise, tick) if tick and isinstance(noise, Sealable) else noise


class _Since(OuterNoise):
    """Noise as it is, whose seals are counted from a later tick on."""

    __slots__ = ("_tick",)

    def __init__(self, inner: Noise, tick: int) -> None:
        super().__init__(inner)
        self._tick = tick

    def at(self, *path: PathPart) -> Self:
        return type(self)(self.inner.at(*path), self._tick)

    def sealed(self, tick: int) -> Noise:
        return sealed(self.inner, self._tick + tick)


def bound_to(noise: Noise, *data: PathPart) -> Noise:
    """The noise of one release of these data alone: of other data, under the same secret and path, it is independent.

    So two histograms that were given one noise do not show their difference. Noise that is written down beforehand
    stays as it is, and so does that of a stream, which is bound to its data by `sealed`.
    """
    if type(noise) is not KeyedNoise:
        return noise
    return noise.at("data", hashlib.blake2b(encode_path(*data), digest_size=32).digest())


class KeyedNoise(Noise):
    """Noise from a secret.

    >>> noise = KeyedNoise(bytes(32)).at("pharmacy", 1)
    >>> keys = np.arange(5, dtype=np.uint64)
    >>> bool((noise.gaussian(20.0, keys) == noise.gaussian(20.0, keys)).all())
    True
    >>> KeyedNoise(fresh_secret())
    KeyedNoise(hidden)
    """

    __slots__ = ("_path", "_root")

    def __init__(self, secret: Secret | bytes) -> None:
        self._root = _core.Root(bytes(secret if isinstance(secret, Secret) else Secret(secret)))
        self._path = b""

    def at(self, *path: PathPart) -> Self:
        below = object.__new__(type(self))
        below._root = self._root
        below._path = self._path + encode_path(*path)
        return below

    def draw(self, law: str, parameter: Fraction, keys: Keys, out: Integers) -> None:
        contiguous = np.ascontiguousarray(keys)
        try:
            self._root.draw(law, self._path, parameter.numerator, parameter.denominator, contiguous, out)
        except (ValueError, TypeError, OverflowError) as error:
            raise ParameterError(f"{error}, got {law} parameter {float(parameter):g}") from None

    def bits(self, keys: Keys) -> NDArray[np.uint64]:
        try:
            return self._root.bits(self._path, np.ascontiguousarray(keys))
        except TypeError as error:
            raise ParameterError(str(error)) from None

    def label_keys(self, text: bytes, lengths: NDArray[np.uint32]) -> Keys:
        return self._root.label_keys(self._path, text, lengths)

    def __repr__(self) -> str:
        return "KeyedNoise(hidden)"

    def __reduce__(self) -> NoReturn:
        raise TypeError(_NOT_PICKLED)


def secret_key(noise: Noise) -> bytes:
    """32 bytes that only this noise has: the item keys of two labels."""
    return noise.label_keys(b"12", _TWO_LABELS).tobytes()


WeightedDraw = tuple[Noise, str, Fraction, int]
"""Where a draw comes from, its law and the law's parameter, and what it counts in a sum."""


def add_draws(draws: Sequence[WeightedDraw], keys: Keys, sums: NDArray[np.int64]) -> None:
    """Add to each sum the weighted sum of the draws of its key: in one pass over the keys where all have one secret."""
    roots: dict[_core.Root, list[tuple[str, bytes, int, int, int]]] = {}
    for noise, law, parameter, weight in draws:
        if isinstance(noise, KeyedNoise) and type(noise).draw is KeyedNoise.draw:
            drawn = (law, noise._path, parameter.numerator, parameter.denominator, weight)
            roots.setdefault(noise._root, []).append(drawn)
        else:
            values = np.empty(len(keys), dtype=np.int64)
            noise.draw(law, parameter, keys, values)
            _core.add_scaled(sums, weight, values)
    for root, weighted in roots.items():
        root.add_draws(weighted, np.ascontiguousarray(keys), sums)


def encode_path(*path: PathPart) -> bytes:
    """The injective encoding of a path: for each part a tag, its length in eight bytes, and its bytes."""
    return b"".join(map(_encode_part, path))


def exact_scale(**parameter: float | Fraction | None) -> Fraction:
    """The exact rational of one finite, positive parameter."""
    ((name, value),) = parameter.items()
    if isinstance(value, bool) or not isinstance(value, int | float | Fraction | np.number):
        raise ParameterError(f"{name} must be a number, got {value!r}")
    if not (value > 0 and value < float("inf")):
        raise ParameterError(f"{name} must be finite and positive, got {value}")
    return value if isinstance(value, Fraction) else Fraction(float(value))


def _encode_part(part: PathPart) -> bytes:
    if isinstance(part, str):
        if not is_utf8(part):
            raise ParameterError("a path part must be a text that can be written, got one with half a character in it")
        return _core.encode_text(part)
    if isinstance(part, bytes):
        return _core.encode_bytes(part)
    if isinstance(part, int) and not isinstance(part, bool) and -(2**127) <= part < 2**127:
        return _core.encode_integer(part)
    raise ParameterError(f"a path part must be a text, bytes or a whole number of 128 bits, got {type(part).__name__}")
