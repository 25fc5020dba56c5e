"""How far a tick of the smallest durable stream walks through our modules, and how far a reopening."""

import re
import subprocess
import sys

from tests.faults.walk import visited

MOST = {"a tick in memory": 20, "a durable tick": 37, "reopening": 48}
"""Modules. Before the second edition of the house 42 and 66, of a stream with three queries; 25 and 35 right after it,
before shared batches, packed moves, places of files by what changed, the four steps, the stored state, retention, ticks
that are gathered elsewhere or sealed together, keys by purpose, sealed noise, whom charges hide, the fields of queries,
the tables of releases, who may go on and what is stored of a state had files of their own: a file more is fewer lines
to read at a time.
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
