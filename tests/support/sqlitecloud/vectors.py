"""Golden vectors of the SQLite Cloud protocol: their bytes and their decoded values."""

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

GOLDEN = Path(__file__).parents[2] / "golden" / "sqlitecloud"
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


def cell(vector: dict[str, Any]) -> Value:
    value: Value = CELLS[vector["t"]](vector["v"])
    return value


def rows(vector: list[list[dict[str, Any]]]) -> list[tuple[Value, ...]]:
    return [tuple(cell(each) for each in row) for row in vector]


def message(vector: dict[str, Any]) -> Message:
    """Return the message in a vector's ``parsed``."""
    return _MESSAGES[vector["type"]](vector)


def _octets_or(vector: dict[str, Any], key: str) -> bytes:
    return vector[key].encode() if key in vector else bytes.fromhex(vector["bytes_hex"])


def _string(vector: dict[str, Any]) -> Single:
    return Single(vector["value"] if "value" in vector else RawText(bytes.fromhex(vector["bytes_hex"])))


def _chunk(vector: dict[str, Any]) -> RowsetChunk:
    named = columns(vector) if "columns" in vector else None
    return RowsetChunk(vector["index"], vector["version"], named, vector["ncols"], rows(vector["rows"]))


_MESSAGES: dict[str, Callable[[dict[str, Any]], Message]] = {
    "ok": lambda _vector: Single("OK"),
    "int": lambda vector: Single(int(vector["value"])),
    "float": lambda vector: Single(float(vector["value"])),
    "null": lambda _vector: Single(None),
    "string": _string,
    "zstring": _string,
    "blob": lambda vector: Single(bytes.fromhex(vector["hex"])),
    "json": lambda vector: JsonText(_octets_or(vector, "text")),
    "error": lambda vector: ServerError(vector["code"], vector["ext"], vector["offset"], vector["message"]),
    "array": lambda vector: Array(tuple(cell(item) for item in vector["items"])),
    "rowset": lambda vector: Rowset(columns(vector), rows(vector["rows"]), vector["version"]),
    "rowset_chunk": _chunk,
    "chunk_end": lambda _vector: ChunksEnd(),
    "pubsub": lambda vector: PubSubOffer(vector["command"].encode()),
    "command": lambda vector: Command(vector["command"].encode()),
    "reconnect": lambda vector: Reconnect(vector["command"].encode()),
}


def columns(vector: dict[str, Any]) -> tuple[Column, ...]:
    if "decltype" not in vector:
        return tuple(Column(name) for name in vector["columns"])
    texts = [vector[key] for key in ("columns", "decltype", "database", "table", "origin")]
    flags = [[flag == 1 for flag in vector[key]] for key in ("notnull", "primary_key", "autoincrement")]
    return tuple(Column(*parts) for parts in zip(*texts, *flags, strict=True))


def error(text: bytes) -> bytes:
    """Return the frame of an error."""
    return b"-%d %s" % (len(text), text)
