"""What a connection takes as a packet is read back from what landed, whichever byte its flag is."""

from __future__ import annotations

import pytest

from silverfold.conf.errors import WireError
from silverfold.connectors.tengi.protocol.connection import ClientConnection, Connection, ServerConnection
from silverfold.connectors.tengi.protocol.events import MessageReceived, Transport
from silverfold.connectors.tengi.protocol.feed.packets import read_packet
from silverfold.connectors.tengi.protocol.frame_access import read_frame
from silverfold.connectors.tengi.receiver.table_feed import landed_schemas
from tests.support.tengi.landed import CONNECTION, frame_of, schema


def opened(transport: Transport, flag: int, *, dials: bool) -> Connection:
    """Return an open connection to a source that begins packets with a flag."""
    client, server = ClientConnection(transport), ServerConnection(transport)
    server.receive(client.send_handshake())
    server.next_event()
    answer = server.accept(CONNECTION)
    client.receive(bytes([flag]) + answer[1:])
    client.next_event()
    return client if dials else server


@pytest.mark.parametrize("flag", [1, 2, 0x7F, 0x80, 0xFF])
@pytest.mark.parametrize("transport", Transport)
@pytest.mark.parametrize("dials", [True, False])
def test_a_packet_with_any_flag_but_0_is_read_back(transport: Transport, flag: int, dials: bool) -> None:
    connection = opened(transport, flag, dials=dials)
    connection.receive(frame_of(schema(), flag=flag))
    event = connection.next_event()
    assert isinstance(event, MessageReceived)
    assert event.raw[0] == flag
    assert read_frame(event.raw) == schema()
    assert landed_schemas({"orders": event.raw}, limit=1 << 20) == {"orders": read_packet(schema())}


@pytest.mark.parametrize(
    "octets", [b"", frame_of(schema(), flag=0), b"\1" + frame_of(schema(), flag=None), b"\xff" * 40]
)
def test_what_is_no_packet_of_a_connection_is_refused(octets: bytes) -> None:
    with pytest.raises(WireError):
        read_frame(octets)
