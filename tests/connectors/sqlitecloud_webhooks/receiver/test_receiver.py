"""The receiver on real sockets: what is answered has landed, what cannot land is to come again, nobody fills memory."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import trustme

from silverfold.conf.errors import ConfigError, Fenced, SourceUnavailable, StoreUnavailable
from silverfold.connectors.frames import Resume
from silverfold.connectors.sqlitecloud_webhooks.protocol.signing import Signing
from silverfold.connectors.sqlitecloud_webhooks.receiver.receiver import READ_AT_ONCE, WebhookReceiver
from silverfold.pipelines.landing.writer import BronzeWriter
from silverfold.pipelines.places import Place
from silverfold.pipelines.store import open_table
from tests.support.landing import AT_ONCE, BY_HAND, landed, marks, sink_at
from tests.support.memory import MemorySink
from tests.support.polling import tries, until
from tests.support.sqlitecloud.webhooks import STREAM, feed, free_port, webhook

ALBUM = webhook("insert", AlbumId=1)
SECRET = {"secret": {"env": "HOOK_SECRET"}, "header": "X-Sig"}
SIGNING = Signing("X-Sig")


class Sink(MemorySink):
    """Keeps what lands in memory; commits only while it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_commit = asyncio.Event()

    async def flush(self) -> int:
        await self.may_commit.wait()
        return await super().flush()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(str(tmp_path / "bronze/market"))


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", "sesame")


@pytest.fixture
def failing_store(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let commits fail until the list is cleared."""
    append, why = BronzeWriter.append, ["disk full"]

    def appended(writer: BronzeWriter, frames: Any) -> None:
        if why:
            raise StoreUnavailable(why[0])
        append(writer, frames)

    monkeypatch.setattr(BronzeWriter, "append", appended)
    return why


@asynccontextmanager
async def running(sink: Any, **settings: Any) -> AsyncIterator[tuple[asyncio.Task[None], str]]:
    """Run a receiver of the feed; give its task and the URL it listens at."""
    address = f"127.0.0.1:{free_port()}"
    task = asyncio.create_task(WebhookReceiver(feed(address, **settings)).run(sink, Resume(1)))
    try:
        await listening(address, task)
        yield task, f"http://{address}/"
    finally:
        task.cancel()
        await asyncio.wait([task])


@asynccontextmanager
async def receiving(sink: Any, **settings: Any) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    """Run a receiver of the feed; give a client and the URL it listens at."""
    async with (
        running(sink, **settings) as (_, url),
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client,
    ):
        yield client, url


async def listening(address: str, task: asyncio.Task[None]) -> None:
    host, _, port = address.partition(":")
    for _ in tries("the receiver to listen"):
        try:
            _, writer = await asyncio.open_connection(host, int(port))
        except OSError:
            if task.done():
                await task
            await asyncio.sleep(0.01)
        else:
            writer.close()
            return


async def posted(client: aiohttp.ClientSession, url: str, body: Any, **headers: str) -> tuple[int, str]:
    async with client.post(
        url, data=body, headers={name.replace("_", "-"): value for name, value in headers.items()}
    ) as answer:
        return answer.status, (await answer.text()).strip()


def in_bronze(place: Place, steps: Callable[[aiohttp.ClientSession, str], Awaitable[Any]], **settings: Any) -> Any:
    """Run steps against a receiver that lands in a real table; return what they do."""

    async def run() -> Any:
        async with sink_at(place, AT_ONCE) as sink, receiving(sink, **settings) as (client, url):
            return await steps(client, url)

    return asyncio.run(run())


def data(place: Place) -> list[bytes]:
    return [frame.body for frame in landed(place) if frame.kind == "data"]


def test_a_body_is_in_bronze_when_it_is_answered(place: Place) -> None:
    async def steps(client: aiohttp.ClientSession, url: str) -> Any:
        answer = await posted(client, url, ALBUM)
        return answer, landed(place)

    answer, found = in_bronze(place, steps)
    assert answer == (200, "landed")
    assert [(frame.stream, frame.kind, frame.boundary, frame.body) for frame in found] == [
        (None, "control", "none", b'{"stream": "chinook.sqlite/albums", "columns": ["AlbumId"]}'),
        (STREAM, "data", "whole", ALBUM),
    ]


def test_no_answer_is_sent_before_the_commit_has_ended() -> None:
    async def run() -> None:
        sink = Sink()
        async with receiving(sink) as (client, url):
            task = asyncio.create_task(posted(client, url, ALBUM))
            await until(lambda: sink.frames, "the webhook to be taken")
            await asyncio.wait([task], timeout=0.2)
            assert not task.done()
            sink.may_commit.set()
            assert await task == (200, "landed")

    asyncio.run(run())


def test_two_hundred_at_once_land_once_each_and_share_commits(place: Place) -> None:
    bodies = [webhook("insert", AlbumId=number) for number in range(200)]

    async def steps(client: aiohttp.ClientSession, url: str) -> Any:
        return await asyncio.gather(*(posted(client, url, body) for body in bodies))

    assert set(in_bronze(place, steps)) == {(200, "landed")}
    assert sorted(data(place)) == sorted(bodies)
    assert [frame.kind for frame in landed(place)].count("control") == 1
    found = open_table(place)
    assert found is not None
    assert found.version() < 100


def test_what_cannot_be_read_lands_and_is_answered_200(place: Place) -> None:
    async def steps(client: aiohttp.ClientSession, url: str) -> Any:
        return [await posted(client, url, body) for body in (b"\xff", ALBUM.replace(b"insert", b"upsert"))]

    assert in_bronze(place, steps) == [(200, "landed")] * 2
    assert [(mark["mark"], mark["length"], mark["body"]) for mark in marks(place)] == [("bad body", 1, "/w==")]
    assert data(place) == [ALBUM.replace(b"insert", b"upsert")]


def test_a_wrong_secret_lands_nothing_but_a_count_and_neither_secret_is_told(place: Place) -> None:
    right, wrong = SIGNING.sign(ALBUM, "sesame"), SIGNING.sign(ALBUM, "open")

    async def steps(client: aiohttp.ClientSession, url: str) -> Any:
        signed = [await posted(client, url, ALBUM, X_Sig=each) for each in (wrong, wrong, right, wrong)]
        return [*signed, await posted(client, url, ALBUM)]

    assert [status for status, _ in in_bronze(place, steps, **SECRET)] == [401, 401, 200, 401, 401]
    assert data(place) == [ALBUM]
    assert [(mark["mark"], mark["status"], mark["count"]) for mark in marks(place)] == [
        ("refused", 401, 1),
        ("refused", 401, 1),
        ("refused", 401, 2),
    ]
    everything = b"".join(frame.body for frame in landed(place))
    assert not [each for each in (b"sesame", wrong.encode(), right.encode()) if each in everything]


def test_a_secret_that_is_exchanged_holds_from_the_next_request_on(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def steps(client: aiohttp.ClientSession, url: str) -> Any:
        before = await posted(client, url, ALBUM, X_Sig="sesame")
        monkeypatch.setenv("HOOK_SECRET", "new")
        after = [await posted(client, url, ALBUM, X_Sig=each) for each in ("sesame", "new")]
        monkeypatch.delenv("HOOK_SECRET")
        return [status for status, _ in (before, *after, await posted(client, url, ALBUM, X_Sig="new"))]

    assert in_bronze(place, steps, **SECRET, scheme="plain") == [200, 401, 200, 503]


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_that_is_too_long_is_refused_before_it_fills_memory(place: Place, announced: bool) -> None:
    sent = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 2_000:
            sent += 1
            yield b"x" * 65_536

    async def steps(client: aiohttp.ClientSession, url: str) -> Any:
        short = await posted(client, url, b"x" * 1024)
        return short, await posted(client, url, b"x" * 1025 if announced else pieces())

    short, long = in_bronze(place, steps, max_body_bytes=1024)
    assert (short[0], long[0]) == (200, 413)
    assert sent < 1_000
    assert [(mark["mark"], mark.get("status")) for mark in marks(place)] == [("bad body", None), ("refused", 413)]


def test_other_paths_methods_and_codings_are_refused(place: Place) -> None:
    async def steps(client: aiohttp.ClientSession, url: str) -> Any:
        async with client.get(f"{url}hook") as answer:
            got, allowed = answer.status, answer.headers["Allow"]
        coded = await posted(client, f"{url}hook", ALBUM, Content_Encoding="gzip")
        right = await posted(client, f"{url}hook?attempt=2", ALBUM)
        return got, allowed, (await posted(client, url, ALBUM))[0], coded[0], right[0]

    assert in_bronze(place, steps, path="/hook") == (405, "POST", 404, 415, 200)
    assert [mark["status"] for mark in marks(place)] == [415]
    assert data(place) == [ALBUM]


@pytest.mark.parametrize("path", ["/hooks/a%20b", "/hooks/%61", "/hooks/'$&+,;=:@!*()"])
def test_a_path_may_be_escaped_or_not(place: Place, path: str) -> None:
    async def steps(client: aiohttp.ClientSession, url: str) -> Any:
        return (await posted(client, f"{url}{path[1:]}", ALBUM))[0]

    assert in_bronze(place, steps, path=path) == 200


def test_while_the_store_is_down_senders_are_asked_to_come_again_and_nothing_taken_is_lost(
    place: Place, failing_store: list[str]
) -> None:
    async def steps(client: aiohttp.ClientSession, url: str) -> Any:
        async with client.post(url, data=ALBUM) as answer:
            refused, again = answer.status, answer.headers["Retry-After"]
        failing_store.clear()
        for _ in tries("the store to take webhooks again"):
            if (await posted(client, url, webhook("delete", AlbumId=1)))[0] != 503:
                break
        return refused, again

    assert in_bronze(place, steps, timeout=1.0) == (503, "10")
    found = data(place)
    assert (found[0], {*found[1:]}) == (ALBUM, {webhook("delete", AlbumId=1)})


def test_a_feed_that_another_process_took_over_takes_nothing_more() -> None:
    class Lost(Sink):
        def take(self, frames: Any) -> None:
            raise Fenced(owner="receive/shop", expected=1, found=2)

    async def run() -> list[tuple[int, str]]:
        async with receiving(Lost(), **SECRET) as (client, url):
            return [await posted(client, url, ALBUM, X_Sig=SIGNING.sign(ALBUM, each)) for each in ("sesame", "open")]

    assert [status for status, _ in asyncio.run(run())] == [503, 401]


def test_a_body_that_does_not_come_is_given_up_and_room_is_made_for_others(place: Place) -> None:
    async def steps(client: aiohttp.ClientSession, url: str) -> Any:
        host, port = url.removeprefix("http://").rstrip("/").split(":")
        sources = ("127.0.0.1", "127.0.0.1", "127.0.0.2", "127.0.0.2")  # each has half the places at most
        slow = [await asyncio.open_connection(host, int(port), local_addr=(source, 0)) for source in sources]
        for _, writer in slow:
            writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999\r\n\r\n{")
        await asyncio.sleep(0.1)
        answer = await posted(client, url, ALBUM)
        heads = [(await reader.readline()).decode().split()[1] for reader, _ in slow]
        for _, writer in slow:
            writer.close()
        return answer[0], heads

    found = in_bronze(place, steps, timeout=2.0, max_body_bytes=READ_AT_ONCE)
    assert found == (200, ["408"] * 4)


def test_a_stop_answers_what_has_begun_tells_what_was_refused_since_and_does_not_wait_for_room() -> None:
    async def run() -> tuple[Any, list[Any], bool]:
        sink = Sink()
        async with running(sink, **SECRET) as (task, url), aiohttp.ClientSession() as client:
            for _ in range(3):
                await posted(client, url, ALBUM, X_Sig="no")
            posting = asyncio.create_task(posted(client, url, ALBUM, X_Sig=SIGNING.sign(ALBUM, "sesame")))
            await until(
                lambda: any(frame.kind == "data" for frame in sink.frames), "the webhook to be taken", work=task
            )
            sink.is_full = True
            task.cancel()
            await asyncio.wait([posting], timeout=0.1)
            sink.may_commit.set()
            answer = await posting
            await asyncio.wait([task], timeout=10)
            return answer, sink.frames, task.cancelled()

    answer, frames, stopped = asyncio.run(run())
    assert stopped
    assert answer == (200, "landed")
    assert [json.loads(frame.body)["count"] for frame in frames if frame.kind == "mark"] == [1, 2]


def test_https_is_spoken_with_a_certificate(place: Place, tmp_path: Path) -> None:
    authority, file = trustme.CA(), tmp_path / "server.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(file))
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)

    async def steps(client: aiohttp.ClientSession, url: str) -> Any:
        async with client.post(url.replace("http:", "https:"), data=ALBUM, ssl=trusting) as answer:
            return answer.status

    assert in_bronze(place, steps, certificate=str(file)) == 200
    assert data(place) == [ALBUM]


def test_a_certificate_that_is_renewed_is_used_from_the_next_connection_on(tmp_path: Path) -> None:
    file = tmp_path / "both.pem"
    first, second = (trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem for _ in range(2))
    first.write_to_path(str(file))

    async def run() -> list[bool]:
        async with running(MemorySink(), certificate=str(file)) as (_, url):
            port = int(url.removesuffix("/").rpartition(":")[2])
            shown = [await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))]
            second.write_to_path(str(file))
            shown.append(await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port)))
        return [pem.strip() in issued.bytes().decode() for pem, issued in zip(shown, (first, second), strict=True)]

    assert asyncio.run(run()) == [True, True]


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"secret": {"env": "NOT_SET"}, "header": "X"}, "NOT_SET"),
        ({"secret": {"env": "EMPTY"}, "header": "X"}, "options.secret"),
        ({"certificate": "/no/such.pem"}, "options.certificate"),
        ({"certificate": "/dev/zero"}, "options.certificate"),  # which has no end
    ],
)
def test_what_the_settings_refer_to_is_looked_for_before_anything_is_taken(
    settings: dict[str, Any], key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMPTY", "")
    one = WebhookReceiver(feed(f"127.0.0.1:{free_port()}", **settings))
    with pytest.raises(ConfigError) as raised:
        asyncio.run(one.run(Sink(), Resume(1)))
    assert raised.value.key == key


def test_an_address_that_is_taken_is_tried_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        one = WebhookReceiver(feed(f"127.0.0.1:{taken.getsockname()[1]}"))
        with pytest.raises(SourceUnavailable, match="cannot be listened on"):
            asyncio.run(one.run(Sink(), Resume(1)))


def test_memory_is_bounded_while_nothing_is_committed(place: Place, failing_store: list[str]) -> None:
    """The sink takes 4 MiB and what comes last: 9 bodies of half a MiB. Those that waited in vain are not taken."""
    body = webhook("update", AlbumId=1, Title="x" * (1 << 19))

    async def run() -> tuple[int, list[int]]:
        async with sink_at(place, BY_HAND) as sink:
            async with receiving(sink, timeout=1.0, max_body_bytes=READ_AT_ONCE // 4) as (client, url):
                found = await asyncio.gather(*(posted(client, url, body) for _ in range(30)))
                taken = sink.last
                failing_store.clear()
            return taken, [status for status, _ in found]

    taken, statuses = asyncio.run(run())
    assert {503} <= {*statuses} <= {503, 408}
    assert 1 <= taken <= 9
    assert data(place) == [body] * taken
