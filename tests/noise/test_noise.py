"""Keyed noise: a pure function of its address, injective in it, and silent about its secret."""

import copy
import logging
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.faults.report import caught

from pianissimo.errors import ParameterError
from pianissimo.noise import KeyedNoise, Secret, fresh_secret
from pianissimo.noise.keyed import encode_path
from pianissimo.testing import NoNoise, SeededNoise

KEYS = np.arange(1000, dtype=np.uint64)
parts = st.one_of(st.text(max_size=6), st.binary(max_size=6), st.integers(-(2**127), 2**127 - 1))
paths = st.lists(parts, max_size=4).map(tuple)

PINNED_GAUSSIAN = [-37, 5, 4, 5, -3]
PINNED_WIDE_GAUSSIAN = [369895, -683935, -719916, 161256, 1137731]
PINNED_LAPLACE = [51, 160, -15, 7, 1]
PINNED_WIDE_LAPLACE = [768777, -913, -1062426, 1487893, 721929]
PINNED_LABEL = [[4013077942286631043, 14373904420838422502]]


@pytest.mark.parametrize(
    ("path", "encoded"),
    [
        ((), ""),
        (("",), "730000000000000000"),
        (("a",), "73010000000000000061"),
        ((b"a",), "62010000000000000061"),
        ((1,), "69100000000000000001000000000000000000000000000000"),
        ((-1,), "691000000000000000ffffffffffffffffffffffffffffffff"),
        (("a", 1), "7301000000000000006169100000000000000001000000000000000000000000000000"),
        (("ß",), "730200000000000000c39f"),
        (("a", "b"), "7301000000000000006173010000000000000062"),
        (("ab",), "7302000000000000006162"),
    ],
)
def test_paths_are_encoded_as_written_down(path: tuple[str | int | bytes, ...], encoded: str) -> None:
    assert encode_path(*path).hex() == encoded


@given(paths, paths)
def test_different_paths_have_different_encodings(
    one: tuple[str | int | bytes, ...], other: tuple[str | int | bytes, ...]
) -> None:
    assert (encode_path(*one) == encode_path(*other)) == (one == other)


def ambiguous_encoding(*path: str | int | bytes) -> bytes:
    """The mutant: no lengths, no tags."""
    return b"".join(str(part).encode() if not isinstance(part, bytes) else part for part in path)


def test_an_ambiguous_encoding_would_be_caught() -> None:
    assert ambiguous_encoding("a", "b") == ambiguous_encoding("ab")
    assert encode_path("a", "b") != encode_path("ab")
    caught("ambiguous encoding", by="A0: two paths with one encoding")


def test_draws_are_pinned_for_ever() -> None:
    """A change here changes published noise: it needs a new sampler version."""
    noise = KeyedNoise(bytes(range(32))).at("a", 1)
    five = np.arange(5, dtype=np.uint64)
    assert noise.gaussian(sigma=20.0, keys=five).tolist() == PINNED_GAUSSIAN
    assert noise.gaussian(sigma=1e6, keys=five).tolist() == PINNED_WIDE_GAUSSIAN
    assert noise.laplace(20.0, five).tolist() == PINNED_LAPLACE
    assert noise.laplace(1e6, five).tolist() == PINNED_WIDE_LAPLACE
    assert noise.label_keys(b"aspirin", np.array([7], np.uint32)).tolist() == PINNED_LABEL


def test_every_part_of_the_address_changes_the_draws() -> None:
    here = SeededNoise(1).at("stream", 7).gaussian(50.0, KEYS)
    elsewhere = [
        SeededNoise(2).at("stream", 7).gaussian(50.0, KEYS),
        SeededNoise(1).at("other", 7).gaussian(50.0, KEYS),
        SeededNoise(1).at("stream", 8).gaussian(50.0, KEYS),
        SeededNoise(1).at("stream", "7").gaussian(50.0, KEYS),
        SeededNoise(1).at("stream", 7).gaussian(50.5, KEYS),
        SeededNoise(1).at("stream", 7).laplace(50.0, KEYS),
        SeededNoise(1).at("stream", 7).gaussian(50.0, KEYS + np.uint64(1000)),
    ]
    assert (here == SeededNoise(1).at("stream", 7).gaussian(50.0, KEYS)).all()
    for other in elsewhere:
        # Two independent draws agree with a chance of 1 / (2 sigma sqrt(pi)) = 0.6 %: 30 or more of 1000 agree with a
        # chance below 1e-12; the seeds are fixed.
        assert (here == other).sum() < 30


def test_a_scale_is_the_value_not_its_spelling() -> None:
    noise = SeededNoise(3)
    assert (noise.gaussian(2.5, KEYS) == noise.gaussian(variance=Fraction(25, 4), keys=KEYS)).all()
    assert (noise.gaussian(sigma=2, keys=KEYS) == noise.gaussian(sigma=2.0, keys=KEYS)).all()


def test_a_narrow_key_is_the_wide_key_of_the_same_value() -> None:
    wide = np.stack([KEYS, np.zeros_like(KEYS)], axis=1)
    assert (SeededNoise(1).gaussian(9.0, KEYS) == SeededNoise(1).gaussian(9.0, wide)).all()


def test_keys_are_read_in_any_memory_order() -> None:
    assert (SeededNoise(1).gaussian(9.0, KEYS[::2]) == SeededNoise(1).gaussian(9.0, KEYS)[::2]).all()


@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.int64])
def test_draws_go_into_any_integer_array_with_room(
    dtype: type[np.int16] | type[np.int32] | type[np.int64],
) -> None:
    out = np.empty(len(KEYS), dtype=dtype)
    SeededNoise(1).draw("gaussian", Fraction(200) ** 2, KEYS, out)
    assert (out == SeededNoise(1).gaussian(200.0, KEYS)).all()


def test_an_array_without_room_is_refused() -> None:
    with pytest.raises(ParameterError, match="room for the largest draw"):
        SeededNoise(1).draw("gaussian", Fraction(10) ** 10, KEYS, np.empty(len(KEYS), dtype=np.int16))


@pytest.mark.parametrize("sigma", [0.0, -1.0, float("nan"), float("inf"), 1e10, 0.01, True, "2", None])
def test_impossible_scales_are_refused(sigma: float) -> None:
    with pytest.raises(ParameterError, match=r"must be|must have"):
        SeededNoise(1).gaussian(sigma, KEYS)


@pytest.mark.parametrize("sigma", [0.3, 1.0, 1e7, 4e9])
def test_all_promised_scales_are_drawn(sigma: float) -> None:
    assert SeededNoise(1).gaussian(sigma, KEYS).dtype == np.int64


def test_both_or_neither_scale_is_refused() -> None:
    with pytest.raises(ParameterError, match="either sigma or variance"):
        SeededNoise(1).gaussian(keys=KEYS)
    with pytest.raises(ParameterError, match="either sigma or variance"):
        SeededNoise(1).gaussian(1.0, keys=KEYS, variance=Fraction(1))


def test_wrong_keys_are_refused() -> None:
    with pytest.raises(ParameterError, match="keys must be a uint64 array"):
        SeededNoise(1).gaussian(1.0, np.arange(3, dtype=np.int32))


@pytest.mark.parametrize("part", [1.5, None, True, 2**127, ("a",)])
def test_path_parts_of_other_kinds_are_refused(part: object) -> None:
    with pytest.raises(ParameterError, match="a path part must be"):
        SeededNoise(1).at(part)  # type: ignore[arg-type]


def test_secrets_are_32_bytes() -> None:
    for wrong in (b"short", bytes(33), "x" * 32):
        with pytest.raises(ParameterError, match="secret must be 32 bytes"):
            KeyedNoise(wrong)  # type: ignore[arg-type]
    assert len(fresh_secret()) == 32


def test_nothing_shows_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    value = bytes(range(65, 97))
    secret, noise = Secret(value), KeyedNoise(value)
    logging.getLogger("test").warning("%s %r %s %r", secret, secret, noise, noise)
    shown = caplog.text + f"{secret}{secret!r}{noise}{noise!r}{vars(type(secret))}"
    assert value.decode() not in shown
    assert value.hex() not in shown
    for thing in (secret, noise, noise.at("a")):
        for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="not pickled"):
                attempt(thing)


def test_secrets_are_compared_by_value() -> None:
    assert Secret(bytes(32)) == Secret(bytes(32))
    assert Secret(bytes(32)) != Secret(bytes([1] + [0] * 31))
    assert fresh_secret() != fresh_secret()


def test_no_noise_is_zero_everywhere() -> None:
    assert NoNoise().at("x").gaussian(5.0, KEYS).sum() == 0
    assert NoNoise().laplace(5.0) == 0


def test_a_path_with_half_a_character_is_refused() -> None:
    with pytest.raises(ParameterError, match="a path part must be a text that can be written"):
        SeededNoise(1).at("a\ud800").gaussian(sigma=2.0)
