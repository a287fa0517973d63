"""The golden vectors of SQLite Cloud's protocol: their bytes, and what they say as our values."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from silverfold.connectors.sqlitecloud.protocol.messages import (
    Array,
    ChunksEnd,
    Column,
    Command,
    JsonText,
    Message,
    PubSubOffer,
    RawText,
    Reconnect,
    Rowset,
    RowsetChunk,
    ServerError,
    Single,
    Value,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "sqlitecloud"
CELLS = {"int": int, "float": float, "text": str, "blob": bytes.fromhex, "null": lambda _value: None}


def vectors(group: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((GOLDEN / f"{group}.json").read_text(encoding="utf-8"))
    return found


def names(group: list[dict[str, Any]]) -> list[str]:
    return [vector["id"] for vector in group]


def octets(vector: dict[str, Any]) -> bytes:
    return vector["text"].encode() if "text" in vector else bytes.fromhex(vector["hex"])


def pieces(whole: bytes, size: int) -> Iterator[bytes]:
    return (whole[at : at + size] for at in range(0, len(whole), size))


def cell(told: dict[str, Any]) -> Value:
    value: Value = CELLS[told["t"]](told["v"])
    return value


def rows(told: list[list[dict[str, Any]]]) -> list[tuple[Value, ...]]:
    return [tuple(cell(each) for each in row) for row in told]


def message(told: dict[str, Any]) -> Message:
    """What a vector's ``parsed`` says."""
    return _MESSAGES[told["type"]](told)


def _octets_or(told: dict[str, Any], key: str) -> bytes:
    return told[key].encode() if key in told else bytes.fromhex(told["bytes_hex"])


def _string(told: dict[str, Any]) -> Single:
    return Single(told["value"] if "value" in told else RawText(bytes.fromhex(told["bytes_hex"])))


def _chunk(told: dict[str, Any]) -> RowsetChunk:
    named = columns(told) if "columns" in told else None
    return RowsetChunk(told["index"], told["version"], named, told["ncols"], rows(told["rows"]))


_MESSAGES: dict[str, Callable[[dict[str, Any]], Message]] = {
    "ok": lambda _told: Single("OK"),
    "int": lambda told: Single(int(told["value"])),
    "float": lambda told: Single(float(told["value"])),
    "null": lambda _told: Single(None),
    "string": _string,
    "zstring": _string,
    "blob": lambda told: Single(bytes.fromhex(told["hex"])),
    "json": lambda told: JsonText(_octets_or(told, "text")),
    "error": lambda told: ServerError(told["code"], told["ext"], told["offset"], told["message"]),
    "array": lambda told: Array(tuple(cell(item) for item in told["items"])),
    "rowset": lambda told: Rowset(columns(told), rows(told["rows"]), told["version"]),
    "rowset_chunk": _chunk,
    "chunk_end": lambda _told: ChunksEnd(),
    "pubsub": lambda told: PubSubOffer(told["command"].encode()),
    "command": lambda told: Command(told["command"].encode()),
    "reconnect": lambda told: Reconnect(told["command"].encode()),
}


def columns(told: dict[str, Any]) -> tuple[Column, ...]:
    if "decltype" not in told:
        return tuple(Column(name) for name in told["columns"])
    texts = [told[key] for key in ("columns", "decltype", "database", "table", "origin")]
    flags = [[flag == 1 for flag in told[key]] for key in ("notnull", "primary_key", "autoincrement")]
    return tuple(Column(*parts) for parts in zip(*texts, *flags, strict=True))


def error(text: bytes) -> bytes:
    """Return the frame of an error."""
    return b"-%d %s" % (len(text), text)
