"""HTTP/1.1 without a socket."""

from __future__ import annotations

import contextlib
import random
from http import HTTPStatus

import pytest

from silverfold.conf.errors import RemoteProtocolError
from silverfold.connectors.tengi.transports.requests import MAX_HEAD, HttpReader, encode_answer, encode_post

JAVA = (
    b"POST /channel HTTP/1.1\r\ncontent-type: application/tengi\r\ncontent-length: 3\r\nconnection: close\r\n"
    b"user-agent: tengi::transport::http/1.1\r\n\r\nabc"
)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_a_request_of_javas_client_is_read_in_any_pieces(size: int) -> None:
    reader = HttpReader()
    heads = []
    for start in range(0, len(JAVA), size):
        reader.receive(JAVA[start : start + size])
        if (head := reader.next_head() if not heads else None) is not None:
            heads.append(head)
    (head,) = heads
    assert head.start == ("POST", "/channel", "HTTP/1.1")
    assert (head.content_length, head.closes, head.is_upgrade) == (3, True, False)
    assert reader.take(3) == b"abc"


def test_what_is_written_is_exact() -> None:
    assert encode_post(b"abc", host="h:1", closes=False) == (
        b"POST /channel HTTP/1.1\r\nHost: h:1\r\nContent-Type: application/tengi\r\nContent-Length: 3\r\n\r\nabc"
    )
    assert encode_answer(HTTPStatus.OK, b"abc") == (
        b"HTTP/1.1 200 OK\r\ncontent-type: application/tengi\r\ncontent-length: 3\r\nconnection: close\r\n\r\nabc"
    )
    assert encode_answer(HTTPStatus.NO_CONTENT, closes=False) == b"HTTP/1.1 204 No Content\r\n\r\n"


@pytest.mark.parametrize(
    "head",
    [
        b"POST /channel\r\n\r\n",
        b"\r\n\r\n",
        b"POST /channel HTTP/1.1\r\nno header\r\n\r\n",
        b"POST /channel HTTP/1.1\r\n: empty\r\n\r\n",
        b"POST /channel HTTP/1.1\r\nname : space\r\n\r\n",
        b"POST /channel HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"POST /" + b"x" * MAX_HEAD,
    ],
)
def test_heads_that_are_none_are_refused(head: bytes) -> None:
    reader = HttpReader(head)
    with pytest.raises(RemoteProtocolError):
        reader.next_head()


@pytest.mark.parametrize(
    "header", [b"content-length: -1", b"content-length: 1e3", b"content-length: \xb2", b"transfer-encoding: chunked"]
)
def test_lengths_that_are_none_are_refused(header: bytes) -> None:
    head = HttpReader(b"POST /channel HTTP/1.1\r\n" + header + b"\r\n\r\n").next_head()
    assert head is not None
    with pytest.raises(RemoteProtocolError):
        _ = head.content_length


@pytest.mark.parametrize("status", ["", "20", "2" * 5000, "\u00b2\u00b2\u00b2", "OK"])
def test_a_status_has_three_digits(status: str) -> None:
    head = HttpReader(f"HTTP/1.1 {status} OK\r\n\r\n".encode("latin-1")).next_head()
    assert head is not None
    with pytest.raises(RemoteProtocolError):
        _ = head.status


def test_any_bytes_are_a_head_or_an_error_of_the_peer() -> None:
    draw = random.Random(5)
    parts = [b"POST", b" ", b"/channel", b"HTTP/1.1", b"\r\n", b"\r\n\r\n", b":", b"content-length", b"9", b"\xff\0"]
    for _ in range(3000):
        reader = HttpReader(b"".join(draw.choices(parts, k=draw.randrange(12))))
        with contextlib.suppress(RemoteProtocolError):
            head = reader.next_head()
            if head is not None:
                _ = head.content_length, head.closes, head.is_upgrade
