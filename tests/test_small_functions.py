"""Functions that are small enough to be shown by one line each."""

from dataclasses import dataclass
from datetime import date, timedelta
from fractions import Fraction

import numpy as np
import pytest

from pianissimo import codec
from pianissimo.checks import is_utf8, length_of, length_text, whole_ticks_in
from pianissimo.errors import StateError
from pianissimo.filters import Filter
from pianissimo.identity import from_plain, identified, to_plain
from pianissimo.labels import label_text
from pianissimo.ledger import ledger_beside
from pianissimo.unit import User
from pianissimo.users import Bars, CutOff, Law, QuantilesHead
from pianissimo.users.heads import UserTotal


def test_lengths_and_texts() -> None:
    assert (is_utf8("DE"), is_utf8("\ud800")) == (True, False)
    assert (length_of("1h"), length_of("1y")) == (timedelta(seconds=3600), "12mo")
    assert (length_text(timedelta(minutes=90)), length_text("12mo")) == ("90m", "12mo")
    assert whole_ticks_in("1h", timedelta(minutes=15)) == whole_ticks_in("1y", "3mo") == 4
    assert whole_ticks_in("1y", timedelta(1)) is None
    assert User("customer", max_events_per_user=20, within="1d").period(timedelta(hours=1)) == 24


def test_labels_and_columns() -> None:
    assert [label_text(each) for each in (7, True, date(2026, 1, 31), 1.5)] == ["7", "true", "2026-01-31", None]
    assert Filter.of("paid AND city IS NULL AND age > 60").unclear == ["city", "paid"]


def test_a_ledger_is_beside_its_stream() -> None:
    assert ledger_beside("states/clicks/") == "states/clicks.ledger"
    place = ledger_beside("postgresql://db.example/shop?state=clicks")
    assert place == "postgresql://db.example/shop?ledger=clicks"


def test_what_is_stored_says_what_it_is() -> None:
    with pytest.raises(StateError, match="of kind counter, version 2, got kind counter, version 1"):
        codec.decode("counter", 2, codec.encode("counter", 1, 7))
    plain = {"tuple": [{"fraction": "1/3"}, 0.25, {"microseconds": 60000000}]}
    assert to_plain((Fraction(1, 3), 0.25, timedelta(minutes=1))) == plain
    assert from_plain(plain) == (Fraction(1, 3), 0.25, timedelta(minutes=1))

    @identified("example-of-identity")
    @dataclass(frozen=True)
    class Example:
        size: int
        share: Fraction = Fraction(1)

    assert to_plain(Example(size=3)) == {"is": "example-of-identity/1", "size": 3}
    assert from_plain(to_plain(Example(size=3, share=Fraction(1, 2)))) == Example(size=3, share=Fraction(1, 2))


def test_bars_reach_over_what_is_cut_off() -> None:
    total = UserTotal(estimate=1000, law=Law(None, 0, None), cut=CutOff(cap=64, users_above=10))
    assert total.bars(0.95, most_units=100) == Bars(low=1000.0, high=1360.0)


def test_quantiles_of_exact_counts() -> None:
    head = QuantilesHead(name="seconds", low=0.0, high=60.0, depth=6)
    assert (head.cells, head.series, head.sensitivity.total) == (64, 127, 7)
    head = QuantilesHead(name="seconds", low=0.0, high=4.0, depth=2)
    value = head.value(np.array([0, 4, 0, 1, 4, 1, 5]), Law(None, 0, None), CutOff(64, None), is_signed=False)
    assert (value.quantile(Fraction(1, 2)), value.bars(Fraction(1, 2), 0.95)) == (1.5, Bars(low=1.0, high=2.0))
    assert (value.kth_largest(1), value.kth_smallest(1)) == (3.0, 2.0)
