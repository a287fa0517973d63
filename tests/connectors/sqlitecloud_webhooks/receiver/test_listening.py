"""The listener against peers that stop half-way, speak no HTTP, or are too many."""

from __future__ import annotations

import asyncio
import errno
import ssl
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import trustme
from structlog.testing import capture_logs

from silverfold.connectors.frames import Resume
from silverfold.connectors.sqlitecloud_webhooks.receiver import listening
from silverfold.connectors.sqlitecloud_webhooks.receiver.receiver import WebhookReceiver
from tests.connectors.sqlitecloud_webhooks.receiver.test_receiver import ALBUM, posted, receiving
from tests.connectors.sqlitecloud_webhooks.receiver.test_receiver import listening as until_it_listens
from tests.support.epochs import in_background
from tests.support.memory import MemorySink
from tests.support.polling import tries
from tests.support.sqlitecloud.webhooks import feed, free_port

HEAD = b"POST / HTTP/1.1\r\nHost: x\r\n"


async def connected(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = url.removeprefix("http://").rstrip("/").partition(":")
    return await asyncio.open_connection(host, int(port))


async def ended(reader: asyncio.StreamReader) -> bytes:
    """Return what comes up to the connection's end."""
    try:
        return await asyncio.wait_for(reader.read(), 30)
    except ConnectionResetError:
        return b""


def run(steps: Any, **settings: Any) -> Any:
    async def whole() -> Any:
        async with receiving(MemorySink(), insecure=True, **settings) as (client, url):
            return await steps(client, url)

    return asyncio.run(whole())


@pytest.mark.parametrize("sent", [b"", HEAD, HEAD + b"X-A: " + b"a" * 4_000])
def test_a_head_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(listening, "HEAD_WITHIN", 0.3)

    async def steps(_client: aiohttp.ClientSession, url: str) -> bytes:
        reader, writer = await connected(url)
        writer.write(sent)
        try:
            return await ended(reader)
        finally:
            writer.close()

    assert run(steps) == b""


@pytest.mark.parametrize(
    "sent", [b"\x16\x03\x01\x02\x00secret\r\n\r\n", HEAD + b"secret: \x00\r\n\r\n", b"GET\r\n\r\n"]
)
def test_what_is_no_http_is_refused_without_a_word_of_it_in_the_log(
    caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    async def steps(_client: aiohttp.ClientSession, url: str) -> list[bytes]:
        answers = []
        for _ in range(3):
            reader, writer = await connected(url)
            writer.write(sent)
            answers.append(await ended(reader))
            writer.close()
        return answers

    with capture_logs() as logs:
        answers = run(steps)

    assert [answer.split(b"\r\n")[0] for answer in answers] == [b"HTTP/1.1 400 Bad Request"] * 3
    assert b"Server" not in answers[0]
    assert [(log["event"], log["count"]) for log in logs if log["event"] != "listening"] == [
        ("a request is no HTTP", 1)
    ]
    assert not caplog.records


def test_answers_do_not_say_what_serves_them() -> None:
    async def steps(client: aiohttp.ClientSession, url: str) -> list[dict[str, str]]:
        found = []
        for method, path in (("POST", ""), ("GET", ""), ("POST", "elsewhere")):
            async with client.request(method, url + path, data=ALBUM) as answer:
                found.append(dict(answer.headers))
        return found

    assert [headers for headers in run(steps) if "Server" in headers] == []


def test_more_connections_than_may_be_are_cut_off_and_those_that_end_make_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening, "MOST_CONNECTIONS", 8)

    async def steps(client: aiohttp.ClientSession, url: str) -> tuple[list[bytes], int]:
        async with AsyncExitStack() as held:
            for _ in range(4):  # half of them, from one address
                _, writer = await connected(url)
                held.callback(writer.close)
            cut_off = []
            for _ in range(3):
                reader, writer = await connected(url)
                cut_off.append(await ended(reader))
                writer.close()
        for _ in tries("room for another connection"):
            try:
                status, _ = await posted(client, url, ALBUM)
            except aiohttp.ClientError:
                await asyncio.sleep(0.02)
                continue
            return cut_off, status
        raise AssertionError

    assert run(steps) == ([b"", b"", b""], 200)


def test_a_body_that_is_cut_off_is_no_fault_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    async def steps(client: aiohttp.ClientSession, url: str) -> int:
        for _ in range(3):
            _, writer = await connected(url)
            writer.write(HEAD + b"Content-Length: 100\r\n\r\n{")
            await writer.drain()
            await asyncio.sleep(0.05)
            writer.close()
        return (await posted(client, url, ALBUM))[0]

    assert run(steps) == 200
    assert not caplog.records


def test_no_more_files_are_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    async def steps(client: aiohttp.ClientSession, url: str) -> int:
        error = OSError(errno.EMFILE, "Too many open files")
        for _ in range(100):
            asyncio.get_running_loop().call_exception_handler({"message": "socket.accept()", "exception": error})
        return (await posted(client, url, ALBUM))[0]

    with capture_logs() as logs:
        assert run(steps) == 200
    assert [log["event"] for log in logs] == ["listening", "connections wait: no more files can be opened"]
    assert not caplog.records


def test_bodies_that_come_slowly_keep_no_other_waiting() -> None:
    async def steps(client: aiohttp.ClientSession, url: str) -> int:
        async with AsyncExitStack() as held:
            for _ in range(100):
                _, writer = await connected(url)
                writer.write(HEAD + b"Content-Length: 1000\r\n\r\n{")
                held.callback(writer.close)
            async with asyncio.timeout(10):
                return (await posted(client, url, ALBUM))[0]

    assert run(steps, timeout=120) == 200


def test_long_bodies_that_come_slowly_keep_no_other_address_waiting() -> None:
    async def steps(_client: aiohttp.ClientSession, url: str) -> int:
        async with AsyncExitStack() as held:
            for _ in range(100):
                _, writer = await connected(url)
                writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n")
                held.callback(writer.close)
            elsewhere = aiohttp.TCPConnector(local_addr=("127.0.0.2", 0))
            async with aiohttp.ClientSession(connector=elsewhere) as other, asyncio.timeout(10):
                return (await posted(other, url, ALBUM + b" " * 100_000))[0]

    assert run(steps, timeout=120) == 200


def test_an_epoch_that_begins_while_a_new_certificate_is_half_written_shows_the_one_before(tmp_path: Path) -> None:
    port, file = free_port(), tmp_path / "both.pem"
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(file))

    async def run() -> list[str]:
        receiver = WebhookReceiver(feed(f"127.0.0.1:{port}", certificate=str(file)))
        shown = []
        for epoch in (1, 2):
            async with in_background(receiver.run(MemorySink(), Resume(epoch))) as running:
                await until_it_listens(f"127.0.0.1:{port}", running)
                shown.append(await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port)))
            file.write_text("-----BEGIN")
        return shown

    before, later = asyncio.run(run())
    assert later == before
