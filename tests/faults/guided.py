"""S3: parsers, fuzzed with inputs that are led by the coverage of our code.

`python -m tests.faults.guided SECONDS SEED PARSER ..` fuzzes each in a process of its own and prints a JSON object: of
each parser the exit code, which is another than 0 where an input crashed it or took longer than a second, and all that
libFuzzer told, with its figures at the end.
"""

import importlib
import json
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

LONGEST = 4096
_LOOK_EVERY = 100


FIRST = ("pianissimo", "pianissimo.durable.durable_stream", "pianissimo.io", "pianissimo.stream.spec")
"""What most parsers need: instrumented once, and then there in every process."""


def fuzz_all(seconds: str, seed: str, *names: str) -> dict[str, Any]:
    """Fuzz one parser after the other, each in a fork; instrumenting our code takes longer than a short look at it."""
    import atheris

    with atheris.instrument_imports(include=["pianissimo"]):
        for module in FIRST:
            importlib.import_module(module)
    found = {}
    for name in names:
        with tempfile.TemporaryFile() as told:
            process = os.fork()
            if process == 0:
                _in_a_fork(name, seconds, seed, told.fileno())
            _, status = os.waitpid(process, 0)
            told.seek(0)
            text = told.read().decode(errors="replace")
            found[name] = {"code": os.waitstatus_to_exitcode(status), "told": text}
    return found


def _in_a_fork(parser: str, seconds: str, seed: str, told: int) -> None:
    """It never returns."""
    for stream in (1, 2):
        os.dup2(told, stream)
    try:
        fuzz(parser, seconds, seed)
    except BaseException:  # noqa: BLE001, whatever it is, the fork must not go on as its parent
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(1)


def fuzz(parser: str, seconds: str, seed: str) -> None:
    """Fuzz one parser; it ends the process."""
    # Not at the top: whoever looks through all modules for examples must not have their code changed.
    import atheris

    with atheris.instrument_imports(include=["pianissimo"]):
        from tests.faults import parsers
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        folder = Path(name)
        begin = folder / "begin"
        begin.mkdir()
        valid = parsers.PARSERS[parser][1]
        (begin / "valid").write_bytes(valid)
        problem, _ = parsers.call(parser, valid, folder)  # also imports what it needs, which may take its time

        most = calls = 0

        def one(content: bytes) -> None:
            nonlocal most, calls
            calls += 1
            if calls % _LOOK_EVERY == 1 and (memory := parsers.memory()) > most:
                # libFuzzer ends the process, and what it tells of memory includes the process that began this one.
                most = memory
                print(f"stat::memory: {memory}", file=sys.stderr, flush=True)
            found, took = parsers.call(parser, content, folder)
            if found is not None or took > parsers.SLOW:
                raise AssertionError(found or f"{parser}: {took:.1f} s for {content[:60]!r}")

        if problem is not None:
            raise AssertionError(f"valid input: {problem}")
        options = [f"-max_total_time={seconds}", f"-seed={seed}", f"-max_len={LONGEST}", f"-artifact_prefix={name}/"]
        atheris.Setup(
            [sys.argv[0], *options, "-timeout=60", "-print_final_stats=1", "-rss_limit_mb=0", str(begin)], one
        )
        atheris.Fuzz()


if __name__ == "__main__":
    print(json.dumps(fuzz_all(*sys.argv[1:])))
