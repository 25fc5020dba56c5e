"""Figures of a run for Prometheus, which show no data."""

from collections.abc import Mapping
from typing import Any

from pianissimo.durable.publish import Publisher
from pianissimo.errors import ParameterError, StoreError

WAITS = ("room", "source")


class Metrics:
    """What Prometheus may know of a running stream: ticks, lag, times and faults, served at `/metrics`.

    Nothing in it depends on the data but how long a release took: there is no number of events, and no label but the
    names of sinks and of what is waited for; unless the owner asks for refused records. The listener is for those who
    run the stream, not for those who read it.
    """

    def __init__(self) -> None:
        try:
            import prometheus_client
        except ImportError:
            raise ParameterError(
                "metrics must have prometheus-client, got none: pip install pianissimo[metrics]"
            ) from None
        self._library: Any = prometheus_client
        self._server: Any = None
        self.registry = prometheus_client.CollectorRegistry()

        def gauge(name: str, text: str, *labels: str) -> Any:
            return prometheus_client.Gauge(f"pianissimo_{name}", text, labels, registry=self.registry)

        def counter(name: str, text: str, *labels: str) -> Any:
            return prometheus_client.Counter(f"pianissimo_{name}", text, labels, registry=self.registry)

        self.tick = gauge("tick", "The last tick that is released.")
        self.last_tick = gauge("last_tick", "The last tick that will be released.")
        self.lag = gauge("lag_ticks", "Ticks that are over by the clock and not released.")
        self.release_seconds = gauge("release_seconds", "How long the last tick took to be sealed, released and sent.")
        self.released_at = gauge("released_timestamp_seconds", "When the last tick was released.")
        self.starts = gauge("starts", "How often the stream was started.")
        self.recovered = gauge("recovered_ticks", "Ticks that this start counted again from what they had added.")
        self.undelivered = gauge("sink_undelivered_ticks", "Ticks that a sink has not confirmed.", "sink")
        self.sink_faults = counter("sink_faults", "How often a sink could not take a release.", "sink")
        self.refused = gauge("refused_records", "Records refused since the start: exact, and not private.", "reason")
        self.waits = counter("waits", "How often there was no room on the disk, or no source.", "what")
        for what in WAITS:
            self.waits.labels(what)
        self._failures: dict[str, int] = {}
        self._told: int | None = None

    def tell(
        self, tick: int, last_tick: int, lag: int, publisher: Publisher, refused: Mapping[str, int] | None = None
    ) -> None:
        """Where the stream stands."""
        for reason, count in (refused or {}).items():
            self.refused.labels(reason).set(count)
        self.tick.set(tick)
        self.last_tick.set(last_tick)
        self.lag.set(lag)
        if self._told != tick:
            self.released_at.set_to_current_time()
            self._told = tick
        for sink, count in publisher.undelivered.items():
            self.undelivered.labels(sink).set(count)
        for sink, count in publisher.failures.items():
            self.sink_faults.labels(sink).inc(count - self._failures.get(sink, 0))
            self._failures[sink] = count

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        found: bytes = self._library.generate_latest(self.registry)
        return found

    def serve(self, place: str) -> int:
        """Listen at HOST:PORT, and give the port; with port 0 any that is free."""
        host, port = listening_place(place)
        try:
            self._server, _ = self._library.start_http_server(port, host, self.registry)
        except OSError as error:
            raise StoreError(f"--metrics must be a place to listen at, got {place}: {error.strerror}") from None
        return int(self._server.server_port)

    def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


def listening_place(text: str) -> tuple[str, int]:
    """The host and the port of HOST:PORT, as in `[::1]:9464`."""
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not int(port) < 65536:
        raise ParameterError(f"metrics must be HOST:PORT such as 127.0.0.1:9464, got {text!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)
