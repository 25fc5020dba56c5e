"""All that can be asked of users, from a topic: the same answers as from memory, a file or a folder."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.kafka.broker import Broker
from tests.stream.test_matrix import BY_TICK, Walk, rows

from pianissimo.io.runs import run_durably
from pianissimo.stream.matrix import TICKS, TOTAL, USER
from pianissimo.stream.source_spec import KafkaTopic, LiveSource
from pianissimo.stream.spec import StreamSpec

pytestmark = pytest.mark.filterwarnings("ignore::pianissimo.errors.BudgetWarning")


def test_from_a_topic_it_answers(broker: Broker, topic: str, tmp_path: Path) -> None:
    broker.make_topic(topic, 1)
    producer = Producer({"bootstrap.servers": broker.brokers, "enable.idempotence": True, "log_level": 0})
    for line in rows().drop("tick").write_ndjson().splitlines():
        producer.produce(topic, line)
    assert producer.flush(30) == 0
    walk = Walk(USER, TOTAL, fixed=True)
    # All rows come in the first ticks: what is about one tick alone has another truth there.
    asked = [query for query in walk.stream().queries if walk.cells[query.name].kind.__name__ not in BY_TICK]
    stream = replace(walk.stream(), queries=asked, tick="2s", origin=datetime.now(UTC) + timedelta(seconds=3))
    spec = StreamSpec(stream=stream, source=LiveSource(kafka=KafkaTopic(brokers=broker.brokers, topic=topic)))
    run_durably(spec, str(tmp_path / "state"))
    with stream.open(tmp_path / "state") as live:
        told = dict(live.released(TICKS))
    assert walk.check(TICKS, told, [query.name for query in asked]) >= len(asked)
