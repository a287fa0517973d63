"""Give what a collector collects to Prometheus: over HTTP, or as a file for node_exporter's textfile collector."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry, start_http_server, write_to_textfile
from prometheus_client.registry import Collector

from silverfold.conf.errors import ConfigError, SourceUnavailable


@contextmanager
def served(collector: Collector, host: str, port: int) -> Iterator[str]:
    """Serve metrics at every path, each request in a thread that the process does not wait for; yield the address.

    Args:
        port: 0 for any free one.

    Raises:
        SourceUnavailable: Cannot listen there.
    """
    if not host:  # the library takes an empty host for all addresses
        raise SourceUnavailable(f"cannot listen on port {port} of no host: 127.0.0.1, or 0.0.0.0 for all")
    try:
        server, _ = start_http_server(port, host, _registry(collector))
    except (OSError, UnicodeError) as error:
        raise SourceUnavailable(f"cannot listen on {host}:{port}: {error}") from error
    try:
        yield f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()


def write(collector: Collector, file: Path) -> None:
    """Write metrics to a file at once: a reader finds the old file or the new one. Raises ConfigError."""
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
