"""Other decoders of messages to Python values: the packages `sbe` and `sbedecoder`, and hand-written code."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

Decode = Callable[[bytes], object]

HEADER = struct.Struct("<4H").unpack_from
TRADE = struct.Struct("<QQqiiIi8sQBBBbI").unpack_from
BOOK = struct.Struct("<QB").unpack_from
ENTRIES, ENTRY = struct.Struct("<HB").unpack_from, struct.Struct("<qiiIiBBc5x").unpack_from
ORDERS, ORDER = struct.Struct("<H5xB").unpack_from, struct.Struct("<QQiBB2x").unpack_from
CAR = struct.Struct("<QHBc4I6sBHB3sbBcB").unpack_from
FIGURE, PERFORMANCE, ACCELERATION = (struct.Struct(code).unpack_from for code in ("<Hf", "<B", "<Hf"))
DIMENSIONS, LENGTH = struct.Struct("<HH").unpack_from, struct.Struct("<I").unpack_from

ACTION = {0: "New", 1: "Change", 2: "Delete"}
ENTRY_TYPE = {b"0": "Bid", b"1": "Offer", b"2": "Trade"}
AGGRESSOR = {0: "NoAggressor", 1: "Buy", 2: "Sell"}
YES = {0: "F", 1: "T"}
MODEL = {b"A": "A", b"B": "B", b"C": "C"}
BOOSTER = {b"T": "Turbo", b"N": "Nitrous"}
INDICATOR = ((0, "LastTrade"), (2, "LastQuote"), (5, "Recovery"), (7, "EndOfEvent"))
EXTRAS = ((0, "sunRoof"), (1, "sportsPack"), (2, "cruiseControl"))
INT64, INT32, INT8 = (1 << 63) - 1, (1 << 31) - 1, 127


def by_hand(kind: str) -> Decode:
    """Return a quick hand-written decoder of one message, without checks of counts or versions."""
    return {"trade": trade, "book": book, "car": car}[kind]


def trade(body: bytes) -> dict[str, Any]:
    """Return the values of a trade."""
    HEADER(body, 0)
    fields = TRADE(body, 8)
    time, sent, price, size, security, seq, orders, symbol, number, side, action, bits, tick, condition = fields
    return {
        "transactTime": time,
        "sendingTime": sent,
        "price": {"mantissa": price, "exponent": -9},
        "size": size,
        "securityID": security,
        "rptSeq": seq,
        "orders": None if orders == INT32 else orders,
        "symbol": symbol.partition(b"\0")[0].decode("ascii"),
        "tradeID": number,
        "aggressor": AGGRESSOR.get(side, side),
        "action": ACTION.get(action, action),
        "indicator": [name for bit, name in INDICATOR if bits >> bit & 1],
        "tick": None if tick == INT8 else tick,
        "condition": condition,
    }


def book(body: bytes) -> dict[str, Any]:
    """Return the values of a book update."""
    block_length, *_ = HEADER(body, 0)
    time, bits = BOOK(body, 8)
    at = 8 + block_length
    stride, count = ENTRIES(body, at)
    at += 3
    entries = []
    for _ in range(count):
        price, size, security, seq, orders, level, action, kind = ENTRY(body, at)
        at += stride
        entries.append(
            {
                "price": {"mantissa": None if price == INT64 else price, "exponent": -9},
                "size": None if size == INT32 else size,
                "securityID": security,
                "rptSeq": seq,
                "orders": None if orders == INT32 else orders,
                "level": level,
                "action": ACTION.get(action, action),
                "entryType": ENTRY_TYPE.get(kind, kind),
            }
        )
    stride, count = ORDERS(body, at)
    at += 8
    order_ids = []
    for _ in range(count):
        order, priority, quantity, reference, action = ORDER(body, at)
        at += stride
        order_ids.append(
            {
                "orderID": order,
                "priority": priority,
                "displayQty": quantity,
                "reference": reference,
                "orderAction": ACTION.get(action, action),
            }
        )
    indicator = [name for bit, name in INDICATOR if bits >> bit & 1]
    return {"transactTime": time, "indicator": indicator, "entries": entries, "orderIDs": order_ids}


def car(body: bytes) -> dict[str, Any]:
    """Return the values of a car."""
    at = 8 + HEADER(body, 0)[0]
    row = _car_block(body)
    row["fuelFigures"] = figures = []
    stride, count = DIMENSIONS(body, at)
    at += 4
    for _ in range(count):
        speed, mpg = FIGURE(body, at)
        usage, at = _text(body, at + stride, "ascii")
        figures.append({"speed": speed, "mpg": mpg, "usage": usage})
    row["performance"] = performance = []
    stride, count = DIMENSIONS(body, at)
    at += 4
    for _ in range(count):
        (octane,) = PERFORMANCE(body, at)
        inner, steps = DIMENSIONS(body, at + stride)
        at += stride + 4
        acceleration = []
        for _ in range(steps):
            mph, seconds = ACCELERATION(body, at)
            at += inner
            acceleration.append({"mph": mph, "seconds": seconds})
        performance.append({"octane": octane, "acceleration": acceleration})
    row["manufacturer"], at = _text(body, at, "utf-8")
    row["model"], at = _text(body, at, "utf-8")
    row["activation"], at = _text(body, at, "ascii")
    return row


def _car_block(body: bytes) -> dict[str, Any]:
    fields = CAR(body, 8)
    serial, year, available, code, n1, n2, n3, n4, vehicle, extras, capacity, cylinders, maker, efficiency = fields[:14]
    enabled, kind, power = fields[14:]
    return {
        "serialNumber": serial,
        "modelYear": year,
        "available": YES.get(available, available),
        "code": MODEL.get(code, code),
        "numbers": [n1, n2, n3, n4],
        "vehicleCode": vehicle.partition(b"\0")[0].decode("ascii"),
        "extras": [name for bit, name in EXTRAS if extras >> bit & 1],
        "discounted": "C",
        "engine": {
            "capacity": capacity,
            "cylinders": cylinders,
            "maxRpm": 9000,
            "code": maker.partition(b"\0")[0].decode("ascii"),
            "fuel": "Petrol",
            "efficiency": efficiency,
            "boosterEnabled": YES.get(enabled, enabled),
            "booster": {"boostType": BOOSTER.get(kind, kind), "horsePower": power},
        },
    }


def _text(body: bytes, at: int, charset: str) -> tuple[str, int]:
    (length,) = LENGTH(body, at)
    end = at + 4 + length
    return str(body[at + 4 : end], charset), end


def package_sbe(file: Path) -> Decode | None:
    """Return the decoder of the package `sbe`; None if it is not installed."""
    try:
        import sbe  # noqa: PLC0415 - a peer, not a dependency
    except ImportError:
        return None
    with file.open(encoding="utf-8") as xml:
        schema = sbe.Schema.parse(xml)
    return lambda body: schema.decode(body).value


def package_sbedecoder(file: Path) -> Decode | None:
    """Return the decoder of the package `sbedecoder`, reading all values; None if it is not installed."""
    try:
        import sbedecoder  # noqa: PLC0415 - a peer, not a dependency
    except ImportError:
        return None
    schema = sbedecoder.SBESchema()
    with warnings.catch_warnings():  # it compiles patterns that newer Python versions warn about
        warnings.simplefilter("ignore")
        schema.parse(str(file))
    parse = sbedecoder.SBEMessage.parse_message

    def decode(body: bytes) -> dict[str, Any]:
        message = parse(schema, body)
        shown = {field.name: field.value for field in message.fields}
        for group in message.groups:
            entries = group.repeating_groups
            shown[group.name] = [{field.name: field.value for field in entry.fields} for entry in entries]
        return shown

    return decode
