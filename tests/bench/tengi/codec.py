"""Measures the codec against `struct` written by hand: a packet of ten fields, and arrays of numbers."""

from __future__ import annotations

import statistics
import struct
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from silverfold.connectors.tengi.protocol import Byte, Decoder, Encoder, Int, Packet, Short
from tests.bench.silver import timed

TIMES: Final = 20_000
NUMBERS: Final = 10_000
ARRAYS: Final = {"int32": ("i", np.int32), "int64": ("q", np.int64), "double": ("d", np.float64)}
PACKET: Final = Packet(
    "order",
    {
        "id": 7,
        "number": Int(12),
        "price": 2.5,
        "name": "Steven",
        "country": "de",
        "quantity": Short(3),
        "paid": Byte(1),
        "note": "gift",
        "total": 7.5,
        "at": 1_700_000_000_000_000,
    },
)

_HEAD = struct.Struct(">iiH")
_COUNT = struct.Struct(">i")
_FORMS: Final = {"b": struct.Struct(">hb"), "h": struct.Struct(">hh"), "i": struct.Struct(">hi")}
_FORMS |= {"q": struct.Struct(">hq"), "d": struct.Struct(">hd")}
_IDS: Final = {"b": -1, "h": -2, "i": -4, "q": -6, "d": -7}
_KINDS: Final = dict(zip(PACKET.values, "qidsshbsdq", strict=True))
_BY_ID: Final = {number: _FORMS[code] for code, number in _IDS.items()}


class Work(NamedTuple):
    """One way of writing or reading, by us and by hand.

    Args:
        octets: Number of bytes written or read by one call.
    """

    what: str
    octets: int
    ours: Callable[[], Any]
    by_hand: Callable[[], Any]


def codec(runs: int) -> Iterator[dict[str, object]]:
    """Measure all, alternating; yield the lines to print."""
    for work in [*of_packet(), *(work for name in ARRAYS for work in of_array(name))]:
        times = TIMES if work.octets < NUMBERS else TIMES // 40
        pairs = [(timed(repeated(work.ours, times)), timed(repeated(work.by_hand, times))) for _ in range(runs + 1)][1:]
        mine, limit = map(statistics.median, zip(*pairs, strict=True))
        size = work.octets * times / 1e6
        yield {
            "bench": "tengi-codec",
            "what": work.what,
            "bytes": work.octets,
            "microseconds": round(1e6 * mine / times, 2),
            "megabytes_per_second": round(size / mine, 1),
            "struct_megabytes_per_second": round(size / limit, 1),
            "ratio": round(limit / mine, 2),
            "aim": 0.5,
            "runs": runs,
        }


def repeated(work: Callable[[], Any], times: int) -> Callable[[], None]:
    """Return what does the work so many times."""

    def repeat() -> None:
        for _ in range(times):
            work()

    return repeat


def of_packet() -> Iterator[Work]:
    """Yield writing and reading of a packet of ten fields."""

    def encode() -> bytes:
        encoder = Encoder()
        encoder.write_object(PACKET)
        return encoder.to_bytes()

    octets = encode()
    assert octets == write_by_hand()
    assert read_by_hand(octets) == PACKET.values == Decoder(octets).read_object().values
    yield Work("packet, written", len(octets), encode, write_by_hand)
    yield Work("packet, read", len(octets), lambda: Decoder(octets).read_object(), lambda: read_by_hand(octets))


def write_by_hand() -> bytes:
    """Write the packet as a program that knows its ten fields."""
    out = [b"\xff\x99\xfc\x18", text(PACKET.name), _COUNT.pack(len(PACKET.values))]
    for key, value in PACKET.values.items():
        code = _KINDS[key]
        out += (text(key), b"\xff\xf8" + text(value) if code == "s" else _FORMS[code].pack(_IDS[code], value))
    return b"".join(out)


def text(value: str) -> bytes:
    """Return a short text."""
    octets = value.encode()
    return _HEAD.pack(len(value), len(value), len(octets)) + octets


def read_by_hand(octets: bytes) -> dict[str, Any]:
    """Read the packet, trusting every length."""
    values: dict[str, Any] = {}
    at = 14 + _HEAD.unpack_from(octets, 4)[2]
    (count,) = _COUNT.unpack_from(octets, at)
    at += 4
    for _ in range(count):
        end = at + 10 + _HEAD.unpack_from(octets, at)[2]
        key = octets[at + 10 : end].decode()
        form = _BY_ID.get(int.from_bytes(octets[end : end + 2], signed=True))
        if form is None:
            at = end + 12 + _HEAD.unpack_from(octets, end + 2)[2]
            values[key] = octets[end + 12 : at].decode()
        else:
            _, values[key] = form.unpack_from(octets, end)
            at = end + form.size
    return values


def of_array(name: str) -> Iterator[Work]:
    """Yield writing and reading of an array of numpy's, and writing of a list."""
    code, kind = ARRAYS[name]
    array = np.arange(NUMBERS).astype(kind)
    numbers, form = array.tolist(), struct.Struct(f">{NUMBERS}{code}")
    octets = form.pack(*numbers)
    assert written(name, array) == written(name, numbers) == octets
    assert read(name, octets).tolist() == numbers
    yield from (
        Work(f"{name} array, written", len(octets), lambda: written(name, array), lambda: form.pack(*numbers)),
        Work(f"{name} array, read", len(octets), lambda: read(name, octets), lambda: form.unpack(octets)),
        Work(f"{name} list, written", len(octets), lambda: written(name, numbers), lambda: form.pack(*numbers)),
    )


def written(name: str, values: Any) -> bytes:
    """Return an array as bytes."""
    encoder = Encoder()
    getattr(encoder, f"write_{name}_array")(values)
    return encoder.to_bytes()


def read(name: str, octets: bytes) -> Any:
    """Return the array in bytes."""
    return getattr(Decoder(octets), f"read_{name}_array")(NUMBERS)
