"""The demo: what it generates, what it shows and hides, and what it leaves in a folder."""

import io
import re
import sys
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

from pianissimo.demo import Screen, draw_demo, summary, tick_line
from pianissimo.demo.pharmacy import (
    FLU_DRUG,
    NEW_DRUG,
    RARE_PREFIX,
    SHOPS,
    TICK,
    USUAL_DRUGS,
    WINDOW_TICKS,
    DemoFolder,
    Record,
    pharmacy_batches,
    pharmacy_stream,
    read_demo,
)
from pianissimo.errors import InputError, ParameterError
from pianissimo.noise import Noise
from pianissimo.queries import Count, Histogram, TopK
from pianissimo.stream import Live, StreamRelease
from pianissimo.testing import NoNoise, SeededNoise

TICKS = 30


def play(noise: Noise, ticks: int = TICKS, seed: int = 1) -> tuple[Record, Live]:
    live = Live(pharmacy_stream(ticks).plan(), noise)
    record = Record()
    for batch in pharmacy_batches(ticks, seed):
        record.observe(batch, live.tick(batch), last_hours(live))
    return record, live


def last_hours(live: Live) -> StreamRelease:
    return live.window(f"{min(live.tick_number, WINDOW_TICKS)}h")


def screen_of(record: Record, *, width: int, height: int) -> str:
    """What a terminal of this size shows of the last tick, without escape codes."""
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=width, height=height)
    with Screen(console, ticks=500) as screen:
        screen.show(record)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", console.file.getvalue())  # type: ignore[attr-defined]
    return text[text.rindex("\nTick") :]  # the last of the pictures that were drawn over one another


@pytest.fixture(autouse=True)
def _one_incarnation(monkeypatch: pytest.MonkeyPatch) -> None:
    """With it, seeded noise is the same in every run of these tests."""
    monkeypatch.setattr("pianissimo.stream.live.secrets.token_bytes", bytes)


def test_the_stream_has_a_count_unknown_labels_and_a_top_list_by_the_hour() -> None:
    stream = pharmacy_stream(TICKS)
    count, drugs, shops = stream.queries
    assert isinstance(count, Count)
    assert isinstance(drugs, Histogram)
    assert drugs.domain is None
    assert isinstance(shops, TopK)
    assert shops.k == 5
    assert shops.key != drugs.key, "the histogram, sorted, is a top list of its own labels already"
    assert stream.tick == TICK
    shares = {plan.query.name: float(plan.share) for plan in stream.plan().queries}
    assert shares["drugs"] > shares["purchases"] + shares["top_shops"]


def test_the_same_seed_generates_the_same_purchases() -> None:
    once, again, other = (list(pharmacy_batches(4, seed)) for seed in (7, 7, 8))
    assert all(left.equals(right) for left, right in zip(once, again, strict=True))
    assert not any(left.equals(right) for left, right in zip(once, other, strict=True))


def is_rare(labels: pl.Series) -> pl.Series:
    return labels.str.starts_with(RARE_PREFIX)


def test_purchases_have_a_drug_and_a_shop_of_the_list() -> None:
    for batch in pharmacy_batches(5, seed=1):
        assert batch.schema == {"drug": pl.String, "shop": pl.String}
        assert set(batch["shop"]) <= set(SHOPS)
        assert batch.null_count().sum_horizontal().item() == 0


def test_the_flu_drug_rises_and_the_new_drug_appears_half_way() -> None:
    share = [
        {name: batch["drug"].eq(name).sum() / batch.height for name in (FLU_DRUG, NEW_DRUG)}
        for batch in pharmacy_batches(TICKS, seed=1)
    ]
    assert share[18][FLU_DRUG] > 5 * share[2][FLU_DRUG]
    assert all(each[NEW_DRUG] == 0 for each in share[: TICKS // 2])
    assert all(each[NEW_DRUG] > 0.02 for each in share[TICKS // 2 :])


def test_rare_labels_stay_rare_however_long_the_stream_runs() -> None:
    drugs = pl.concat(list(pharmacy_batches(200, seed=1)))["drug"]
    rare = drugs.filter(is_rare(drugs)).value_counts()
    assert rare.height > 5_000
    assert (rare["count"] < 20).all()
    assert set(drugs.filter(~is_rare(drugs)).unique()) == {*USUAL_DRUGS, FLU_DRUG, NEW_DRUG}


@pytest.mark.parametrize(("ticks", "seed"), [(0, 1), (1, -1)])
def test_ticks_and_seed_are_checked(ticks: int, seed: int) -> None:
    with pytest.raises(ParameterError, match="must be a whole number of at least"):
        next(pharmacy_batches(ticks, seed))


def test_without_noise_the_estimates_are_the_truth() -> None:
    record, live = play(NoNoise())
    assert record.all("purchases")["estimate"].equals(record.all("purchases")["truth"], check_names=False)
    assert record.all("drugs")["estimate"].equals(record.all("drugs")["truth"], check_names=False)
    assert record.intervals_that_held == record.intervals
    # A count, its window and five shops at every tick; each drug has a window too.
    assert record.intervals == 7 * TICKS + 2 * record.all("drugs").height
    assert record.last("top_shops")["key"].to_list() == record.true_top_shops
    truth = pl.concat(list(pharmacy_batches(TICKS, seed=1)))
    assert record.last("purchases")["truth"].item() == truth.height
    counts = dict(truth["drug"].value_counts().iter_rows())
    assert {row["key"]: row["truth"] for row in record.last("drugs").iter_rows(named=True)}.items() <= counts.items()
    assert record.hidden_labels == len(counts) - record.last("drugs").height
    assert record.tick == live.tick_number == TICKS


def test_without_noise_the_window_is_what_the_last_hours_added() -> None:
    record, _ = play(NoNoise())
    batches = list(pharmacy_batches(TICKS, seed=1))
    for tick in (1, 4, 6, 7, TICKS):
        counts = dict(pl.concat(batches[max(0, tick - WINDOW_TICKS) : tick])["drug"].value_counts().iter_rows())
        table = record.all("window_drugs").filter(pl.col("tick") == tick)
        for row in table.iter_rows(named=True):
            assert row["estimate"] == row["truth"] == counts.get(row["key"], 0)
    assert record.last("window_purchases")["estimate"].item() == sum(batch.height for batch in batches[-WINDOW_TICKS:])
    assert record.window_ticks == WINDOW_TICKS


@pytest.mark.parametrize("seed", range(5))
def test_rare_labels_are_never_shown_and_the_drugs_are(seed: int) -> None:
    record, _ = play(SeededNoise(seed))
    assert not is_rare(record.all("drugs")["key"]).any()
    assert set(record.last("drugs")["key"]) == {*USUAL_DRUGS, FLU_DRUG, NEW_DRUG}
    assert record.hidden_labels > 500


@pytest.mark.parametrize("seed", range(5))
def test_most_intervals_hold_the_truth(seed: int) -> None:
    record, _ = play(SeededNoise(seed))
    assert record.intervals_that_held / record.intervals > 0.85


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 50)])
def test_a_terminal_shows_drugs_the_top_list_and_the_window_and_no_rare_label(width: int, height: int) -> None:
    record, _ = play(SeededNoise(1), ticks=8)
    text = screen_of(record, width=width, height=height)
    lines = text.splitlines()
    assert len(lines) < height
    assert all(len(line.rstrip()) <= width for line in lines)
    assert "Tick 8 of 500" in text
    assert "paracetamol" in text
    assert "last 6 hours" in text
    assert re.search(r"top 5 of 24", text, re.IGNORECASE)
    assert all(shop in " ".join(text.split()) for shop in record.last("top_shops")["key"])
    assert "…" not in text
    assert RARE_PREFIX not in text


def test_the_drugs_of_a_screen_have_their_own_error_in_the_window() -> None:
    record, _ = play(SeededNoise(1), ticks=8)
    row = next(line for line in screen_of(record, width=80, height=24).splitlines() if line.startswith("paracetamol"))
    so_far, window = (
        table.filter(pl.col("key") == "paracetamol").row(0, named=True)
        for table in (record.last("drugs"), record.last("window_drugs"))
    )
    numbers = [int(number.replace(",", "")) for number in row.split()[1:7]]
    assert numbers == [
        each for row in (so_far, window) for each in (row["estimate"], row["high"] - row["estimate"], row["truth"])
    ]
    assert so_far["high"] - so_far["estimate"] != window["high"] - window["estimate"]


def test_a_low_terminal_shows_the_first_drugs_and_how_many_more() -> None:
    record, _ = play(SeededNoise(1), ticks=8)
    assert f"and {record.last('drugs').height - 4} more" in screen_of(record, width=80, height=16)


def test_without_a_terminal_each_tick_is_one_plain_line_and_the_last_screen_follows() -> None:
    record, _ = play(SeededNoise(1), ticks=4)
    texts = []
    for ticks in (4, 5):
        console = Console(file=io.StringIO(), width=120)
        with Screen(console, ticks=ticks) as screen:
            screen.show(record)
        texts.append(console.file.getvalue())  # type: ignore[attr-defined]
    last, not_last = texts
    assert not_last == tick_line(record, 5) + "\n"
    assert last.startswith(tick_line(record, 4) + "\n")
    assert "Top 5 of 24" in last
    assert "last 4 hours" in last
    assert RARE_PREFIX not in last
    assert "\x1b" not in last


def test_the_summary_says_how_many_intervals_held_the_truth() -> None:
    record, _ = play(NoNoise(), ticks=4)
    text = summary(record)
    assert f"{record.intervals} of the {record.intervals} released intervals held the truth (100%)" in text
    assert "5 of the 5 shops listed are truly among the first 5" in text


@pytest.mark.parametrize("ticks", [1, 2, 30])
def test_the_picture_is_a_png_of_readable_size(tmp_path: Path, ticks: int) -> None:
    record, live = play(SeededNoise(1), ticks)
    assert draw_demo(record, DemoFolder(tmp_path, live.plan))
    picture = (tmp_path / "estimates.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 20_000
    assert int.from_bytes(picture[16:20], "big") == 1400


def test_without_matplotlib_there_is_no_picture_and_the_rest_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    record, live = play(NoNoise(), ticks=1)
    (tmp_path / "releases.jsonl").touch()
    (tmp_path / "estimates.png").touch()
    assert not draw_demo(record, DemoFolder(tmp_path, live.plan))
    assert {path.name for path in tmp_path.iterdir()} == {"plan.json", "releases.jsonl", "windows.jsonl"}


def test_what_the_folder_holds_is_what_was_released(tmp_path: Path) -> None:
    live = Live(pharmacy_stream(6).plan(), SeededNoise(1))
    folder = DemoFolder(tmp_path, live.plan)
    released, windows = [], []
    for batch in pharmacy_batches(6, seed=1):
        released.append(live.tick(batch))
        windows.append(last_hours(live))
        folder.write(released[-1], windows[-1])
    lines = (tmp_path / "windows.jsonl").read_text().splitlines()
    assert lines == [window.to_json() for window in windows]
    stored = read_demo(tmp_path)
    for release in released:
        for name in release:
            rows = stored[name].filter(pl.col("tick") == release.tick).drop("tick")
            assert rows.to_dicts() == release[name].to_dicts()


def test_a_demo_takes_the_place_of_a_demo_and_never_of_real_releases(tmp_path: Path) -> None:
    _, live = play(NoNoise(), ticks=1)
    for _ in range(2):
        DemoFolder(tmp_path / "demo", live.plan)
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "plan.json").write_text("{}")
    with pytest.raises(InputError, match="must be empty or hold an earlier demo, got other releases"):
        DemoFolder(tmp_path / "real", live.plan)
    assert (tmp_path / "real" / "plan.json").read_text() == "{}"


def test_a_folder_that_cannot_be_is_refused(tmp_path: Path) -> None:
    _, live = play(NoNoise(), ticks=1)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="must be a folder that can be written, got: "):
        DemoFolder(tmp_path / "file", live.plan)


@pytest.mark.parametrize("text", ["{", "[]\n", '{"tick": 1}\n', '{"tick": 1, "releases": {"drugs": 3}}\n'])
def test_damaged_lines_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "releases.jsonl").write_text(text)
    with pytest.raises(InputError, match="must hold one release a line, got damaged text"):
        read_demo(tmp_path)
