"""Parsing of a notification's JSON text: the changes of a table, in order, or a channel message.

Two vocabularies are read, word by word; a text may mix them. Each word is looked up by its newer name first::

    in the text   kind        channel_type      type      TABLE or MESSAGE
                  key names   sqlite_pk_name    pk
    in an entry   operation   sqlite_type       type      INSERT, UPDATE or DELETE; the first of that name counts
                  old key     sqlite_pk_value   pv        a list: no column holds one

All other members of an entry are columns, even if named like a reserved word. An entry with ``pv`` in which both
``sqlite_type`` and ``type`` are operations is refused: either may be a column. An absent column is not NULL. Integers
are exact, however large; other numbers are doubles, like SQLite's reals: overflow gives infinity.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple, NoReturn, TypeAlias

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.sqlitecloud.protocol.frame_access import message_stream
from silverfold.connectors.sqlitecloud.protocol.messages import MAX_NESTING

Op: TypeAlias = Literal["insert", "update", "delete"]
Json: TypeAlias = Any
"""A parsed value: int, float, str, bool, None, a list, or `Members`."""

Key: TypeAlias = tuple[Json, ...]


class Change(NamedTuple):
    """The change of one row."""

    op: Op
    key: Key
    """Key values in the order of `TableUpdate.keys`, never None; for a delete, the old values."""
    old_key: Key | None
    """The previous key of an update that moved the row. 1 and 1.0 are the same key, 1 and "1" are not."""
    columns: dict[str, Json]
    """The columns sent, in order. None is NULL."""


class TableUpdate(NamedTuple):
    """The changes of one commit to one table."""

    channel: str
    """The table's name."""
    sender: str | None
    """The writing session; "0" is the server itself."""
    keys: tuple[str, ...]
    changes: list[Change]
    """In order of effect."""


class ChannelMessage(NamedTuple):
    """A message to a channel."""

    channel: str
    sender: str | None
    text: str | None
    """None if absent or NULL. A payload other than text, which no known source sends, is its JSON."""


Notified: TypeAlias = TableUpdate | ChannelMessage


class Members(list[tuple[str, Json]]):
    """A JSON object with all its members in order, duplicate names included."""


_ABSENT: Final = object()
_OPS: Final[dict[str, Op]] = {"INSERT": "insert", "UPDATE": "update", "DELETE": "delete"}
_KEY_TYPES: Final = frozenset({str, int, float})
"""Types of key values."""


def read_notification(text: bytes) -> Notified:
    """Parse a notification completely, or raise.

    Raises:
        InvalidValue: The reason is one of ``invalid_utf8``, ``invalid_json``, ``not_an_object``, ``no_kind``,
            ``unknown_kind``, ``no_channel``, ``no_key_names``, ``bad_key_names``, ``payload_not_a_list``,
            ``entry_not_an_object``, ``no_op``, ``unknown_op``, ``no_key``, ``key_arity``, ``null_in_key`` and
            ``duplicate_column``. The element names the entry.
    """
    members = _parse_envelope(text)
    kind = _kind(members)
    channel, sender = _channel(members), _text(members.get("sender"))
    if kind == "MESSAGE":
        return ChannelMessage(channel, sender, _text(members.get("payload")))
    keys = _key_names(members)
    payload = members.get("payload")
    if type(payload) is not list:
        _refuse("payload_not_a_list", "the payload of a table's notification is a list of entries")
    return TableUpdate(channel, sender, keys, _changes(payload, keys))


def parse_streams(text: bytes) -> Sequence[str]:
    """Return the streams that a notification names: a table's, or ``notify:`` plus a channel's name.

    Both if its kind is unknown: the vendor announces further ones.

    Raises:
        InvalidValue: It names none: a reason of `read_notification`.
    """
    members = _parse_envelope(text)
    channel = _channel(members)
    streams = {"TABLE": channel, "MESSAGE": message_stream(channel)}
    try:
        return [streams[_kind(members)]]
    except InvalidValue:
        return list(streams.values())


def _parse_envelope(text: bytes) -> dict[str, Json]:
    """Return the members of the text, the first of each name."""
    try:
        decoded = text.decode().strip(" \n\t\r")
    except UnicodeDecodeError as error:
        _refuse("invalid_utf8", f"byte {error.start} of the text is not UTF-8")
    try:
        found, end = _scan(decoded)
        if end != len(decoded):
            raise ValueError(f"more text follows at character {end}")
    except (ValueError, RecursionError) as error:
        _refuse("invalid_json", str(error).partition(";")[0][:200])  # the rest is Python's advice to programmers
    if type(found) is not Members:
        _refuse("not_an_object", "a notification is a JSON object")
    return dict(reversed(found))


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_scan: Final = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=Members).raw_decode


def _kind(members: dict[str, Json]) -> str:
    kind = members.get("channel_type", members.get("type", _ABSENT))
    if kind is _ABSENT:
        _refuse("no_kind", "neither channel_type nor type")
    if kind not in ("TABLE", "MESSAGE"):
        _refuse("unknown_kind", f"the kind is {kind!r:.40}")
    return str(kind)


def _channel(members: dict[str, Json]) -> str:
    channel = members.get("channel")
    if type(channel) is not str or not _is_text(channel):
        _refuse("no_channel", "the channel is no text" if "channel" in members else "the text names no channel")
    return str(channel)


def _is_text(text: str) -> bool:
    """Return whether a text can be encoded as UTF-8: JSON can escape unpaired surrogates."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _text(value: Json) -> str | None:
    """Return a text unchanged; other values, and texts that UTF-8 cannot encode, as JSON."""
    if value is None:
        return None
    text = value if type(value) is str else json_text(value)
    return text if _is_text(text) else json.dumps(text)


def _key_names(members: dict[str, Json]) -> tuple[str, ...]:
    names = members.get("sqlite_pk_name", members.get("pk"))
    if names is None or names == []:
        _refuse("no_key_names", "the text names no key columns")
    if type(names) is not list or any(type(name) is not str for name in names) or len({*names}) < len(names):
        _refuse("bad_key_names", "the names of the key columns are a list of texts, none twice")
    return tuple(names)


def _changes(payload: Sequence[Json], keys: tuple[str, ...]) -> list[Change]:
    changes = []
    for number, entry in enumerate(payload):
        word, columns, old_key = _read_entry(entry, number)
        op = _OPS.get(word) if type(word) is str else None
        if op is None:
            _refuse("no_op" if word is _ABSENT else "unknown_op", "INSERT, UPDATE or DELETE", number)
        changes.append(_change(op, columns, None if op == "insert" else old_key, keys, number))
    return changes


def _change(op: Op, columns: dict[str, Json], old: Sequence[Json] | None, keys: tuple[str, ...], number: int) -> Change:
    if old is not None and len(old) != len(keys):
        _refuse("key_arity", f"{len(old)} old values for {len(keys)} key columns", number)
    old_key = None if old is None else tuple(old)
    if op == "delete":
        key, columns = old_key or (), {}
    else:
        key = tuple([columns.get(name, _ABSENT) for name in keys])
        if _ABSENT in key and old_key is not None:
            key = tuple([before if now is _ABSENT else now for now, before in zip(key, old_key, strict=True)])
    if not key or not _KEY_TYPES.issuperset(map(type, key if old_key is None else key + old_key)):
        _refuse_key(key, old_key, number)
    return Change(op, key, None if op == "delete" or old_key == key else old_key, columns)


def _refuse_key(key: Key, old_key: Key | None, number: int) -> NoReturn:
    if None in key or None in (old_key or ()):
        _refuse("null_in_key", "a key column is NULL", number)
    _refuse("no_key", "the key of a row is not told, in numbers and texts", number)


def _read_entry(entry: Json, number: int) -> tuple[Json, dict[str, Json], list[Json] | None]:
    """Return the operation, columns and old key of the entry with the given number."""
    if type(entry) is not Members:
        _refuse("entry_not_an_object", "an entry is a JSON object", number)
    columns = dict(entry)
    if "sqlite_type" in columns and _names_two_operations(entry):
        _refuse("unknown_op", "type and sqlite_type are both operations, and the old key is called pv", number)
    if len(columns) < len(entry):
        return _read_repetitive_entry(entry, number)
    word = columns.pop("sqlite_type" if "sqlite_type" in columns else "type", _ABSENT)
    for name in ("sqlite_pk_value", "pv"):
        if type(columns.get(name)) is list:
            return word, columns, columns.pop(name)
    return word, columns, None


def _names_two_operations(entry: Members) -> bool:
    """Return whether an entry in the older words may have a column called ``sqlite_type`` that holds an operation."""
    lists = {name for name, value in entry if type(value) is list}
    is_old = "pv" in lists and "sqlite_pk_value" not in lists
    return is_old and any(name == "type" and type(value) is str and value in _OPS for name, value in entry)


def _read_repetitive_entry(entry: Members, number: int) -> tuple[Json, dict[str, Json], list[Json] | None]:
    """Return the same for an entry that repeats names: a column may be called like a reserved word."""
    named = "sqlite_type" if any(name == "sqlite_type" for name, _ in entry) else "type"
    lists = [name for name, value in entry if type(value) is list]
    old_key_name = "sqlite_pk_value" if "sqlite_pk_value" in lists else "pv"
    word, old_key, columns = _ABSENT, None, dict[str, Json]()
    for name, value in entry:
        if name == named and word is _ABSENT:
            word = value
        elif name == old_key_name and old_key is None and type(value) is list:
            old_key = value
        elif name in columns:
            _refuse("duplicate_column", f"column {name!r:.80} stands twice", number)
        else:
            columns[name] = value
    return word, columns, old_key


def json_text(value: Json, depth: int = 0) -> str:
    """Return a parsed value as compact JSON; only texts that UTF-8 cannot encode are escaped.

    Raises:
        InvalidValue: ``too_deep``: it is nested deeper than `MAX_NESTING`.
    """
    if depth >= MAX_NESTING and type(value) in (Members, dict, list):
        _refuse("too_deep", f"a value is nested deeper than {MAX_NESTING}")
    if type(value) is Members or type(value) is dict:
        members = value.items() if type(value) is dict else value
        return "{" + ",".join(f"{json_text(name)}:{json_text(member, depth + 1)}" for name, member in members) + "}"
    if type(value) is list:
        return "[" + ",".join(json_text(each, depth + 1) for each in value) + "]"
    literal = json.dumps(value, ensure_ascii=type(value) is str and not _is_text(value))
    return {"Infinity": "9.0e+999", "-Infinity": "-9.0e+999"}.get(literal, literal)


def _refuse(reason: str, detail: str, entry: int | None = None) -> NoReturn:
    raise InvalidValue(detail, reason=reason, element="" if entry is None else f"payload[{entry}]")
