"""Where releases go: a folder, a Kafka topic, or an HTTP address, which is sent them here."""

import base64
import contextlib
import hashlib
import hmac
import http.client
import ipaddress
import socket
import ssl
import threading
from datetime import timedelta
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from pianissimo.durable.publish import Sink
from pianissimo.errors import InputError, ParameterError, SpecError
from pianissimo.io.folder import FolderSink
from pianissimo.io.kafka import BROKERS_PATIENCE, KafkaSink, from_environment, kafka_settings
from pianissimo.stream import StreamPlan
from pianissimo.stream.spec import SinkSpec

CONTENT_TYPE = "application/json"
SIGNATURE = "Pianissimo-Signature"
_THERE_ALREADY = 409


def make_sink(spec: SinkSpec, plan: StreamPlan) -> Sink:
    """What a `[sinks.NAME]` of a stream file sends with."""
    try:
        if spec.kind == "folder":
            assert spec.path is not None  # noqa: S101
            return FolderSink(spec.path, plan=plan.to_dict(), format=spec.format, files=spec.files)
        if spec.kind == "kafka":
            assert spec.kafka is not None  # noqa: S101
            topic = spec.kafka
            return KafkaSink(
                topic=topic.topic,
                brokers=topic.brokers,
                stream=plan.name,
                settings=kafka_settings(topic),
                wait=BROKERS_PATIENCE,
            )
        assert spec.url is not None  # noqa: S101
        url = from_environment(spec.url)
        return WebhookSink(url, name=f"webhook {spec.name}", key=_key(spec.key), timeout=spec.timeout)
    except ParameterError as error:
        raise SpecError(f"sinks.{spec.name}: {error}") from None


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


class WebhookSink:
    """POSTs releases to a URL as they are published: the stored bytes. It must be `https` unless it is on this machine.

    A release that was not confirmed comes again, the same bytes under the same key. 2xx and 409 (it is there already)
    confirm it; anything else, and no answer, leave it for another attempt. Redirects are not followed: they could lead
    the bytes elsewhere, or past the encryption.

    The headers are `Idempotency-Key: INCARNATION/TICK` and, with a key, `Pianissimo-Signature: sha256=HEX`, the
    HMAC-SHA256 of the body. User and password in the URL are sent as basic authentication. Neither they nor the path or
    the query of the URL are ever shown, and what the other side answers is not kept.

    >>> WebhookSink("https://user:password@example.org/hook?token=1", name="office")
    WebhookSink('office', 'https://example.org')
    """

    def __init__(
        self,
        url: str,
        *,
        name: str | None = None,
        key: bytes | None = None,
        timeout: timedelta = timedelta(seconds=10),
    ) -> None:
        if not timeout > timedelta():
            raise ParameterError(f"timeout must be positive, got {timeout}")
        parts = _split(url)
        self._shown = f"{parts.scheme}://{_host(parts)}"
        self.name = name or f"webhook {self._shown}"
        self._key = key
        self._timeout = timeout.total_seconds()
        self._parts = parts
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._headers = {"Content-Type": CONTENT_TYPE, "User-Agent": "pianissimo"}
        if parts.username is not None or parts.password is not None:
            self._headers["Authorization"] = _basic(parts)

    def last(self) -> int | None:
        """It cannot be asked."""
        return None

    def send(self, incarnation: bytes, tick: int, payload: bytes) -> None:
        """POST the bytes; `InputError` unless they were confirmed."""
        headers = {**self._headers, "Idempotency-Key": f"{incarnation.hex()}/{tick}"}
        if self._key is not None:
            headers[SIGNATURE] = f"sha256={hmac.new(self._key, payload, hashlib.sha256).hexdigest()}"
        connection, is_late = self._connect(), threading.Event()
        # The timeout of a socket is for each piece: whoever answers a byte at a time would never be late.
        deadline = threading.Timer(self._timeout, _hang_up, [connection, is_late])
        deadline.daemon = True
        fault, status = "", 0
        try:
            deadline.start()
            connection.request("POST", self._target, body=payload, headers=headers)
            status = connection.getresponse().status
        except ssl.SSLError as error:
            fault = f"encryption that failed ({error.reason or 'unknown'})"
        except TimeoutError:
            is_late.set()
        except OSError as error:
            fault = error.strerror or "no connection"
        except http.client.HTTPException as error:
            fault = f"an answer that is no HTTP ({type(error).__name__})"
        except ValueError:
            fault = "an address that cannot be used"
        finally:
            deadline.cancel()
            connection.close()
        if is_late.is_set():
            raise self._fault(f"no answer within {self._timeout:g} s")
        if fault:
            raise self._fault(fault)
        if not (200 <= status < 300 or status == _THERE_ALREADY):
            raise self._fault(f"status {status}")

    def __repr__(self) -> str:
        return f"WebhookSink({self.name!r}, {self._shown!r})"

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(host, port, timeout=self._timeout, context=context)
        return http.client.HTTPConnection(host, port, timeout=self._timeout)

    def _fault(self, what: str) -> InputError:
        return InputError(f"{self._shown} must take the release, got {what}; it is sent again")


def _hang_up(connection: http.client.HTTPConnection, is_late: threading.Event) -> None:
    is_late.set()
    with contextlib.suppress(OSError):
        if connection.sock is not None:
            connection.sock.shutdown(socket.SHUT_RDWR)


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        port = parts.port
        (parts.hostname or "").encode("idna")  # empty labels and those of more than 63 signs are no names
    except ValueError:
        raise ParameterError("url must be an address such as https://example.org/hook, got another text") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or not url.isascii():
        raise ParameterError("url must be an address such as https://example.org/hook, got another text")
    if any(sign <= " " or sign == "\x7f" for sign in url):
        raise ParameterError("url must hold no spaces and no control signs, got some")
    if parts.scheme == "http" and not _is_here(parts.hostname):
        raise ParameterError(f"url must be encrypted (https) unless it is on this machine, got http://{_host(parts)}")
    return parts


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _host(parts: SplitResult) -> str:
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    return host if parts.port is None else f"{host}:{parts.port}"


def _basic(parts: SplitResult) -> str:
    text = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return f"Basic {base64.b64encode(text.encode()).decode()}"
