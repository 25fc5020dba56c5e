"""A durable stream that reads a Kafka topic, with the broker on the same machine."""

import json
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from confluent_kafka import Producer
from tests.kafka.broker import Broker, kafka_server

from benchmarks.measure import Row
from pianissimo.io.runs import run_durably
from pianissimo.stream.spec import load_spec

EVENTS = 5_000_000
KEYS = 100_000
PARTITIONS = 2
LEAST_EVENTS_A_SECOND = 5e5

_TOPIC = "purchases"
_SPEC = """
[stream]
name = "shop"
epsilon = 1.0
delta = 1e-9
tick = "1m"
horizon = 100
origin = {origin}

[source]
kafka = {{ brokers = "{brokers}", topic = "{topic}" }}
until = 1

[queries.purchases]
kind = "count"

[queries.drugs]
kind = "histogram"
key = "drug"
"""


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder, kafka_server() as broker:
        broker.make_topic(_TOPIC, PARTITIONS)
        produce(broker)
        seconds = read_and_seal(broker, Path(folder))
    yield Row(
        what=f"Kafka to SQLite, {EVENTS:.0e} messages waiting, {KEYS:.0e} keys, broker on the same cores",
        peer=f"{LEAST_EVENTS_A_SECOND:.0e} events a second",
        ours=EVENTS / seconds,
        theirs=LEAST_EVENTS_A_SECOND,
        unit="events/s",
        at_least=1,
    )


def produce(broker: Broker) -> None:
    """One JSON object a message, keys by Zipf's law."""
    settings = {"compression.type": "lz4", "linger.ms": 50, "batch.num.messages": 100_000, "log_level": 0}
    producer = Producer({"bootstrap.servers": broker.brokers, "queue.buffering.max.messages": 1_000_000, **settings})
    weights = np.cumsum(1 / np.arange(1, KEYS + 1))
    rng = np.random.default_rng(9)
    places = np.searchsorted(weights, rng.random(EVENTS) * weights[-1])
    texts = [json.dumps({"drug": f"drug-{number:06}", "price": number % 100}) for number in range(KEYS)]
    for number, place in enumerate(places.tolist()):
        if number % 10_000 == 0:
            producer.poll(0)
        while True:
            try:
                producer.produce(_TOPIC, texts[place], partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush(60)


def read_and_seal(broker: Broker, folder: Path) -> float:
    """All messages wait when the first tick is over."""
    origin = datetime.now(UTC) - timedelta(minutes=1)
    file = folder / "shop.toml"
    file.write_text(_SPEC.format(origin=origin.isoformat(), brokers=broker.brokers, topic=_TOPIC))
    spec = load_spec(file)
    start = time.perf_counter()
    run_durably(spec, str(folder / "state"))
    return time.perf_counter() - start
