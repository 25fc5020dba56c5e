"""Which modules of ours a tick visits, in memory and durable, and which a reopening: `python -m tests.walks`.

The stream is that of the README: a count, a histogram of unknown labels and one over a domain. A module is visited if a
function of it is called; running the module itself, when it is imported, does not count.
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pianissimo as pp

SOURCE = Path(pp.__file__).parent
BATCH = [{"drug": "aspirin", "region": "north"}] * 500


def stream() -> pp.Stream:
    return pp.Stream(
        "pharmacy",
        budget=pp.Budget(epsilon=1.0, delta=1e-9),
        horizon=720,
        tick="1h",
        queries=[
            pp.Count("purchases"),
            pp.Histogram("drugs", key="drug"),
            pp.Histogram("regions", key="region", domain=["north", "east", "south", "west"]),
        ],
    )


def visited(action: Callable[[], object]) -> dict[str, set[str]]:
    """The functions that are called, by module."""
    found: dict[str, set[str]] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(SOURCE)) and code.co_name != "<module>":
            module = Path(code.co_filename).relative_to(SOURCE).with_suffix("").as_posix()
            found.setdefault(module, set()).add(code.co_qualname)

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return found


def walks(folder: Path) -> dict[str, dict[str, set[str]]]:
    """What each kind of step visits, once everything is imported and warm."""
    live = stream().start()
    live.tick(BATCH)
    found = {"a tick in memory": visited(lambda: live.tick(BATCH))}
    state = folder / "state"
    with stream().open(state) as durable:
        durable.tick(BATCH)
        found["a durable tick"] = visited(lambda: durable.tick(BATCH))

    def reopen() -> None:
        with stream().open(state):
            pass

    found["reopening"] = visited(reopen)
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, found in walks(Path(folder)).items():
            functions = sum(map(len, found.values()))
            print(f"{name}: {len(found)} modules, {functions} functions")
            for module in sorted(found):
                print(f"    {module:40} {len(found[module])}")


if __name__ == "__main__":
    main()
