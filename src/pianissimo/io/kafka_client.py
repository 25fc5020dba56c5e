"""What the Kafka source and the Kafka sink share: the client library, its settings, and what its faults are called."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from types import ModuleType
from typing import Any

from pianissimo.errors import InputError, ParameterError

Settings = Mapping[str, Any]
"""Settings of librdkafka by their names there. Values may be secret: no message and no repr contains one."""

BROKERS_PATIENCE = timedelta(seconds=5)
"""So long one question to brokers may take; then the loop says that it waits, and asks again."""

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


def seconds_of(wait: timedelta) -> float:
    """How long brokers are waited for.

    >>> seconds_of(timedelta(0))
    Traceback (most recent call last):
    pianissimo.errors.ParameterError: wait must be positive, got 0:00:00
    """
    if not wait > timedelta():
        raise ParameterError(f"wait must be positive, got {wait}")
    return wait.total_seconds()


def fault_of(error: Any) -> Any:
    """The `KafkaError` within an exception of the library."""
    return error.args[0]


def fault_name(fault: Any) -> str:
    """The name of a fault, as `_TRANSPORT`; its text may quote addresses or settings."""
    return str(fault.name())


class FaultCodes:
    """Which faults mean what. What is in none of them, and is not to be tried again, stops the stream."""

    def __init__(self, code: Any) -> None:
        self.end_of_partition = code._PARTITION_EOF
        self.lacking = {code._AUTO_OFFSET_RESET, code.OFFSET_OUT_OF_RANGE, code._LOG_TRUNCATION, code._NO_OFFSET}
        self.unknown = {
            code.UNKNOWN_TOPIC_OR_PART,
            code.UNKNOWN_TOPIC_ID,
            code.INCONSISTENT_TOPIC_ID,
            code._UNKNOWN_TOPIC,
            code._UNKNOWN_PARTITION,
        }
        self.passing = {
            code._TRANSPORT,
            code._ALL_BROKERS_DOWN,
            code._RESOLVE,
            code._TIMED_OUT,
            code._TIMED_OUT_QUEUE,
            code._NOENT,  # no leader is known
            code._WAIT_CACHE,
            code._WAIT_COORD,
            code._RETRY,
            code._DESTROY_BROKER,
            code.BROKER_NOT_AVAILABLE,
            code.REPLICA_NOT_AVAILABLE,
            code.LEADER_NOT_AVAILABLE,
            code.NOT_LEADER_FOR_PARTITION,
            code.FENCED_LEADER_EPOCH,
            code.UNKNOWN_LEADER_EPOCH,
            code.OFFSET_NOT_AVAILABLE,
            code.KAFKA_STORAGE_ERROR,
            code.NETWORK_EXCEPTION,
            code.REQUEST_TIMED_OUT,
            code.REBOOTSTRAP_REQUIRED,
            # Groups are for display alone.
            code.GROUP_AUTHORIZATION_FAILED,
            code.COORDINATOR_NOT_AVAILABLE,
            code.COORDINATOR_LOAD_IN_PROGRESS,
            code.NOT_COORDINATOR,
        }
