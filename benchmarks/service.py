"""The service under load on loopback: stored releases a second, readers that wait for a tick, and what sealing pays.

Needs wrk, as Debian has it. The service is a process of its own; the stream is sealed by this one.
"""

import asyncio
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.measure import Row, cpu_seconds
from pianissimo import Budget, Count, Histogram, Stream
from pianissimo.durable.durable_stream import DurableStream

REQUESTS, READERS, SECONDS, TICKS = 5000.0, 2000, 5, 40
_COMMAND = "from pianissimo.cli.main import main; main()"


def stream() -> Stream:
    queries = [Count("visits"), Histogram("cities", key="city", domain=[f"city {each}" for each in range(50)])]
    return Stream("shop", budget=Budget(1, 1e-9), horizon=10_000, queries=queries)


def events(tick: int) -> list[dict[str, str]]:
    return [{"city": f"city {(each * 7 + tick) % 50}"} for each in range(20_000)]


@contextmanager
def served(state: Path) -> Iterator[str]:
    words = [sys.executable, "-c", _COMMAND, "serve", str(state), "--public", "--port", "0"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            yield process.stderr.readline().split()[-1]
        finally:
            process.terminate()


def loaded(address: str, seconds: int = SECONDS) -> tuple[float, str]:
    """Requests a second for a stored release, and the time within which 99 of 100 came."""
    words = ["wrk", "-t1", "-c32", f"-d{seconds}s", "--latency", f"{address}/v1/streams/shop/releases/1"]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    rate, slowest = re.search(r"Requests/sec: +([0-9.]+)", told), re.search(r"99% +(\S+)", told)
    assert rate is not None
    assert slowest is not None
    assert "Non-2xx" not in told
    return float(rate[1]), slowest[1]


async def waiting_readers(address: str, live: DurableStream) -> tuple[int, float]:
    """How many of the readers that wait get the next tick, and after how many seconds the last one."""
    host, port = address.removeprefix("http://").split(":")
    last = live.tick_number
    request = f"GET /v1/streams/shop/releases?after={last} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()

    async def join() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(request)
        await reader.readuntil(b"retry: 1000\n\n")
        return reader, writer

    joined = []
    for _ in range(READERS // 50):
        joined += await asyncio.gather(*(join() for _ in range(50)))
    live.tick(events(last))
    begin = time.monotonic()
    got = await asyncio.gather(
        *(asyncio.wait_for(reader.readuntil(b"event: release"), 60) for reader, _ in joined), return_exceptions=True
    )
    took = time.monotonic() - begin
    for _, writer in joined:
        with suppress(OSError):
            writer.close()
    return sum(isinstance(each, bytes) for each in got), took


def sealing(live: DurableStream) -> float:
    """CPU seconds of some ticks."""
    batches = [events(tick) for tick in range(TICKS)]
    return cpu_seconds(lambda: [live.tick(batch) for batch in batches])


def rows() -> Iterator[Row]:
    if shutil.which("wrk") is None:
        print("  the service is not measured: there is no wrk", file=sys.stderr)
        return
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory() as folder, stream().open(Path(folder, "shop")) as live:
        live.tick(events(0))
        with served(Path(folder, "shop")) as address:
            rate, slowest = loaded(address)
            what = f"stored releases a second from one process, 99 of 100 within {slowest}"
            yield Row(what=what, peer="the bar of 5,000", ours=rate, theirs=REQUESTS, unit="/s", at_least=1.0)
            got, took = asyncio.run(waiting_readers(address, live))
            what = f"readers that wait and get a tick, the last after {took:.2f} s"
            yield Row(what=what, peer="all of 2,000", ours=got, theirs=READERS, unit="", at_least=1.0)
            alone = sealing(live)
            load = subprocess.Popen(
                ["wrk", "-t1", "-c32", "-d60s", f"{address}/v1/streams/shop/releases/1"], stdout=subprocess.DEVNULL
            )
            beside = sealing(live)
            load.terminate()
            load.wait()
        what = f"CPU of {TICKS} ticks of 20,000 events while the service is under load"
        yield Row(what=what, peer="without load", ours=beside, theirs=alone, unit="s", at_most=1.1)
