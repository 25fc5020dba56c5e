"""How much CPU it takes to start: the program's help, and `import pianissimo`, against importing polars and numpy."""

import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from benchmarks.measure import Row, as_installed

REPEATS = 7
MOST_SECONDS = 0.15
LIBRARIES = "import numpy, polars"


def cpu_seconds(program: str, *arguments: str) -> float:
    """User and system time of a Python process, the best of several after one that is not timed."""
    best = float("inf")
    command = [sys.executable, "-c", program, *arguments]
    with tempfile.TemporaryDirectory() as compiled:
        for _ in range(REPEATS + 1):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=as_installed(compiled))
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            best = min(best, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return best


def rows() -> Iterator[Row]:
    for arguments in (["--version"], ["--help"], ["recover", "--help"]):
        took = cpu_seconds("from pianissimo.cli.main import main; main()", *arguments)
        what = f"pianissimo {' '.join(arguments)}, CPU"
        yield Row(what=what, peer="the bar", ours=took, theirs=MOST_SECONDS, unit="s", at_most=1.0)
    theirs = cpu_seconds(LIBRARIES)
    for what, program, at_most in (
        ("import pianissimo, CPU", "import pianissimo", 1.3),
        ("import pianissimo and make a Stream, CPU", USED, 2.5),
    ):
        yield Row(what=what, peer=LIBRARIES, ours=cpu_seconds(program), theirs=theirs, unit="s", at_most=at_most)


USED = """
import pianissimo as pp
pp.Stream("s", budget=pp.Budget(epsilon=1.0, delta=1e-9), horizon=10, queries=[pp.Count("c")])
"""
