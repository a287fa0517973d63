"""Measures webhooks answered once landed, against a bare HTTP server that reads the body and answers."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from multiprocessing.connection import Connection

from aiohttp import web

from silverfold.conf.secrets import Secret
from silverfold.connectors.base import Feed
from silverfold.connectors.sqlitecloud_webhooks.options import WebhookOptions, WebhookTable
from silverfold.connectors.sqlitecloud_webhooks.protocol.signing import Signing
from silverfold.connectors.sqlitecloud_webhooks.receiver.receiver import WebhookReceiver
from silverfold.connectors.sqlitecloud_webhooks.server.orders import DATABASE, TABLE, Orders
from silverfold.jobs.receive import collect_rarely
from silverfold.pipelines.places import Place
from tests.bench.sqlitecloud.landing import Spent, at_a_place, landing_at, median, now, since
from tests.support.sqlitecloud.webhooks import free_port

SECRET, HEADER = "measured", "X-Signature"
_SECRET_IS_IN = "SILVERFOLD_BENCH_SECRET"
_ANSWER = b"landed\n"

Serving = Callable[[], AbstractAsyncContextManager[object]]


def webhooks(requests: int, connections: int, runs: int) -> dict[str, object]:
    """Run both servers, alternating; return the line to print."""
    ours, bare = list[Spent](), list[Spent]()
    os.environ[_SECRET_IS_IN] = SECRET
    collect_rarely()
    pipe, theirs = multiprocessing.Pipe()
    port = free_port()
    sender = multiprocessing.get_context("spawn").Process(target=post, args=(requests, connections, port, theirs))
    sender.start()
    for _ in range(runs):
        bare.append(asyncio.run(served(lambda: bare_server(port), pipe)))
        ours.append(at_a_place(lambda place: asyncio.run(served(lambda: receiving(place, port), pipe))))
    pipe.send(False)
    sender.join()
    mine, limit = median(ours), median(bare)
    return {
        "bench": "sqlitecloud-webhooks",
        "requests": requests,
        "connections": connections,
        "landed_per_second": round(requests / mine.seconds),
        "bare_per_second": round(requests / limit.seconds),
        "ratio": round(limit.seconds / mine.seconds, 2),
        "processor_microseconds": {
            "landed": round(1e6 * mine.processor / requests, 1),
            "bare": round(1e6 * limit.processor / requests, 1),
        },
        "processor_ratio": round(limit.processor / mine.processor, 2),
        "runs": runs,
    }


async def served(serving: Serving, pipe: Connection) -> Spent:
    """Return the time spent until all requests are answered."""
    async with serving():
        await asyncio.sleep(0.2)  # until it listens
        began = now()
        pipe.send(True)
        await asyncio.to_thread(pipe.recv)
        return since(began)


@asynccontextmanager
async def receiving(place: Place, port: int) -> AsyncIterator[None]:
    """Serve with the receiver, which lands in a new table."""
    table = WebhookTable(source=TABLE, keys=["id"], types={"id": "bigint"})
    options = WebhookOptions(database=DATABASE, secret=Secret(env=_SECRET_IS_IN), header=HEADER)
    feed = Feed("bench", "sqlitecloud_webhooks", f"127.0.0.1:{port}", options, {TABLE: table})
    async with landing_at(place, WebhookReceiver(feed)):
        yield


@asynccontextmanager
async def bare_server(port: int) -> AsyncIterator[None]:
    """Serve with a bare handler that reads the body and answers."""

    async def answered(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(body=_ANSWER)

    app = web.Application()
    app.router.add_route("*", "/{anything:.*}", answered)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    yield
    await runner.cleanup()


def post(count: int, connections: int, port: int, pipe: Connection) -> None:
    """Post prepared requests over several connections, as often as the parent requests. Runs in its own process."""
    orders, signing = Orders(seed=1, action="http://127.0.0.1/"), Signing(HEADER)
    requests = [request(orders.change(), signing, port) for _ in range(count)]
    while pipe.recv():
        asyncio.run(posted([requests[each::connections] for each in range(connections)], port))
        pipe.send(True)


def request(body: bytes, signing: Signing, port: int) -> bytes:
    """Return an encoded request."""
    head = [
        "POST / HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Content-Type: application/json",
        f"{signing.header}: {signing.sign(body, SECRET)}",
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join([*head, "", ""]).encode() + body


async def posted(shares: list[list[bytes]], port: int) -> None:
    """Post each share over its own connection, one request after another."""

    async def one(share: list[bytes]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for each in share:
            writer.write(each)
            answer = await reader.readuntil(_ANSWER)
            assert answer.startswith(b"HTTP/1.1 200 "), answer
        writer.close()

    await asyncio.gather(*map(one, shares))
