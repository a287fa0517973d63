"""Packets of a change feed as they land, and what reads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from silverfold.connectors.base import Feed
from silverfold.connectors.frames import Boundary, Frame, Kind
from silverfold.connectors.tengi.options import TengiFeed, TengiOptions, TengiTable
from silverfold.connectors.tengi.protocol import Byte, Encoder, Identifier, Int, Message, Packet
from tests.support.two_readers import TwoReaders

CONNECTION = Identifier(bytes(range(16)))
MESSAGE = Identifier(bytes(range(16, 32)))
EPOCH = "00001700000000000000"
COLUMNS = {"id": "bigint", "name": "string", "price": "double"}


def frame_of(packet: Packet, *, flag: int | None = 1) -> bytes:
    """Return a packet as it lands. The flag begins it; without one it is of an answer to a poll."""
    encoder = Encoder()
    if flag is not None:
        encoder.write_bytes(bytes([flag]))
        encoder.write_object(CONNECTION)
    encoder.write_object(Message(MESSAGE, packet))
    return encoder.to_bytes()


def nested(**values: object) -> Packet:
    return Packet("", values)


def numbered(entries: Iterable[object]) -> Packet:
    return Packet("", {str(at): entry for at, entry in enumerate(entries)})


def entry(**parts: Mapping[str, object]) -> Packet:
    """Return an entry of the parts ``key``, ``row`` and ``nulls``."""
    return Packet("", {name: Packet("", values) for name, values in parts.items()})


def schema(
    columns: Mapping[str, str] = COLUMNS, keys: Sequence[str] = ("id",), *, version: int = 1, table: str = "orders"
) -> Packet:
    values = {"table": table, "version": Int(version), "keys": numbered(keys), "columns": Packet("", columns)}
    return Packet("schema", values)


def change(seq: int, op: str, *, version: int = 1, table: str = "orders", **parts: Mapping[str, object]) -> Packet:
    head = {"table": table, "epoch": EPOCH, "seq": seq, "version": Int(version), "op": op}
    return Packet("change", {**head, **entry(**parts).values})


def update(seq: int, *, version: int = 1, table: str = "orders", **groups: Iterable[Packet]) -> Packet:
    """Return an update of the groups ``removed``, ``modified`` and ``added``."""
    head = {"table": table, "epoch": EPOCH, "seq": seq, "version": Int(version)}
    return Packet("update", {**head, **{name: numbered(entries) for name, entries in groups.items()}})


def snapshot(
    seq: int, rows: Iterable[Packet], *, part: int = 0, last: bool = True, version: int = 1, table: str = "orders"
) -> Packet:
    head = {"table": table, "epoch": EPOCH, "seq": seq, "version": Int(version), "id": MESSAGE}
    return Packet("snapshot", {**head, "part": Int(part), "last": Byte(last), "rows": numbered(rows)})


def landed(*packets: Packet, flag: int | None = 1) -> list[Frame]:
    """Return frames of packets that follow one another; parts of snapshots in order."""
    return [_frame(packet, flag) for packet in packets]


def _frame(packet: Packet, flag: int | None) -> Frame:
    body, stream = frame_of(packet, flag=flag), packet.get_value("table")
    if packet.name == "schema":
        return Frame(body, Kind.CONTROL, Boundary.NONE, stream)
    if packet.name != "snapshot":
        return Frame(body, Kind.DATA, Boundary.WHOLE, stream)
    first, last = packet.get_value("part") == 0, packet.get_value("last") == 1
    boundaries = {(True, True): Boundary.WHOLE, (True, False): Boundary.BEGIN, (False, True): Boundary.END}
    return Frame(body, Kind.SNAPSHOT, boundaries.get((first, last), Boundary.INSIDE), stream)


def feed_of(address: str = "tengi://127.0.0.1", *, transport: str = "tcp", **settings: Any) -> TengiFeed:
    """Return a feed of the table orders; the settings are those of the table."""
    return Feed("shop", "tengi", address, TengiOptions(transport=transport), {"orders": TengiTable(**settings)})


def readers(*packets: Packet, flag: int | None = 1, **settings: Any) -> TwoReaders:
    """Return decoder and reference reader of what landed."""
    return TwoReaders(feed_of(**settings), "orders", landed(*packets, flag=flag))
