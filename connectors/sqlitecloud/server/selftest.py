"""The replies of ``TEST``: a value of every type, as requested by the vendor's client tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final

import apsw

from silverfold.conf.errors import SourceRefused
from silverfold.connectors.sqlitecloud.protocol.encode import (
    encode_array,
    encode_command,
    encode_json,
    encode_text,
    encode_value,
    encode_zero_text,
)
from silverfold.connectors.sqlitecloud.protocol.messages import Column, Value
from silverfold.connectors.sqlitecloud.server.error_codes import COMMAND
from silverfold.connectors.sqlitecloud.server.results import ClientKeys, rows_frames, table_frame
from silverfold.connectors.sqlitecloud.server.transactions import Rows

_ENOUGH: Final = 1 << 20
_FIRST_KEYWORDS: Final = ("REINDEX", "INDEXED", "INDEX", "DESC")
_LAST_KEYWORD: Final = "PRIMARY"
KEYWORDS: Final = (*_FIRST_KEYWORDS, *sorted(apsw.keywords - {*_FIRST_KEYWORDS, _LAST_KEYWORD}), _LAST_KEYWORD)
"""SQLite's keywords. The vendor's tests ask where the first four and the last one are; apsw tells no order."""
_VALUES: Final[dict[str, Value]] = {
    "STRING": "Hello World, this is a test string.",
    "STRING0": "",
    "INTEGER": 123_456,
    "INT64": (1 << 63) - 1,
    "FLOAT": 3.1415926,
    "NULL": None,
    "BLOB": bytes(1_000),
    "BLOB0": b"",
}


def _error(text: str) -> bytes:
    """Return an error frame whose text contains only the given codes."""
    return b"-" + encode_text(text)[1:]


_FRAMES: Final[dict[str, bytes]] = {
    "ZERO_STRING": encode_zero_text("Hello World, this is a zero-terminated test string."),
    "ERROR": _error("66666 This is a test error message with a devil error code."),
    "EXTERROR": _error("66666:333 This is a test error message with an extcode and a devil error code."),
    "ARRAY": encode_array(("Hello World", 123_456, 3.1415, None, bytes(10))),
    "ARRAY0": encode_array(()),
    "JSON": encode_json('{"msg-from":{"class":"soldier","name":"Wixilav"},"msg-num":1}'),
    "COMMAND": encode_command("PING"),
}


def selftest_frames(what: str, keys: ClientKeys, *, compressed: bool = False) -> Iterator[bytes]:
    """Yield the frames of the reply to ``TEST what``, rowsets compressed if that is asked for.

    Raises:
        SourceRefused: There is no such test.
    """
    name = what.upper()
    if compressed:
        keys = replace(keys, compression=1)
        name = f"{name}_COMPRESSED" if f"{name}_COMPRESSED" in _ROWSETS else name
    if name in _VALUES:
        yield encode_value(_VALUES[name])
    elif name in _FRAMES:
        yield _FRAMES[name]
    elif name in _ROWSETS:
        yield from _ROWSETS[name](keys)
    else:
        raise SourceRefused(code=COMMAND, text=f"Unable to find command TEST {what}.")


def _rowset(keys: ClientKeys) -> Iterator[bytes]:
    yield table_frame(("key", "value"), [(word, str(number)) for number, word in enumerate(KEYWORDS[:41])], keys)


def _keywords(keys: ClientKeys, *, per_chunk: int, compressed: int) -> Iterator[bytes]:
    rows = Rows((Column("key"),), ((word,) for word in KEYWORDS))
    settings = replace(keys, maxrows=per_chunk, compression=compressed)
    yield from rows_frames(rows, settings, chunk_bytes=_ENOUGH, version=1)


_ROWSETS: Final[dict[str, Callable[[ClientKeys], Iterator[bytes]]]] = {
    "ROWSET": _rowset,
    "ROWSET_CHUNK": partial(_keywords, per_chunk=1, compressed=0),
    "ROWSET_NOCHUNK": partial(_keywords, per_chunk=0, compressed=0),
    "ROWSET_CHUNK_COMPRESSED": partial(_keywords, per_chunk=1, compressed=1),
    "ROWSET_NOCHUNK_COMPRESSED": partial(_keywords, per_chunk=0, compressed=1),
}
