"""How far a tick of the smallest durable stream walks through our modules, and how far a reopening."""

from tests.faults.walk import visited

MOST = {"a tick in memory": 15, "a durable tick": 25, "reopening": 35}
"""Modules. Before the second edition of the house 42 and 66, of a stream with three queries."""


def test_a_tick_and_a_reopening_visit_few_modules() -> None:
    found = {name: len(modules) for name, modules in visited().items()}
    assert all(found[name] <= most for name, most in MOST.items()), found
