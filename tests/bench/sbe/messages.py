"""The measured messages: a fixed layout, two flat groups, and a car with nested groups and data."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, NamedTuple

from silverfold.connectors.wire.sbe.codec.encode import encode
from silverfold.connectors.wire.sbe.schema.load import load_schema
from silverfold.connectors.wire.sbe.schema.model import Schema

FOLDER = Path(__file__).parent
DISTINCT = 1_000
"""Number of distinct messages of each kind; more are repetitions."""


class Kind(NamedTuple):
    """One kind of message."""

    file: Path
    schema: Schema
    template: str
    messages: list[bytes]


def kinds() -> dict[str, Kind]:
    """Return the kinds by name, each with `DISTINCT` messages."""
    chance = random.Random(11)
    made = {"trade": (trade, "market.xml", "Trade"), "book": (book, "market.xml", "BookUpdate")}
    made["car"] = car, "car.xml", "Car"
    found = {}
    for name, (make, file, template) in made.items():
        schema = load_schema(FOLDER / file)
        messages = [encode(schema, template, make(chance)) for _ in range(DISTINCT)]
        found[name] = Kind(FOLDER / file, schema, template, messages)
    return found


def trade(chance: random.Random) -> dict[str, Any]:
    """Return a trade: a fixed layout, 64 bytes after its header."""
    return {
        "transactTime": 1_728_051_442_944_000_000 + chance.randrange(10**9),
        "sendingTime": 1_728_051_442_944_100_000 + chance.randrange(10**9),
        "price": {"mantissa": chance.randrange(10**13), "exponent": -9},
        "size": chance.randrange(1, 5_000),
        "securityID": chance.randrange(1, 10**6),
        "rptSeq": chance.randrange(1, 10**8),
        "orders": chance.choice([None, 1, 2, 3]),
        "symbol": chance.choice(["ESZ4", "NQZ4", "CLX4", "6EZ4", "GCZ4-CV"]),
        "tradeID": chance.randrange(10**15),
        "aggressor": chance.choice(["NoAggressor", "Buy", "Sell"]),
        "action": chance.choice(["New", "Change", "Delete"]),
        "indicator": {"LastTrade", "EndOfEvent"} if chance.random() < 0.5 else set(),
        "tick": chance.choice([None, -1, 0, 1]),
        "condition": chance.randrange(100),
    }


def book(chance: random.Random) -> dict[str, Any]:
    """Return a book update: two entries and one order, 118 bytes."""
    return {
        "transactTime": 1_728_051_442_944_000_000 + chance.randrange(10**9),
        "indicator": {"LastQuote", "EndOfEvent"},
        "entries": [
            {
                "price": {"mantissa": chance.choice([None, chance.randrange(10**13)]), "exponent": -9},
                "size": chance.choice([None, chance.randrange(1, 500)]),
                "securityID": chance.randrange(1, 10**6),
                "rptSeq": chance.randrange(1, 10**8),
                "orders": chance.randrange(1, 50),
                "level": chance.randrange(1, 11),
                "action": chance.choice(["New", "Change", "Delete"]),
                "entryType": chance.choice(["Bid", "Offer"]),
            }
            for _ in range(2)
        ],
        "orderIDs": [
            {
                "orderID": chance.randrange(10**15),
                "priority": chance.randrange(10**15),
                "displayQty": chance.randrange(1, 100),
                "reference": 1,
                "orderAction": chance.choice(["New", "Change", "Delete"]),
            }
        ],
    }


def car(chance: random.Random) -> dict[str, Any]:
    """Return a car: three fuel figures with text each, two performances with three accelerations each, three texts."""
    return {
        "serialNumber": chance.randrange(10**9),
        "modelYear": chance.randrange(1990, 2025),
        "available": chance.choice(["F", "T"]),
        "code": chance.choice(["A", "B", "C"]),
        "numbers": [chance.randrange(10**6) for _ in range(4)],
        "vehicleCode": chance.choice(["abcdef", "xyz"]),
        "extras": {"sportsPack", "cruiseControl"},
        "discounted": "C",
        "engine": {
            "capacity": chance.randrange(900, 5_000),
            "cylinders": chance.choice([3, 4, 6, 8]),
            "maxRpm": 9000,
            "code": "123",
            "fuel": "Petrol",
            "efficiency": chance.randrange(100),
            "boosterEnabled": "T",
            "booster": {"boostType": "Nitrous", "horsePower": chance.randrange(200)},
        },
        "fuelFigures": [
            {"speed": speed, "mpg": chance.randrange(200, 600) / 8, "usage": usage}
            for speed, usage in ((30, "Urban Cycle"), (55, "Combined Cycle"), (75, "Highway Cycle"))
        ],
        "performance": [
            {
                "octane": octane,
                "acceleration": [{"mph": mph, "seconds": chance.randrange(20, 200) / 8} for mph in (30, 60, 100)],
            }
            for octane in (95, 99)
        ],
        "manufacturer": "Honda",
        "model": chance.choice(["Civic VTi", "Jazz"]),
        "activation": "abcdef",
    }
