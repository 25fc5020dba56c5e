"""Where events come from: each record is judged by itself, and becomes a row that can be counted or is refused."""

from collections.abc import Mapping
from pathlib import Path

from pianissimo.io.kafka import BROKERS_PATIENCE
from pianissimo.io.sources.follow import FolderFeed, TextFormat
from pianissimo.io.sources.kafka_topics import KafkaFeed
from pianissimo.io.sources.source_records import Feed
from pianissimo.io.sources.standard_input import StandardInput
from pianissimo.stream.source_spec import LiveSource


def make_feed(source: LiveSource, settings: Mapping[str, str], inbox: Path | None = None) -> Feed:
    """What a live source is read with; `settings` are those of its Kafka client, `inbox` is where a service writes."""
    if source.http and inbox is not None:
        inbox.mkdir(parents=True, exist_ok=True, mode=0o700)
        return FolderFeed(inbox, format="jsonl")
    if source.follow is not None:
        form: TextFormat | None = "csv" if source.format == "csv" else "jsonl" if source.format else None
        return FolderFeed(source.follow, format=form)
    if source.kafka is not None:
        topic = source.kafka
        return KafkaFeed(topic=topic.topic, brokers=topic.brokers, settings=settings, wait=BROKERS_PATIENCE)
    return StandardInput()
