"""Run the programs and print what they found: `python -m benchmarks.scale [NAME ...] [--small]`, all without a name."""

import sys
import time
from importlib import import_module

EVERY = (
    "one_shard",
    "driver_alone",
    "executor_model",
    "many_shards",
    "floor_on_and_off",
    "blob_store",
    "failure_storm",
)


def main() -> int:
    asked = [each for each in sys.argv[1:] if each != "--small"]
    unknown = [each for each in asked if each not in EVERY]
    if unknown:
        raise SystemExit(f"a program must be one of {', '.join(EVERY)}, got {unknown[0]!r}")
    for name in asked or EVERY:
        begin = time.process_time()
        print(name, flush=True)
        for figure in import_module(f"benchmarks.scale.{name}").figures(small="--small" in sys.argv):
            print(f"  {figure}", flush=True)
        print(f"  ({time.process_time() - begin:.1f} s of CPU)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
