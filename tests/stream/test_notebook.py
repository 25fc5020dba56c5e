"""What a notebook shows: tables without markup from outside, short reprs, pictures, progress, a warning of spending."""

import sys
from html import escape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import numpy as np
import polars as pl
import pytest
from nbclient import NotebookClient

import pianissimo as pp
from pianissimo.errors import BudgetWarning, ParameterError, StateError
from pianissimo.stream.live import Live
from pianissimo.stream.shown import notebook, told_rows
from pianissimo.testing import NoNoise

ROOT = Path(__file__).parent.parent.parent
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
BAD = "<img src=x onerror=alert(1)>"
LONGEST_REPR = 400


def stream_of(*queries: Any, **more: Any) -> pp.Stream:
    asked = queries or (pp.Count("n"), pp.Histogram("drugs", key="drug"), pp.Quantiles("q", value="v", range=(0, 10)))
    given = {"budget": pp.Budget(1, 1e-9), "horizon": 24, "tick": "1h", **more}
    return pp.Stream("shop", queries=asked, **given)


def hour() -> pl.DataFrame:
    return pl.DataFrame({"drug": [BAD] * 500 + ["$x_$"] * 400, "v": np.arange(900) % 10, "user": np.arange(900) % 300})


def texts_of(figure: Any) -> str:
    axes = figure.get_axes()
    named = [label.get_text() for each in axes for label in (*each.get_yticklabels(), *each.get_xticklabels())]
    legends = [text.get_text() for each in axes if each.get_legend() for text in each.get_legend().get_texts()]
    return "\n".join([*named, *legends, *(each.get_title(loc="left") for each in axes), figure.get_suptitle()])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_something(path: Path, tmp_path: Path) -> None:
    content: Any = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    assert not any(cell.get("outputs") for cell in content.cells), "notebooks are kept without what they print"
    NotebookClient(content, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    kinds = {kind for cell in content.cells for each in cell.get("outputs", ()) for kind in each.get("data", ())}
    assert {"text/html", "image/png"} <= kinds
    assert not any(each.output_type == "error" for cell in content.cells for each in cell.get("outputs", ()))


def test_there_are_five_notebooks() -> None:
    assert len(NOTEBOOKS) == 5


def test_nothing_from_outside_becomes_markup() -> None:
    stream = stream_of(pp.Count("n"), pp.Histogram("drugs", key=BAD))
    release = stream_of().start().tick(hour())
    for shown in (stream.plan()._repr_html_(), release._repr_html_()):
        assert BAD not in shown
    assert "&lt;img" in release._repr_html_()
    assert "&lt;img" in stream.plan()._repr_html_()


def test_a_notebook_shows_what_the_terminal_shows() -> None:
    span: dict[str, Any] = {"range": (0, 200)}
    asked = [
        pp.Count("n"),
        pp.Histogram("drugs", key="drug", domain=["a", "b", "c"]),
        pp.Sum("signed", value="price", range=(-200, 200)),
        pp.Mean("mean", value="price", **span),
    ]
    stream = pp.Stream("s", budget=pp.Budget(1, 1e-6), horizon=40, queries=asked)
    rows = [{"drug": "b", "price": 40.0}] * 900 + [{"drug": "c", "price": 40.0}] * 2
    release = Live(stream.plan(), NoNoise()).tick(rows)
    facts = release.about()
    drugs, note = told_rows.told_frame(release["drugs"], facts, "drugs")
    high = release["drugs"].filter(key="c")["high"][0]
    assert drugs["key"].to_list() == ["b", "a", "c"]
    assert drugs["estimate"].to_list() == ["900", f"at most {high - 2}", f"at most {high}"]
    assert note.startswith("2 of 3 labels cannot be told from noise: they have no order. Cut at 0; the release itself")
    assert note in release._repr_html_()
    assert f"at most {high}" in release._repr_html_()
    for name in ("n", "signed"):
        assert told_rows.told_frame(release[name], facts, name)[0].equals(release[name])
    empty = Live(stream.plan(), NoNoise()).tick([])
    assert told_rows.told_frame(empty["n"], facts, "n")[0]["estimate"][0].startswith("at most ")
    assert told_rows.told_frame(empty["mean"], facts, "mean")[0]["estimate"].to_list() == ["not known"]
    # What is below zero by itself, and where no plan is at hand, is as it was released.
    assert told_rows.told_frame(empty["signed"], facts, "signed")[0].equals(empty["signed"])
    assert told_rows.told_frame(empty["n"], {}, "n")[0].equals(empty["n"])


def test_a_plan_as_html_tells_promise_errors_and_thresholds() -> None:
    plan = stream_of().plan()
    shown = plan._repr_html_()
    for query in plan.to_dict()["queries"]:
        assert all(escape(line) in shown for line in query["words"][1:])
    count, drugs, quantiles = plan.queries
    assert drugs.thresholds is not None
    for told in ("epsilon 1 and delta 1e-09", "It hides one event", f"<td>{drugs.thresholds[0]:,}</td>", "ranks</td>"):
        assert told in shown
    assert not any(word in shown.lower() for word in ("toeplitz", "haar", "rho"))
    assert f"{count.expected_error.typical:.3g}" in shown
    assert quantiles.query.name in shown


def test_reprs_are_short() -> None:
    stream = stream_of(*(pp.Histogram(f"labels_{each}", key="drug") for each in range(5)))
    plan, live = stream.plan(), stream.start()
    for each in (plan, live, live.tick(hour()), plan.queries[0], plan.budget, plan.price):
        assert len(repr(each)) < LONGEST_REPR


def test_a_picture_of_a_release_has_its_labels_and_the_numbers_of_its_table() -> None:
    release = stream_of().start().tick(hour())
    figure = release.plot()
    told = texts_of(figure)
    assert "drugs" in told
    assert r"\$x_\$" in told  # a dollar sign is no formula
    lines = [line.get_xdata() for line in figure.get_axes()[1].get_lines()]
    assert {float(each) for each in release["drugs"]["estimate"]} <= {float(x) for line in lines for x in line}
    assert {float(each) for each in release["drugs"]["high"]} <= {float(x) for line in lines for x in line}


def test_a_number_without_a_bar_is_drawn_among_whole_numbers() -> None:
    live = stream_of(pp.Trending("drugs", key="drug"), unit=pp.user("user"), horizon=2).start()
    sick = pl.DataFrame({"drug": ["cough"] * 2000, "user": range(2000)})
    release = live.tick(sick)
    assert release["exhausted"]["low"][0] == release["exhausted"]["high"][0]
    (axes,) = (each for each in release.plot().get_axes() if each.get_title(loc="left") == "exhausted")
    begin, end = axes.get_xlim()
    assert 2 < end - begin < 3


def test_a_picture_of_a_live_stream_has_the_totals_of_its_ticks() -> None:
    live = stream_of(pp.Count("n")).start()
    released = [live.tick(hour())["n"]["estimate"].item() for _ in range(4)]
    (axes,) = live.plot().get_axes()
    assert axes.get_lines()[0].get_ydata().tolist() == released


def test_open_ends_are_told_in_the_picture() -> None:
    live = stream_of(pp.Count("visits"), unit=pp.user("user")).start()
    live.tick(hour())
    assert "or more" in texts_of(live.plot())
    assert "95 % of such intervals hold the truth; open ends" in live.plot().get_supxlabel()


def test_what_is_said_below_a_picture_fits_in_it_and_names_what_is_not_shown() -> None:
    queries = (pp.Count("n"), pp.Histogram("rare", key="drug"))
    live = stream_of(*queries, unit=pp.user("user")).start()
    release = live.tick(hour().head(3))
    for figure in (release.plot(), live.plot()):
        assert "Not shown, as nothing is above its threshold: rare." in figure.get_supxlabel()
        figure.canvas.draw()
        below = figure._supxlabel.get_window_extent()
        assert 0 <= below.x0 < below.x1 <= figure.bbox.width


def test_a_picture_of_a_plan_has_every_query() -> None:
    told = texts_of(stream_of().plan().plot())
    assert all(name in told for name in ("n", "drugs", "q\n(ranks)"))


def test_a_durable_stream_is_drawn_as_a_live_one(tmp_path: Path) -> None:
    with stream_of(pp.Count("n")).open(tmp_path / "state") as live:
        released = [live.tick(hour())["n"]["estimate"].item() for _ in range(3)]
        (axes,) = live.plot().get_axes()
    assert axes.get_lines()[0].get_ydata().tolist() == released


def test_what_cannot_be_drawn_is_said() -> None:
    with pytest.raises(StateError, match="must have released a tick"):
        stream_of().start().plot()
    with pytest.raises(ParameterError, match="no label has reached its threshold"):
        stream_of(pp.Histogram("drugs", key="drug")).start().tick().plot()


def test_without_matplotlib_the_way_out_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ParameterError, match=r"pip install pianissimo\[plot\]"):
        stream_of().plan().plot()


def in_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object()))
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setattr(notebook, "_STARTED", set())


def test_a_cell_that_starts_a_stream_again_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    in_a_kernel(monkeypatch)
    stream_of().start()
    with pytest.warns(BudgetWarning, match="spends its epsilon again"):
        stream_of().start()


@pytest.mark.filterwarnings("error")
def test_outside_of_a_notebook_nobody_is_warned() -> None:
    stream_of().start()
    stream_of().start()


def test_progress_in_a_notebook_counts_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    handle = SimpleNamespace(update=shown.append)

    def display(first: str, *, display_id: bool) -> Any:
        assert display_id
        shown.append(first)
        return handle

    in_a_kernel(monkeypatch)
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(HTML=str, display=display))
    assert list(notebook.progress_of(range(7), "ticks", shown=True)) == list(range(7))
    assert shown[0].endswith("0 of 7 ticks")
    assert shown[-1].endswith("7 of 7 ticks")
