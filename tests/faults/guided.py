"""S3: one parser, fuzzed with inputs that are led by the coverage of our code.

`python -m tests.faults.guided PARSER SECONDS SEED` ends with libFuzzer's figures, and with another exit code than 0
where an input crashed the parser or took longer than a second.
"""

import sys
import tempfile
from pathlib import Path

LONGEST = 4096
_LOOK_EVERY = 100


def main(parser: str, seconds: str, seed: str) -> None:
    """Fuzz; it ends the process."""
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
    main(*sys.argv[1:])
