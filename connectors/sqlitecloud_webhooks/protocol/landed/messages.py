"""Parsing of a webhook's JSON text: the changes to rows of one table.

::

    {"type": "update", "database": "chinook.sqlite", "table": "albums",
     "column": ["AlbumId", "Title"], "data": [349, "Restless"],
     "webhook": {"id": 1, "action": "https://…", "options": {"type": "url"}}}

``type`` is insert, update or delete; ``column`` names the columns sent, and ``data`` has their values. A list of rows
in ``data`` is accepted too, since no value is a list. Other members are ignored. An absent column is not NULL.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple, NoReturn, TypeAlias

from silverfold.conf.errors import InvalidValue
from silverfold.conf.names import caseless
from silverfold.connectors.sqlitecloud.protocol.landed.payload import Members

Op: TypeAlias = Literal["insert", "update", "delete"]
Json: TypeAlias = Any
"""A parsed value: int, float, str, bool, None, a list, or `connectors.sqlitecloud.protocol.landed.payload.Members`."""

_OPS: Final[dict[str, Op]] = {"insert": "insert", "update": "update", "delete": "delete"}


class Webhook(NamedTuple):
    """The changes to rows of a table."""

    op: Op
    columns: tuple[str, ...]
    """Names of the columns sent; unique, ignoring case."""
    rows: Sequence[Sequence[Json]]
    """Values in the order of ``columns``."""


class SourceTable(NamedTuple):
    """The database and table that a webhook names."""

    database: str
    table: str

    @property
    def stream(self) -> str:
        """The stream of its frames. It includes the database, since two may have tables of the same name."""
        return f"{self.database}/{self.table}"


def parse_body(body: bytes) -> dict[str, Json]:
    """Return the members of a webhook's JSON object.

    Raises:
        InvalidValue: ``invalid_utf8``, ``invalid_json``, ``too_deep``, ``not_an_object`` or ``duplicate_member``.
    """
    try:
        found = _PARSER.decode(body.decode())
    except UnicodeDecodeError as error:
        _refuse("invalid_utf8", f"byte {error.start} of the body is not UTF-8")
    except RecursionError:
        _refuse("too_deep", "the body is nested deeper than it can be read")
    except ValueError as error:
        _refuse("invalid_json", str(error).partition(";")[0][:200])  # the rest is Python's advice to programmers
    if type(found) is not Members:
        _refuse("not_an_object", "the body is a JSON object")
    members = dict(found)
    if len(members) < len(found):
        _refuse("duplicate_member", "a member of the body stands twice")
    return members


def source_table(members: dict[str, Json]) -> SourceTable:
    """Return the database and the table of a webhook. Raise InvalidValue: ``no_database`` or ``no_table``."""
    database, table = members.get("database"), members.get("table")
    if not _is_name(database):
        _refuse("no_database", "database is a text")
    if not _is_name(table):
        _refuse("no_table", "table is a text")
    return SourceTable(str(database), str(table))


def column_names(members: dict[str, Json]) -> tuple[str, ...]:
    """Return the names of the columns sent.

    Raises:
        InvalidValue: ``bad_columns`` or ``duplicate_column``.
    """
    names = members.get("column")
    if type(names) is not list or not names or not all(map(_is_name, names)):
        _refuse("bad_columns", "column is a list of names")
    if len({caseless(name) for name in names}) < len(names):
        _refuse("duplicate_column", "column names one twice, which silver could not tell apart")
    return tuple(names)


def read_webhook(body: bytes) -> tuple[SourceTable, Webhook]:
    """Parse a webhook completely, or raise.

    Raises:
        InvalidValue: A reason of `parse_body`, `source_table` or `column_names`, or ``no_op``, ``unknown_op``,
            ``data_not_a_list`` or ``data_arity``.
    """
    members = parse_body(body)
    where = source_table(members)
    if "type" not in members:
        _refuse("no_op", "type is absent")
    word = members["type"]
    op = _OPS.get(word) if type(word) is str else None
    if op is None:
        _refuse("unknown_op", f"type is insert, update or delete, not {word!r:.40}")
    columns = column_names(members)
    return where, Webhook(op, columns, _rows(members.get("data"), len(columns)))


def _rows(found: Json, width: int) -> Sequence[Sequence[Json]]:
    if type(found) is not list:
        _refuse("data_not_a_list", "data is a list of values")
    rows = found if found and all(type(each) is list for each in found) else [found]
    for number, row in enumerate(rows):
        if len(row) != width:
            _refuse("data_arity", f"{len(row)} values for {width} columns", f"data[{number}]")
    return rows


def _is_name(found: Json) -> bool:
    """Return whether it is a non-empty text that can be encoded as UTF-8."""
    return type(found) is str and found != "" and not any("\ud800" <= letter <= "\udfff" for letter in found)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_PARSER: Final = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=Members)


def _refuse(reason: str, detail: str, element: str = "") -> NoReturn:
    raise InvalidValue(detail, reason=reason, element=element)
