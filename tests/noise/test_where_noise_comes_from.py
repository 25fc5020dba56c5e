"""Where noise comes from: paths, seals counted from a later tick, data it is bound to, keys of names."""

from fractions import Fraction
from typing import Self

import numpy as np
import pytest

from pianissimo.errors import ParameterError, StateError
from pianissimo.noise.keyed import (
    Integers,
    KeyedNoise,
    Keys,
    Noise,
    PathPart,
    Secret,
    add_draws,
    bound_to,
    encode_path,
    sealed,
    sealed_since,
)
from pianissimo.noise.laws import LossTarget
from pianissimo.noise.name_keys import NamesOnly, names_check, names_root
from pianissimo.testing import NoNoise

KEYS = np.arange(4, dtype=np.uint64)
LENGTHS = np.array([1], dtype=np.uint32)
F = Fraction


class Written(NoNoise):
    """Noise that knows its path, and seals."""

    def __init__(self, path: tuple[PathPart, ...] = ()) -> None:
        self.path = path

    def at(self, *path: PathPart) -> Self:
        return type(self)(self.path + path)

    def sealed(self, tick: int) -> Self:
        return self.at("sealed", tick)


def draws(noise: Noise) -> list[int]:
    return [int(each) for each in noise.gaussian(variance=F(10**9), keys=KEYS)]


def test_seals_are_counted_from_where_something_begins_anew() -> None:
    noise = Written()
    later = sealed_since(noise, 5)
    found = sealed(later.at("x", 1), 2)
    assert isinstance(found, Written)
    assert found.path == ("x", 1, "sealed", 7)
    assert sealed_since(noise, 0) is noise
    keyed = KeyedNoise(bytes(32))
    assert sealed_since(keyed, 5) is keyed


def test_noise_is_bound_to_the_data_it_is_released_with() -> None:
    noise = KeyedNoise(bytes(32))
    one, other, again = (bound_to(noise, *data) for data in ((b"a", 1), (b"a", 2), (b"a", 1)))
    assert draws(one) == draws(again) != draws(other)
    assert draws(one) != draws(noise)
    written = Written()
    assert bound_to(written, b"a") is written


def test_a_sum_of_draws_is_the_same_whoever_draws() -> None:
    class Doubled(KeyedNoise):
        def draw(self, law: str, parameter: Fraction, keys: Keys, out: Integers) -> None:
            super().draw(law, parameter, keys, out)
            out *= 2

    noise, sums = KeyedNoise(bytes(32)), np.zeros(4, dtype=np.int64)
    add_draws(
        [
            (noise.at("a"), "gaussian", F(900), 1),
            (noise.at("b"), "laplace", F(7), 3),
            (Doubled(bytes(32)).at("a"), "gaussian", F(900), -5),
            (NoNoise(), "laplace", F(7), 2),
        ],
        KEYS,
        sums,
    )
    a, b = noise.at("a").gaussian(variance=F(900), keys=KEYS), noise.at("b").laplace(F(7), keys=KEYS)
    assert sums.tolist() == (a + 3 * b - 10 * a).tolist()


def test_parts_of_a_path_are_whole_numbers_of_128_bits() -> None:
    ends = (-(2**127), -3, 3, 2**127 - 1)
    assert len({encode_path(each) for each in ends}) == len(ends)
    for beyond in (-(2**127) - 1, 2**127, True, 0.5):
        with pytest.raises(ParameterError, match="128 bits"):
            encode_path(beyond)  # type: ignore[arg-type]


def test_a_target_is_a_rho_or_an_epsilon() -> None:
    for both in ({"rho": F(1), "epsilon": F(1)}, {"rho": None, "epsilon": None}):
        with pytest.raises(ParameterError, match="must be given"):
            LossTarget.of(**both)


def test_names_are_of_one_life_of_one_configuration_and_the_check_is_no_name() -> None:
    key = Secret(bytes(range(32)))
    roots = [names_root(key, *of) for of in ((b"life", b"config"), (b"life", b"other"), (b"other", b"config"))]
    names = [root.at("user").label_keys(b"a", LENGTHS).tobytes() for root in roots]
    assert len(set(names)) == 3
    assert len({names_check(root) for root in roots}) == 3
    assert names_check(roots[0]) == roots[0].at("check").label_keys(b"1", LENGTHS).tobytes()
    assert names_check(roots[0]) != roots[0].label_keys(b"1", LENGTHS).tobytes()


def test_who_gathers_names_as_the_stream_does_and_draws_nothing() -> None:
    root = names_root(Secret(bytes(range(32))), b"life", b"config")
    gatherer = NamesOnly(root).at("query", 3).at("part")
    found = gatherer.naming("user").label_keys(b"a", LENGTHS)
    assert found.tobytes() == root.at("query", 3, "part", "user").label_keys(b"a", LENGTHS).tobytes()
    assert gatherer.asked == ["user"]
    with pytest.raises(StateError, match="where the stream is"):
        gatherer.bits(KEYS)
    with pytest.raises(StateError, match="where the stream is"):
        gatherer.gaussian(variance=F(1), keys=KEYS)


def test_without_a_key_of_names_a_gatherer_has_names_of_its_own() -> None:
    gatherer = NamesOnly(None)
    places = [gatherer.naming("user"), gatherer.naming("value"), gatherer.at("q").naming("user"), gatherer.at("q")]
    assert len({each.label_keys(b"a", LENGTHS).tobytes() for each in places}) == 4
    assert gatherer.asked == ["user", "value", "user"]
