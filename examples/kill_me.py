"""Kill a running stream fifty times at random and see that nothing happened.

Two streams begin alike: the second is a copy of the first, secret, witness and all, which only a demonstration may do:
nobody could tell such a copy from the stream itself. One runs undisturbed. The other is killed with kill -9 again and
again, at any instant, and started again. In the end their releases are compared byte by byte.

    python examples/kill_me.py
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pianissimo as pp

TICKS = int(os.environ.get("TICKS", "600"))
KILLS = int(os.environ.get("KILLS", "50"))


def stream() -> pp.Stream:
    return pp.Stream(
        "pharmacy",
        budget=pp.Budget(epsilon=1.0, delta=1e-9),
        horizon=1440,
        queries=[pp.Count("purchases"), pp.Histogram("drugs", key="drug")],
        tick="1m",
    )


def events(tick: int) -> list[dict[str, str]]:
    """What a source gives that can be read again: the events of a tick follow from its number."""
    chance = random.Random(tick)  # noqa: S311
    return [{"drug": chance.choice(["aspirin", "ibuprofen", "codeine"])} for _ in range(chance.randrange(50, 150))]


def run(state: str) -> None:
    """Go on where the stream stands."""
    with stream().open(state) as live:
        print(live.tick_number, flush=True)
        while live.tick_number < TICKS:
            live.tick(events(live.tick_number + 1))


def releases(state: Path) -> list[bytes]:
    with stream().open(state) as live:
        return [live.payload(tick) for tick in range(1, live.tick_number + 1)]


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    stream().open(folder / "undisturbed").close()
    shutil.copytree(folder / "undisturbed", folder / "killed")
    for beside in ("secret", "witness"):
        shutil.copy2(folder / f"undisturbed.{beside}", folder / f"killed.{beside}")
    run(str(folder / "undisturbed"))
    print(f"undisturbed: {TICKS} ticks are released")

    kills = 0
    chance = random.Random()  # noqa: S311
    while kills < KILLS:
        with subprocess.Popen(  # noqa: S603
            [sys.executable, __file__, str(folder / "killed")], stdout=subprocess.PIPE, text=True
        ) as child:
            assert child.stdout is not None  # noqa: S101
            began = child.stdout.readline().strip()
            time.sleep(chance.uniform(0, 0.06))
            os.kill(child.pid, signal.SIGKILL)
        if child.returncode != -signal.SIGKILL:
            sys.exit(f"the stream must go on after a kill, got exit code {child.returncode}")
        kills += 1
        print(f"\rkilled {kills} times, the last time it had begun at tick {began}", end="", flush=True)
    run(str(folder / "killed"))
    same = releases(folder / "undisturbed") == releases(folder / "killed")
    print(f"\nkilled {kills} times: {TICKS} ticks are released, byte-identical: {same}")
    shutil.rmtree(folder)
    if not same:
        sys.exit(1)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run(sys.argv[1])
    else:
        main()
