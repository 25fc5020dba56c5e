"""R1: no reachable state of the protocol breaks an invariant; every broken variant is caught."""

import time

from tests.faults.beginning_model import Beginning
from tests.faults.beginning_model import search as search_beginnings
from tests.faults.protocol_model import BROKEN, Protocol, Scope, search
from tests.faults.report import SOAK, caught, record

SMALL = Scope(events=1, ticks=2, crashes=1)
FULL = Scope(events=2, ticks=2, crashes=2, losses=1) if SOAK else Scope(events=1, ticks=3, crashes=1)


def test_no_reachable_state_breaks_an_invariant_and_every_broken_variant_does() -> None:
    begin = time.process_time()
    found = search(Protocol(), FULL, most=10**8)
    broken = {}
    for name, protocol in BROKEN.items():
        outcome = search(protocol, SMALL)
        broken[name] = outcome.violation
        if outcome.violation is not None:
            caught(f"model: {name}", by=f"R1: {outcome.violation}")
    seconds = time.process_time() - begin
    violations = 0 if found.violation is None else 1
    killed = sum(problem is not None for problem in broken.values())
    record(
        "R1",
        "model",
        figure=f"{found.states:,} states, {violations} violations, {killed}/{len(BROKEN)} variants, {seconds:.0f} s",
        bar=f">= 1,000,000 states, 0 violations, {len(BROKEN)}/{len(BROKEN)} variants, <= 60 s of CPU",
        passed=found.states >= 1_000_000
        and violations == 0
        and killed == len(BROKEN) >= 13
        and (SOAK or seconds <= 60),
        variants=broken,
    )


def test_no_beginning_runs_two_streams_for_one_charge_and_every_broken_variant_does() -> None:
    states, problem = search_beginnings(Beginning())
    names = ("inserts_before_use", "inserts_before_witness", "starts_unpaid", "starts_without_witness")
    broken = {name: search_beginnings(Beginning(**{name: True}))[1] for name in names}
    killed = sum(map(bool, broken.values()))
    record(
        "R1",
        "the beginning of a life",
        figure=f"{states:,} states, {int(bool(problem))} violations, {killed}/{len(names)} variants",
        bar=f"0 violations, {len(names)}/{len(names)} variants",
        passed=not problem and killed == len(names),
        variants=broken,
    )
