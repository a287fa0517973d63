"""What plays the vendor posts in order, signed, again where that may help, and not where it cannot."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from structlog.testing import capture_logs

from silverfold.conf.errors import SourceRefused, SourceUnavailable
from silverfold.connectors.sqlitecloud_webhooks.protocol.signing import Signing
from silverfold.connectors.sqlitecloud_webhooks.server.orders import Orders
from silverfold.connectors.sqlitecloud_webhooks.server.source import WebhookSource
from tests.support.certificates import of_a_stranger

SIGNING = Signing("X-Sig")


@contextmanager
def peer(answers: Sequence[int], tls: ssl.SSLContext | None = None) -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """Answer by the statuses given, then 200; give the URL, and signature and body of each request."""
    requests: list[tuple[str, bytes]] = []

    class Taking(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response([*answers, 200][min(len(requests), len(answers))])
            requests.append((self.headers["X-Sig"], body))
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Taking) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/", requests
        finally:
            server.shutdown()
            serving.join()


def source(url: str, *, delays: list[float] | None = None, **settings: Any) -> WebhookSource:
    def stopped_within(seconds: float) -> bool:
        if delays is not None:
            delays.append(seconds)
        return False

    given = {"signing": SIGNING, "secret": "sesame", "seed": 7, "stopped_within": stopped_within} | settings
    return WebhookSource(url, **given)


def test_each_change_is_one_signed_post_in_order() -> None:
    with peer([]) as (url, requests), source(url) as vendor:
        assert [vendor.change() for _ in range(20)] == [1] * 20
        assert requests[0][1] == Orders(seed=7, action=url).change()
    assert [signature for signature, _ in requests] == [SIGNING.sign(body, "sesame") for _, body in requests]
    assert {json.loads(body)["type"] for _, body in requests} == {"insert", "update", "delete"}


def test_what_is_not_taken_is_sent_again_before_the_next() -> None:
    delays: list[float] = []
    with peer([503, 429, 500]) as (url, requests), source(url, delays=delays) as vendor:
        vendor.change()
        vendor.change()
    first, second = requests[0][1], requests[4][1]
    assert [body for _, body in requests] == [first] * 4 + [second]
    assert len(delays) == 3


def test_the_first_failure_of_a_change_is_logged_without_the_secrets_of_the_url() -> None:
    with peer([503, 503]) as (url, _), source(f"{url}?key=k3y") as vendor, capture_logs() as logs:
        vendor.change()
    reason, shown = "Service Unavailable", f"{url}?…"
    assert logs == [{"event": "request not taken", "log_level": "warning", "url": shown, "reason": reason}]


def test_nothing_is_sent_again_once_the_time_is_over() -> None:
    delays: list[float] = []
    with peer([503, 503]) as (url, requests), source(url, delays=delays, seconds=0.0) as vendor:
        with pytest.raises(SourceUnavailable, match=f"{url}: Service Unavailable"):
            vendor.change()
        assert (len(requests), delays) == (1, [])


def test_no_wait_for_another_attempt_is_longer_than_the_time_left() -> None:
    delays: list[float] = []
    with peer([503] * 12) as (url, _), source(url, delays=delays, seconds=0.3) as vendor:
        with pytest.raises(SourceUnavailable):
            vendor.change()
        assert max(delays) <= 0.3


def test_a_receiver_that_never_answers_is_waited_for_no_longer_than_the_time_and_a_moment() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url, begun = f"http://127.0.0.1:{silent.getsockname()[1]}/", time.monotonic()
        with source(url, seconds=0.1) as vendor, pytest.raises(SourceUnavailable):
            vendor.change()
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize("status", [401, 404, 413, 302])
def test_what_will_never_be_taken_is_not_sent_again(status: int) -> None:
    with peer([status]) as (url, requests), source(f"{url}?key=k3y") as vendor:
        with pytest.raises(SourceRefused, match=rf"^{status}: .+, from {url}\?…$"):
            vendor.change()
        assert len(requests) == 1


def test_a_source_that_reaches_nobody_gives_up() -> None:
    with peer([]) as (url, _):
        pass
    delays: list[float] = []
    with source(url, delays=delays, patience=3) as vendor, pytest.raises(SourceUnavailable, match=url):
        vendor.change()
    assert len(delays) == 3


def test_a_request_that_cannot_be_sent_is_refused() -> None:
    with (
        WebhookSource("http://a..b/", signing=None, secret="", seed=1, stopped_within=lambda _: False) as source,
        pytest.raises(SourceRefused, match="invalid request"),
    ):
        source.change()


def test_a_certificate_that_is_not_trusted_is_told_with_what_helps() -> None:
    with (
        peer([], of_a_stranger()) as (url, requests),
        source(url.replace("http:", "https:")) as vendor,
        pytest.raises(SourceRefused, match="its certificate is not trusted; SSL_CERT_FILE"),
    ):
        vendor.change()
    assert requests == []


@pytest.mark.parametrize(("scheme", "is_right"), [("hmac-sha256", True), ("plain", False)])
def test_hexadecimal_digits_of_a_signature_are_right_in_either_case(scheme: str, is_right: bool) -> None:
    signing = Signing("X-Sig", scheme, prefix="sha256=")
    signed = signing.sign(b"{}", "a1b2").removeprefix("sha256=")
    assert signing.is_right(f"sha256={signed.upper()}", b"{}", "a1b2") is is_right
    assert not signing.is_right(f"SHA256={signed}", b"{}", "a1b2")


def test_the_table_is_what_its_webhooks_tell() -> None:
    orders, rows = Orders(seed=3, action=""), dict[int, dict[str, Any]]()
    for _ in range(500):
        posted = json.loads(orders.change())
        sent = dict(zip(posted["column"], posted["data"], strict=True))
        if posted["type"] == "delete":
            del rows[sent["id"]]
        elif posted["type"] == "insert":
            assert sent["id"] not in rows
            rows[sent["id"]] = sent
        else:
            rows[sent["id"]].update(sent)
    assert rows == orders.rows
    assert 10 < len(rows) < 500
