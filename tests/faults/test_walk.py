"""How far a tick of the smallest durable stream walks through our modules, and how far a reopening."""

import re
import subprocess
import sys

from tests.faults.walk import visited

MOST = {"a tick in memory": 20, "a durable tick": 37, "reopening": 48}
"""Modules that are visited, of which whoever follows such a step reads something: a file more is fewer lines to read at
a time, and one more place to look.
"""


def test_a_tick_and_a_reopening_visit_few_modules() -> None:
    found = {name: len(modules) for name, modules in visited().items()}
    assert all(found[name] <= most for name, most in MOST.items()), found


def test_loading_the_package_starts_no_threads_of_polars() -> None:
    """Who loads it and forks then, as a fork server does, would have children that wait forever for such threads."""
    told = (
        "import os; import pianissimo.queries, pianissimo.stream, pianissimo.durable.durable_stream; "
        "print(*(open(f'/proc/self/task/{each}/comm').read().strip() for each in os.listdir('/proc/self/task')))"
    )
    names = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True).stdout.split()
    assert names
    assert not [each for each in names if re.fullmatch(r"polars-\d+", each)]
