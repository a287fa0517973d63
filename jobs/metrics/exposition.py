"""Give what a collector collects to Prometheus: over HTTP, or as a file for node_exporter's textfile collector."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app, write_to_textfile
from prometheus_client.registry import Collector

from silverfold.conf.errors import ConfigError, SourceUnavailable

_MOST_REQUESTS: Final = 16
"""Requests at once; further ones are closed: a process that also receives has other uses for descriptors."""

_PATIENCE: Final = 10.0
"""Seconds that a connection may be silent."""

_LONGEST: Final = 60.0
"""Seconds that a request may take, however slowly its peer sends or reads."""


class _Handler(WSGIRequestHandler):
    """Reads one request, with little patience, and logs nothing."""

    timeout = _PATIENCE

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


class _Server(ThreadingMixIn, WSGIServer):
    """Answers each request in a thread, `_MOST_REQUESTS` at once."""

    daemon_threads = True
    request_queue_size = _MOST_REQUESTS

    def server_activate(self) -> None:
        """Begin to listen."""
        self._places = threading.BoundedSemaphore(_MOST_REQUESTS)
        super().server_activate()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start the thread of a request, or close its connection if there are too many."""
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a request, or end its connection when it takes too long."""
        end = threading.Timer(_LONGEST, _shut_down, (request,))
        end.daemon = True
        end.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            end.cancel()
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a peer that has gone."""


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):  # it is closed already
        connection.shutdown(socket.SHUT_RDWR)


class _Server6(_Server):
    address_family = socket.AF_INET6


@contextmanager
def served(collector: Collector, host: str, port: int, *, option: str) -> Iterator[str]:
    """Serve metrics at every path, each request in a thread that the process does not wait for; yield the address.

    Args:
        port: 0 for any free one.
        option: The command's option that gave the port, for the message of an error.

    Raises:
        SourceUnavailable: Cannot listen there.
    """
    if not host:  # the library takes an empty host for all addresses
        raise SourceUnavailable(f"{option}: cannot listen on port {port} of no host: 127.0.0.1, or 0.0.0.0 for all")
    try:
        is_6 = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0] is socket.AF_INET6
        application = make_wsgi_app(_registry(collector))
        server = make_server(host, port, application, _Server6 if is_6 else _Server, _Handler)
    except (OSError, UnicodeError) as error:
        raise SourceUnavailable(f"{option}: cannot listen on {host}:{port}: {error}") from error
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    try:
        yield f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()


def write(collector: Collector, file: Path) -> None:
    """Write metrics to a file at once: a reader finds the old file or the new one. Raises ConfigError."""
    if file.suffix != ".prom":
        allowed = "a name that ends in .prom: node_exporter reads no other"
        raise ConfigError(file="command line", key="--textfile", found=str(file), allowed=allowed)
    try:
        write_to_textfile(str(file), _registry(collector))
    except OSError as error:
        allowed = "a file in a folder that can be written"
        found = f"{file}: {error.strerror}"
        raise ConfigError(file="command line", key="--textfile", found=found, allowed=allowed) from error


def _registry(collector: Collector) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)  # to describe it would read the store
    registry.register(collector)
    return registry
