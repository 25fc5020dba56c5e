"""How many of our modules a tick and a reopening visit, of the smallest stream: `python -m tests.faults.walk`.

What a kernel costs is seen best where the queries cost least: one count. `tests/walks.py` shows the README's stream.
"""

import tempfile
from pathlib import Path
from unittest import mock

from tests import walks

import pianissimo as pp


def smallest() -> pp.Stream:
    """One count."""
    return pp.Stream("smallest", budget=pp.Budget(1.0, 1e-9), horizon=720, queries=[pp.Count("n")])


def visited() -> dict[str, dict[str, set[str]]]:
    """The functions that each kind of step visits, by module."""
    with mock.patch.object(walks, "stream", smallest), tempfile.TemporaryDirectory() as folder:
        return walks.walks(Path(folder))


if __name__ == "__main__":
    for name, found in visited().items():
        print(f"{name}: {len(found)} modules, {sum(map(len, found.values()))} functions")
