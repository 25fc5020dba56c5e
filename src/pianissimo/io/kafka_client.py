"""What the Kafka source and the Kafka sink share: the client library, its settings, and what its faults are called."""

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from pianissimo.errors import InputError, ParameterError

Settings = Mapping[str, Any]
"""Settings of librdkafka by their names there. Values may be secret: no message and no repr contains one."""

_ALWAYS = {
    "bootstrap.servers",
    "error_cb",
    "logger",
    "transactional.id",
    # Other names of what is set.
    "auto.commit.enable",
    "delivery.timeout.ms",
    "metadata.broker.list",
    "request.required.acks",
}
_OURS: dict[str, Any] = {
    # A broker that comes back is found within a second.
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1000,
    # What goes wrong is told by our errors; the library's own lines name hosts.
    "log_level": 0,
}


def kafka_library() -> ModuleType:
    """The client library with its `admin` part, which is an extra."""
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError:
        raise InputError("Kafka must have its client library; pip install pianissimo[kafka]") from None
    return confluent_kafka


def client_settings(brokers: str, settings: Settings | None, fixed: Settings, defaults: Settings) -> dict[str, Any]:
    """All settings of a client: `fixed` may not be given by others, `defaults` may.

    >>> made = client_settings("localhost:9092", {"linger.ms": 5}, {"acks": "all"}, {"linger.ms": 0})
    >>> made["linger.ms"], made["acks"]
    (5, 'all')
    >>> client_settings("localhost:9092", {"acks": "0"}, {"acks": "all"}, {})
    Traceback (most recent call last):
    pianissimo.errors.ParameterError: settings must leave 'acks' to Pianissimo, which sets it; take it out
    """
    if not brokers.strip():
        raise ParameterError("brokers must be addresses as in host:9092,other:9092, got none")
    if "@" in brokers:
        # They are shown, in the names of sinks.
        raise ParameterError("brokers must be addresses as in host:9092, got a user in them; give that in settings")
    given = dict(settings or {})
    taken = sorted(given.keys() & (fixed.keys() | _ALWAYS))
    if taken:
        names = ", ".join(map(repr, taken))
        raise ParameterError(f"settings must leave {names} to Pianissimo, which sets it; take it out")
    return {**_OURS, **defaults, **given, **fixed, "bootstrap.servers": brokers}


def make_client(make: Callable[[dict[str, Any]], Any], every: dict[str, Any], settings: Settings | None) -> Any:
    """A client, or an error that names settings and shows no value: the library's own text quotes them."""
    library = kafka_library()
    try:
        return make(every)
    except (library.KafkaException, TypeError, ValueError):
        names = ", ".join(map(repr, settings or {})) or "none"
        raise ParameterError(
            f"brokers and settings must be such as librdkafka takes, got one that it refuses; settings given: {names}"
        ) from None


def check_topic_name(topic: str) -> None:
    """Refuse what cannot be the name of a topic, without showing it: it may be an address with a password.

    >>> check_topic_name("clicks and more")
    Traceback (most recent call last):
    pianissimo.errors.ParameterError: topic must be of 1 to 249 letters, digits, '.', '_' and '-', got another text
    """
    plain = topic.replace(".", "").replace("_", "").replace("-", "")
    if topic in ("", ".", "..") or len(topic) > 249 or not (plain + "a").isalnum() or not topic.isascii():
        raise ParameterError("topic must be of 1 to 249 letters, digits, '.', '_' and '-', got another text")


def fault_of(error: Any) -> Any:
    """The `KafkaError` within an exception of the library."""
    return error.args[0]


def fault_name(fault: Any) -> str:
    """The name of a fault, as `_TRANSPORT`; its text may quote addresses or settings."""
    return str(fault.name())
