"""A source that publishes one table over TCP: schema, a snapshot in parts, and changes, one of them out of order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import chain
from typing import Final

from silverfold.connectors.frames import Frame
from silverfold.connectors.tengi.options import TengiFeed
from silverfold.connectors.tengi.protocol.connection import ClientConnection
from silverfold.connectors.tengi.protocol.events import BadFrame, MessageReceived, Transport
from silverfold.connectors.tengi.protocol.values import Byte, Packet
from silverfold.connectors.tengi.receiver.receiver import new_epoch
from tests.support.golden_source import GoldenSource, Turns
from tests.support.tengi.landed import CONNECTION, change, entry, feed_of, frame_of, schema, snapshot, update

_HANDSHAKE: Final = "ff99ff37 00000009 00000009 0009 48616e647368616b65 00000000"
_ANSWER: Final = b"\1\xff\x9b" + CONNECTION + bytes.fromhex(_HANDSHAKE)


def _row(number: int, name: str, price: float | None = None) -> Packet:
    row = {"id": number, "name": name}
    return entry(row=row, nulls={"price": Byte(1)}) if price is None else entry(row={**row, "price": price})


_SEVERAL: Final = update(
    5,
    removed=[entry(key={"id": 11})],
    modified=[entry(key={"id": 2}, row={"price": 2.5})],
    added=[_row(4, "four", 4.0), _row(5, "five")],
)


class TengiSource(GoldenSource):
    """The first turn is the answer to the handshake; the others are packets."""

    def land(self, turns: Turns) -> list[Frame]:
        feed: TengiFeed = self.feed
        connection, epoch = ClientConnection(Transport.TCP), new_epoch(feed, {})
        connection.send_handshake()
        frames = epoch.begin(0.0)
        for chunk in chain.from_iterable(turns):
            connection.receive(chunk)
            while (event := connection.next_event()) is not None:
                if isinstance(event, MessageReceived | BadFrame):
                    frames += epoch.take(event, 0.0)
                if isinstance(event, BadFrame):
                    return frames
        return frames

    @asynccontextmanager
    async def sending(self, sent: asyncio.Event) -> AsyncIterator[str]:
        async with super().sending(sent) as address:
            yield f"tengi://{address}"

    async def requests(self, reader: asyncio.StreamReader) -> None:
        """Wait for what the receiver asks for: its handshake, then its subscription."""
        await reader.read(1)


SOURCE: Final = TengiSource(
    feed_of(),
    turns=(
        _ANSWER,
        frame_of(schema()) + frame_of(snapshot(1, [_row(1, "one", 1.5), _row(2, "two")], last=False)),
        frame_of(snapshot(1, [_row(3, "three", 3.25)], part=1)),
        frame_of(change(3, "UPDATE", key={"id": 1}, row={"id": 11}))
        + frame_of(change(2, "UPDATE", key={"id": 2}, row={"name": "zwei"}, nulls={"price": Byte(1)})),
        frame_of(change(4, "DELETE", key={"id": 3}))
        + frame_of(_SEVERAL)
        + frame_of(change(2, "DELETE", key={"id": 2})),
    ),
)
