"""Where releases go: a folder, a Kafka topic, an HTTP address."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pianissimo.errors import ParameterError, SpecError
from pianissimo.io.kafka import BROKERS_PATIENCE
from pianissimo.io.sinks.folder import FolderSink
from pianissimo.stream import StreamPlan
from pianissimo.stream.spec import KafkaTopic, SinkSpec

if TYPE_CHECKING:
    from pianissimo.durable.publish import Sink


def make_sink(spec: SinkSpec, plan: StreamPlan) -> "Sink":
    """What a `[sinks.NAME]` of a stream file sends with."""
    try:
        if spec.kind == "folder":
            assert spec.path is not None  # noqa: S101
            return FolderSink(spec.path, plan=plan.to_dict(), format=spec.format)
        if spec.kind == "kafka":
            from pianissimo.io.kafka import KafkaSink

            assert spec.kafka is not None  # noqa: S101
            topic = spec.kafka
            return KafkaSink(
                topic=topic.topic,
                brokers=topic.brokers,
                stream=plan.name,
                settings=kafka_settings(topic),
                wait=BROKERS_PATIENCE,
            )
        from pianissimo.io.sinks.webhook import WebhookSink

        assert spec.url is not None  # noqa: S101
        url = from_environment(spec.url)
        return WebhookSink(url, name=f"webhook {spec.name}", key=_key(spec.key), timeout=spec.timeout)
    except ParameterError as error:
        raise SpecError(f"sinks.{spec.name}: {error}") from None


def from_environment(text: str) -> str:
    """A text, or, where it is `env:NAME`, what the variable holds."""
    if not text.startswith("env:"):
        return text
    name = text.removeprefix("env:")
    found = os.environ.get(name)
    if not found:
        raise ParameterError(f"the variable {name} must hold what {text} stands for, got nothing")
    return found


def kafka_settings(topic: KafkaTopic) -> Mapping[str, str]:
    """The settings of a topic's client, with what the environment holds."""
    return {name: from_environment(text) for name, text in topic.settings.items()}


def _key(given: str | Path | None) -> bytes | None:
    if given is None:
        return None
    if isinstance(given, str):
        return from_environment(given).encode()
    try:
        if given.stat().st_mode & 0o077:
            raise ParameterError(
                "what key names must be open to its owner alone, got a file that others may read: chmod 600"
            )
        content = given.read_bytes().strip()
    except OSError as error:
        raise ParameterError(f"what key names must be a file with a key, got: {error.strerror}") from None
    if not content:
        raise ParameterError("what key names must hold a key, got nothing")
    return content
