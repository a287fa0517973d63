"""A database that notifies changes of a table after its snapshot."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

from silverfold.connectors.base import Feed
from silverfold.connectors.common.backoff import Backoff, CircuitBreaker
from silverfold.connectors.frames import Frame
from silverfold.connectors.sqlitecloud.options import SqliteCloudOptions, SqliteCloudTable
from silverfold.connectors.sqlitecloud.protocol.connection import PubSubStream
from silverfold.connectors.sqlitecloud.protocol.encode import encode_rowset
from silverfold.connectors.sqlitecloud.protocol.messages import (
    BadFrame,
    Column,
    Notification,
    PubSubTicket,
    Rowset,
)
from silverfold.connectors.sqlitecloud.receiver import bronze_frames
from silverfold.connectors.sqlitecloud.receiver.epoch import Epoch
from tests.support.golden_source import GoldenSource, Turns, cut
from tests.support.sqlitecloud.notices import described, framed, rowset, vectors
from tests.support.sqlitecloud.scsp_peer import OK, SECRET, UUID, Peer, scripted

_CAPTURE = next(vector for vector in vectors("captures") if vector["id"] == "change-after-snapshot")
_ROWS = next(event["snapshot"] for event in _CAPTURE["events"] if "snapshot" in event)
_FOO = described("foo", {"id": "INTEGER", "a": "TEXT", "b": "TEXT"}, _CAPTURE["keys"])
_FIELDS = ("name", "type", "notnull", "pk", "hidden")


def _backoff() -> Backoff:
    return Backoff(1.0, 60.0, Random(1))


class SqliteCloudSource(GoldenSource):
    """Sends its notifications as soon as there is a connection for them."""

    def land(self, turns: Turns) -> list[Frame]:
        breaker = CircuitBreaker(_backoff, lambda: 0.0)
        epoch = Epoch(
            self.feed.tables,
            self.feed.options,
            channel=None,
            backoff=_backoff,
            circuit_breaker=breaker,
            clock=lambda: 0.0,
        )
        table = epoch.add("foo")
        frames = table.begin(_FOO)
        frames += table.select([tuple(row) for row in _ROWS], rowset(_FOO.names, _ROWS)) + table.close(0.0)
        stream = PubSubStream()
        stream.send(PubSubTicket(UUID, SECRET))
        stream.receive(OK)
        stream.next_event()
        for turn in turns:
            for chunk in turn:
                stream.receive(chunk)
                events = _events(stream)
                frames += epoch.receive([event for event in events if isinstance(event, Notification)])
                if bad := [event for event in events if isinstance(event, BadFrame)]:
                    return frames + bronze_frames.bad_frames(bad)
        return frames

    @asynccontextmanager
    async def sending(self, sent: asyncio.Event) -> AsyncIterator[str]:
        async def notify(writer: asyncio.StreamWriter) -> None:
            for turn in self.turns:
                for chunk in cut(turn, 64):
                    writer.write(chunk)
                    await asyncio.sleep(0)
            sent.set()

        columns = [(column.name, column.type, 0, column.pk, 0) for column in _FOO.columns]
        answers = {
            "SELECT name, type": encode_rowset(Rowset(tuple(map(Column, _FIELDS)), columns)),
            "SELECT": rowset(_FOO.names, _ROWS),
        }
        async with scripted(Peer(answers, on_pubsub=notify)) as address:
            yield address


def _events(stream: PubSubStream) -> list[object]:
    """Return the events there are, the last of which may be a bad frame."""
    events: list[object] = []
    while not (events and isinstance(events[-1], BadFrame)) and (event := stream.next_event()) is not None:
        events.append(event)
    return events


SOURCE = SqliteCloudSource(
    Feed("shop", "sqlitecloud", "", SqliteCloudOptions(fence=False, canary_seconds=0), {"foo": SqliteCloudTable()}),
    (b"".join(framed(json.dumps(event["data"])) for event in _CAPTURE["events"] if "data" in event),),
)
