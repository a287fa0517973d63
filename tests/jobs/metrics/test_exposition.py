"""Who asks for metrics and says nothing, or asks too often, takes nothing from the process that serves them."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.registry import Collector

from silverfold.conf.errors import ConfigError
from silverfold.jobs.metrics import exposition
from silverfold.jobs.metrics.definitions import metrics_of


class Nothing(Collector):
    def collect(self):
        return metrics_of([])


def test_silent_connections_are_closed_and_more_than_a_few_at_once_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposition._Handler, "timeout", 0.2)

    with exposition.served(Nothing(), "127.0.0.1", 0, option="--port") as url, ExitStack() as opened:
        port = int(url.split(":")[2].split("/")[0])
        silent = [opened.enter_context(socket.create_connection(("127.0.0.1", port), 5)) for _ in range(20)]
        assert [peer.recv(1) for peer in silent] == [b""] * 20
        with urlopen(url) as answer:
            assert answer.status == 200


def test_a_request_that_is_sent_byte_by_byte_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposition, "_LONGEST", 0.2)

    with exposition.served(Nothing(), "127.0.0.1", 0, option="--port") as url:
        with socket.create_connection(("127.0.0.1", int(url.split(":")[2].split("/")[0])), 5) as slow:
            slow.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
            assert slow.recv(1) == b""
        with urlopen(url) as answer:
            assert answer.status == 200


def test_a_file_that_node_exporter_would_not_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ends in \.prom"):
        exposition.write(Nothing(), tmp_path / "metrics.txt")
