"""Every row of the history names a test that is there, and the page of what was seen has every row."""

import re
from pathlib import Path

from tests.history.__main__ import every_row

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "decisions" / "0015-seen-to-fail.md"


def test_every_row_names_a_test_of_today() -> None:
    for row in every_row():
        file, _, name = row.test.partition("::")
        assert re.search(rf"^def {name}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), row.number
        assert row.what


def test_the_page_has_every_row_and_no_other() -> None:
    told = re.findall(r"^\| ([NY]\d+[^|]*) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(told) == sorted(row.number for row in every_row())
