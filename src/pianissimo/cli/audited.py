"""What `pianissimo audit` attacks: mechanisms by name or those of a stream file; and its reports as tables."""

from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pianissimo.audit import AuditReport, AuditVerdict, Finding, attacks_on, audit, is_attacked
from pianissimo.audit.replayed import replay_report
from pianissimo.audit.report import Progress
from pianissimo.budget import Budget
from pianissimo.cli import plan_of
from pianissimo.cli.render import plain_table
from pianissimo.counting import Counter, KnownHistogram, MetaHistogram, MetaTopList, Summer, TopList, UnknownHistogram
from pianissimo.errors import ParameterError, SpecError
from pianissimo.labels import Domain
from pianissimo.monitors import AboveThreshold, ThresholdMonitor
from pianissimo.noise import (
    DoublingPlan,
    HaarPlan,
    HaarSkipPlan,
    KeyedNoise,
    SplinePlan,
    ToeplitzPlan,
    TopDownPlan,
    TreePlan,
    fresh_secret,
)
from pianissimo.selection import KnownGauss, KnownGumb, UnkGauss, UnkGumb
from pianissimo.stream.matrix import cells, matrix_streams
from pianissimo.stream.spec import load_spec
from pianissimo.stream.stream_plan import StreamPlan

MATRIX = "matrix"
"""The name under which all that can be asked of anybody is audited."""

_LOUD = Budget(30, 1e-4)
"""For replays, which look at no law of noise: labels that nobody listed are shown of few rows."""

CONFIRMATION = 4
"""What fails is confirmed once, with so many times the runs and fresh noise, and reported either way."""

_HORIZON, _RHO, _EPSILON = 16, 0.5, 1.0
_DOMAIN = Domain(["a", "b", "c"])
_DELTA = Fraction(1, 10**9)

NAMED: dict[str, Callable[[], Any]] = {
    "counter-haar": lambda: Counter(plan=_haar()),
    "counter-haar-skip": lambda: Counter(plan=HaarSkipPlan.calibrated(horizon=_HORIZON, rho=_RHO)),
    "counter-spline": lambda: Counter(plan=SplinePlan.calibrated(horizon=_HORIZON, rho=_RHO)),
    "counter-tree": lambda: Counter(plan=TreePlan.calibrated(horizon=_HORIZON, rho=_RHO)),
    "counter-doubling": lambda: Counter(plan=DoublingPlan.calibrated(horizon=_HORIZON, rho=_RHO)),
    "counter-toeplitz": lambda: Counter(plan=ToeplitzPlan.calibrated(horizon=_HORIZON, rho=_RHO)),
    "counter-top-down": lambda: Counter(plan=TopDownPlan.calibrated(horizon=_HORIZON, epsilon=_EPSILON)),
    "counter-tree-pure": lambda: Counter(plan=TreePlan.calibrated(horizon=_HORIZON, epsilon=_EPSILON)),
    "sum-haar": lambda: Summer(plan=HaarPlan.calibrated(horizon=_HORIZON, rho=_RHO / 100**2), low=-50, high=100),
    "histogram-known": lambda: KnownHistogram(plan=_haar(), domain=_DOMAIN, max_keys_per_event=2),
    "histogram-unknown": lambda: UnknownHistogram(plan=_haar(), delta=_DELTA, max_keys_per_event=2),
    "one-shot-counts": lambda: KnownGauss.calibrated(domain=_DOMAIN, rho=_RHO),
    "one-shot-race": lambda: KnownGumb.calibrated(domain=_DOMAIN, k=2, rho=_RHO),
    "one-shot-unknown-counts": lambda: UnkGauss.calibrated(candidates=10, rho=_RHO, delta=_DELTA, max_keys_per_event=2),
    "one-shot-unknown-race": lambda: UnkGumb.calibrated(k=2, candidates=10, rho=_RHO, delta=_DELTA),
    "tree-of-counts": lambda: _tree(KnownGauss.calibrated(domain=_DOMAIN, rho=_RHO / 3)),
    "tree-of-unknown-counts": lambda: _tree(UnkGauss.calibrated(candidates=10, rho=_RHO / 3, delta=_DELTA)),
    "tree-of-races": lambda: MetaTopList(histogram=_tree(KnownGumb.calibrated(domain=_DOMAIN, k=2, rho=_RHO / 3)), k=2),
    "tree-of-unknown-races": lambda: _tree(UnkGumb.calibrated(k=2, candidates=10, rho=_RHO / 3, delta=_DELTA)),
    "above-threshold": lambda: AboveThreshold(threshold=20, epsilon=_EPSILON),
    "above-threshold-any": lambda: AboveThreshold(threshold=20, epsilon=_EPSILON, monotone=False),
    "threshold-monitor": lambda: ThresholdMonitor.calibrated(epsilon=_EPSILON, delta=1e-6, k=1, threshold=10**6),
    "top-list": lambda: TopList(histogram=UnknownHistogram(plan=_haar(), delta=_DELTA), k=3),
}
"""Mechanisms to audit by name: 16 ticks, rho 1/2 or epsilon 1 a label; monitors at epsilon 1 a user."""


def mechanisms_of(target: str) -> dict[str, Any]:
    """The mechanism of this name, or those that a stream file would run, by the names of its queries."""
    if target in NAMED:
        return {target: NAMED[target]()}
    if target == MATRIX:
        return {}
    path = Path(target)
    if not path.suffix and not path.exists():
        known = ", ".join([MATRIX, *NAMED])
        raise SpecError(f"what is audited must be a stream file or one of {known}, got {target!r}")
    queries = plan_of(load_spec(path), path).queries
    return {each.query.name: each.mechanism for each in queries if is_attacked(each.mechanism)}


def replays_of(target: str) -> dict[str, StreamPlan]:
    """What is replayed with neighbors: the stream of a file, or all cells of the table of what can be asked of whom."""
    if target in NAMED:
        return {}
    if target == MATRIX:
        return {name: stream.plan() for name, stream in matrix_streams(cells(), _LOUD).items()}
    spec = load_spec(Path(target))
    return {f"stream {spec.stream.name}": plan_of(spec, Path(target))}


def replay_all(plans: Mapping[str, StreamPlan]) -> dict[str, list[AuditReport]]:
    """The report of each."""
    return {name: [replay_report(plan, KeyedNoise(fresh_secret()))] for name, plan in plans.items()}


def audit_all(
    mechanisms: Mapping[str, Any], *, runs: int, progress: Progress | None = None
) -> dict[str, list[AuditReport]]:
    """The report on each mechanism, and a second one, with more runs, on each that is not sound."""
    for name, mechanism in mechanisms.items():
        try:
            attacks_on(mechanism)
        except ParameterError as error:
            raise ParameterError(f"{name!r}: {error}") from None
    reports = {}
    for number, (name, mechanism) in enumerate(mechanisms.items()):

        def advance(done: int, total: int, number: int = number) -> None:
            if progress is not None:
                progress(number * total + done, len(mechanisms) * total)

        found = [audit(mechanism, runs=runs, progress=advance)]
        if found[0].verdict is not AuditVerdict.SOUND:
            found.append(audit(mechanism, runs=CONFIRMATION * runs, progress=advance))
        reports[name] = found
    return reports


def to_plain(reports: Mapping[str, list[AuditReport]]) -> dict[str, Any]:
    """Reports as plain data, ready for JSON, with the worst verdict of all, first or second."""
    verdicts = [report.verdict for found in reports.values() for report in found]
    worst = next(each for each in (AuditVerdict.VIOLATION, AuditVerdict.BLIND, AuditVerdict.SOUND) if each in verdicts)
    audits = [
        {"name": name, **found[0].to_dict(), "confirmation": found[1].to_dict() if found[1:] else None}
        for name, found in reports.items()
    ]
    return {"verdict": worst.value, "audits": audits}


def audit_tables(reports: Mapping[str, list[AuditReport]]) -> RenderableType:
    """Reports as tables, for a terminal."""
    parts: list[RenderableType] = []
    for name, found in reports.items():
        for place, report in enumerate(found):
            head = Text(f"{name}: {report.mechanism}, ", style="bold")
            head.append(report.verdict.value, style="green" if report.verdict is AuditVerdict.SOUND else "red")
            if place:
                head.append(f" (confirmation with {CONFIRMATION} times the runs)")
            parts += [head, _finding_table(report.findings)]
            parts += [_parts_line(report), Text()] if report.parts else [Text()]
    note = (
        "'at least' is a lower bound on what one event, or one user, loses: it must not be above 'claimed'. All of one "
        "mechanism's hold together with confidence 0.99999. 'Move' and 'places' are exact: two neighboring streams "
        "ran under the same noise. 'Move' is by how much their numbers differ, as a share of what is allowed; 'places' "
        "is in how many pairs the noise was not drawn at the same places, and must be 0."
    )
    return Group(*parts, Text(note, style="dim"))


def _finding_table(findings: tuple[Finding, ...]) -> Table:
    numbers = ["claimed", "at least", "expected", "releases", "runs"]
    table = plain_table(left=["the streams differ by", "measure"], right=numbers)
    table.add_column("verdict")
    for finding in findings:
        table.add_row(
            finding.pair,
            finding.measure,
            f"{finding.claim:.3g}",
            f"{finding.lower_bound:.3g}",
            "-" if finding.expected is None else f"{finding.expected:.3g}",
            "-" if finding.releases is None else str(finding.releases),
            f"{finding.runs:,}" if finding.runs else "-",
            finding.verdict.value,
        )
    return table


def _parts_line(report: AuditReport) -> Text:
    """The parts that a mechanism is composed of."""
    parts = [
        f"{part.times} x {part.name} ({f'rho {float(part.rho):.3g}' if part.rho else f'delta {float(part.bad):.3g}'})"
        for part in report.parts
    ]
    return Text(f"parts: {' + '.join(parts)}", style="dim")


def _haar(rho: Fraction | float = _RHO) -> HaarPlan:
    return HaarPlan.calibrated(horizon=_HORIZON, rho=rho)


def _tree(answer: KnownGauss | KnownGumb | UnkGauss | UnkGumb) -> MetaHistogram:
    return MetaHistogram(base=3, horizon=_HORIZON, answer=answer)
