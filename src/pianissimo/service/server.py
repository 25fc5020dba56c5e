"""Listening: uvicorn with limits of time for those who are slow, on one or several processes."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from pianissimo.errors import StoreError
from pianissimo.service.gate import Gate
from pianissimo.service.protocol import HEAD_SECONDS, PatientProtocol

LONGEST_HEAD = 16_384
MOST_CONNECTIONS = 5_000
"""At once, in one process; who comes beyond is told to come again."""

_BACKLOG = 2048


class PianissimoServer(uvicorn.Server):
    """A server that lets its readers go before it stops."""

    def __init__(self, app: Gate) -> None:
        self._gate = app
        super().__init__(
            uvicorn.Config(
                app,
                http=PatientProtocol,
                ws="none",
                lifespan="on",
                log_level="critical",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=_BACKLOG,
                limit_concurrency=MOST_CONNECTIONS,
                timeout_keep_alive=int(HEAD_SECONDS),
                timeout_graceful_shutdown=3,
                h11_max_incomplete_event_size=LONGEST_HEAD,
            )
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening; those who wait for a tick are let go first."""
        self._gate.library.close_streams()
        await super().shutdown(sockets)


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket that listens; `StoreError` where it cannot."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(_BACKLOG)
    except OSError as error:
        found.close()
        raise StoreError(f"the service must have a place to listen at, got {host}:{port}: {error.strerror}") from None
    return found


def address_of(found: socket.socket) -> str:
    """Where a socket listens, as a browser takes it."""
    host, port = found.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def serve_on(app: Gate, found: socket.socket) -> None:
    """Serve in this thread until a signal."""
    PianissimoServer(app).run(sockets=[found])


@contextmanager
def serving(app: Gate, host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
    """Serve in a thread of its own, and give the address; with port 0 any that is free."""
    with listening_socket(host, port) as found:
        server = PianissimoServer(app)
        thread = threading.Thread(target=server.run, args=([found],), name="pianissimo-serve", daemon=True)
        thread.start()
        while not server.started and thread.is_alive():
            thread.join(0.01)
        if not server.started:
            raise StoreError("the service must start, got a fault of its own")
        try:
            yield address_of(found)
        finally:
            server.should_exit = True
            thread.join(10)
