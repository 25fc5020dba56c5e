"""Every cell of the matrix, replayed with and without one unit; who forgets users, or lets data choose, is caught.

There is no chance in it: false_alarm_rate 0, whatever the noise.
"""

from functools import cache
from typing import Any

import pytest
from click.testing import CliRunner
from tests.faults.report import size

from pianissimo.audit import AuditReport, AuditVerdict
from pianissimo.audit.replayed import replay_report
from pianissimo.budget import Budget
from pianissimo.cli import audited
from pianissimo.cli.main import cli
from pianissimo.counting import Counter
from pianissimo.stream.matrix import cells, matrix_streams
from pianissimo.stream.stream_plan import StreamPlan
from pianissimo.testing import SeededNoise
from pianissimo.users.user_table import UserUnits

pytestmark = pytest.mark.filterwarnings("ignore::pianissimo.errors.BudgetWarning")


@cache
def plans() -> dict[str, StreamPlan]:
    return {name: stream.plan() for name, stream in matrix_streams(cells(), Budget(30, 1e-4)).items()}


def replayed(name: str, pairs: int = 2) -> AuditReport:
    return replay_report(plans()[name], SeededNoise(5), pairs=pairs)


def test_no_unit_moves_more_than_it_may_and_none_chooses_noise() -> None:
    assert len(plans()) >= 12
    for name in plans():
        report = replayed(name, pairs=size(1, 2))
        # Of one pair a query may happen to see nothing move, of two none.
        seen = [each.verdict for each in report.findings]
        assert set(seen) <= {AuditVerdict.SOUND, AuditVerdict.BLIND}, (name, str(report), report.decisive)
        assert seen.count(AuditVerdict.BLIND) <= size(len(seen) // 4, 0), (name, report.findings)


def blamed(name: str) -> set[str]:
    """The queries that are found to break their promise."""
    found = replayed(name).findings
    return {each.pair.partition(":")[0] for each in found if each.verdict is AuditVerdict.VIOLATION}


def forget(monkeypatch: pytest.MonkeyPatch, *, at_restart: bool) -> None:
    """The mutant: users begin anew with each batch, or are lost in a restart."""
    if at_restart:
        monkeypatch.setattr(UserUnits, "take_plain", lambda self, content: self.set_cap(content["cap"]))
        return
    add = UserUnits._add

    def forgetful(self: UserUnits, *given: Any) -> Any:
        self.clear()
        return add(self, *given)

    monkeypatch.setattr(UserUnits, "_add", forgetful)


@pytest.mark.parametrize("at_restart", [False, True])
def test_users_that_are_forgotten_are_seen(at_restart: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    plans()
    forget(monkeypatch, at_restart=at_restart)
    assert {"histogram_known_labels", "topk_known_labels"} <= blamed("user: total, fixed cap")


def test_noise_that_the_data_choose_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    plans()
    release = Counter.release

    def chosen(self: Counter, state: Any, tick: int, noise: Any) -> int:
        return release(self, state, tick, noise.at("total", state.total))

    monkeypatch.setattr(Counter, "release", chosen)
    assert "all noise" in blamed("event: total")


def test_the_command_replays_the_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    few = [each for each in cells() if each.kind.__name__ == "Count" and each.time == "total"]
    monkeypatch.setattr(audited, "cells", lambda: few)
    done = CliRunner().invoke(cli, ["audit", "matrix"])
    assert done.exit_code == 0, done.output
    assert "user: total, cap that follows" in done.output
    assert "violation" not in done.output
