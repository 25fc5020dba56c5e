"""Records of every kind become rows, each judged alone."""

import polars as pl
import pytest

from pianissimo.io.sources.source_records import Records, RowJudge
from pianissimo.queries import Count, Histogram, Query, Sum
from pianissimo.unit import User

QUERIES: list[Query] = [
    Count("n"),
    Histogram("baskets", key="basket", max_keys_per_event=3, nulls="refuse"),
    Sum("revenue", value="price", range=(0, 9), nulls="refuse"),
]


def records(*texts: str | None, header: str | None = None) -> Records:
    numbers = pl.int_range(2, 2 + len(texts), eager=True)
    return Records(place="x", rank=(), numbers=numbers, texts=pl.Series(texts, dtype=pl.String), header=header)


def judged(reader: RowJudge, given: Records) -> tuple[pl.DataFrame, pl.DataFrame]:
    rows = reader.read(given)
    return rows.table, rows.refused


def test_lines_of_csv_are_read_by_the_header_of_their_file() -> None:
    reader = RowJudge(QUERIES)
    rows, refused = judged(reader, records("a;b,1.5", "", ",2", "c,x", "d", None, header="basket,price"))
    assert rows.rows() == [(["a", "b"], 1.5), ([], 2.0)]
    assert refused["line"].to_list() == [5, 6, 7]
    rows, refused = judged(reader, records("3,e", header="price,basket"))
    assert rows.rows() == [(["e"], 3.0)]


@pytest.mark.parametrize("header", ["", "basket", "price,basket,price", 'basket,"price'])
def test_a_header_that_does_not_fit_refuses_the_lines_of_its_file_alone(header: str) -> None:
    reader = RowJudge(QUERIES)
    rows, refused = judged(reader, records("a,1", "", "b,2", header=header))
    assert (rows.height, refused["line"].to_list()) == (0, [2, 4])
    rows, _ = judged(reader, records('{"basket": ["a", 7], "price": 1}'))
    assert rows.rows() == [(["a", "7"], 1.0)]


def test_without_columns_only_the_number_of_rows_counts() -> None:
    rows, refused = judged(RowJudge([Count("n")]), records("{}", '{"a": 1}', "[]", None))
    assert (rows.height, refused["line"].to_list()) == (2, [4, 5])


def test_every_record_must_name_its_user_where_users_are_hidden() -> None:
    reader = RowJudge([Histogram("drugs", key="drug")], User("who"))
    rows, refused = judged(reader, records('{"drug": "a", "who": 7}', '{"drug": "a"}', '{"drug": "a", "who": null}'))
    assert (rows.height, refused["line"].to_list()) == (1, [3, 4])


def test_nothing_of_a_record_is_shown() -> None:
    assert "canary" not in repr(records("canary"))


@pytest.mark.parametrize(("columns", "counted"), [(4096, 1), (4097, 0), (10_000, 0)])
def test_a_header_of_too_many_columns_refuses_the_lines_of_its_file_alone(columns: int, counted: int) -> None:
    header = ",".join(["drug", *map(str, range(columns - 1))])
    reader = RowJudge([Histogram("drugs", key="drug")])
    rows, refused = judged(reader, records("a" + "," * (columns - 1), header=header))
    assert (rows.height, refused.height) == (counted, 1 - counted)
    assert judged(reader, records('{"drug": "a"}'))[0].height == 1
