"""What making a stream leaves unloaded: it is imported when it is needed."""

import subprocess
import sys


def test_making_a_stream_loads_nothing_that_prints() -> None:
    program = (
        "import sys, pianissimo as pp; "
        "pp.Stream('s', budget=pp.Budget(1, 1e-9), horizon=10, queries=[pp.Count('c')]); "
        "print([name for name in ('rich', 'sqlglot', 'msgspec', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
