"""Every change is tested with the same examples; fresh ones come nightly, with PIANISSIMO_FRESH_NOISE set.

What exact audits of tiny worlds found is printed at the end.
"""

import os
from collections.abc import Callable

import pytest
from hypothesis import settings

settings.register_profile("every change", deadline=None, derandomize=True, max_examples=30)
settings.register_profile("nightly", deadline=None)
settings.load_profile("nightly" if os.environ.get("PIANISSIMO_FRESH_NOISE") else "every change")

_WORST = "worst ratio"


@pytest.fixture
def tell_worst(record_property: Callable[[str, object], None]) -> Callable[[str, float], None]:
    """Tell which part of a promise the worst of all enumerated neighbors lost."""
    return lambda audited, ratio: record_property(_WORST, (audited, ratio))


@pytest.fixture
def repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs in memory all have one name, which is random elsewhere: seeded noise is the same in every session."""
    monkeypatch.setattr("pianissimo.stream.live.secrets.token_bytes", bytes)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print them."""
    reports = terminalreporter.getreports("passed")
    found = [each for report in reports for name, each in report.user_properties if name == _WORST]
    if found:
        terminalreporter.section("worst ratios: what exact audits saw lost, of what is promised")
        for audited, ratio in sorted(map(tuple, found)):
            terminalreporter.line(f"{ratio:.4f}  {audited}")
