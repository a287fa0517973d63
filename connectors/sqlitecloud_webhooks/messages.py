"""Reads the JSON text of a webhook: what was done to rows of one table.

::

    {"type": "update", "database": "chinook.sqlite", "table": "albums",
     "column": ["AlbumId", "Title"], "data": [349, "Restless"],
     "webhook": {"id": 1, "action": "https://…", "options": {"type": "url"}}}

``type`` is insert, update or delete; ``column`` names what was sent, ``data`` has its values. A list of rows in it is
read too, since no value is a list; and members not shown here are let pass. A column that is absent is not NULL.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple, NoReturn, TypeAlias

from conf.errors import InvalidValue
from conf.names import folded
from connectors.sqlitecloud.payload import Members

Op: TypeAlias = Literal["insert", "update", "delete"]
Json: TypeAlias = Any
"""A value as parsed: int, float, str, bool, None, a list, or `connectors.sqlitecloud.payload.Members`."""

_OPS: Final[dict[str, Op]] = {"insert": "insert", "update": "update", "delete": "delete"}


class Webhook(NamedTuple):
    """What was done to rows of a table."""

    op: Op
    columns: tuple[str, ...]
    """Names of what was sent; none twice, whatever the case."""
    rows: Sequence[Sequence[Json]]
    """Values in the order of ``columns``."""


class Addressed(NamedTuple):
    """Where a webhook says that it belongs."""

    database: str
    table: str

    @property
    def stream(self) -> str:
        """The stream of its frames. It names the database too: two may have tables of one name."""
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
        _refuse("invalid_json", str(error).partition(";")[0][:200])  # behind it Python's advice to whoever programs
    if type(found) is not Members:
        _refuse("not_an_object", "the body is a JSON object")
    members = dict(found)
    if len(members) < len(found):
        _refuse("duplicate_member", "a member of the body stands twice")
    return members


def addressed(members: dict[str, Json]) -> Addressed:
    """Return the database and the table of a webhook. Raises InvalidValue: ``no_database`` or ``no_table``."""
    database, table = members.get("database"), members.get("table")
    if not _is_name(database):
        _refuse("no_database", "database is a text")
    if not _is_name(table):
        _refuse("no_table", "table is a text")
    return Addressed(str(database), str(table))


def column_names(members: dict[str, Json]) -> tuple[str, ...]:
    """Return the names of the columns that were sent.

    Raises:
        InvalidValue: ``bad_columns`` or ``duplicate_column``.
    """
    names = members.get("column")
    if type(names) is not list or not names or not all(map(_is_name, names)):
        _refuse("bad_columns", "column is a list of names")
    if len({folded(name) for name in names}) < len(names):
        _refuse("duplicate_column", "column names one twice, which silver could not tell apart")
    return tuple(names)


def read_webhook(body: bytes) -> tuple[Addressed, Webhook]:
    """Return what a webhook says; all of it, or nothing.

    Raises:
        InvalidValue: A reason of `parse_body`, `addressed` or `column_names`, or ``no_op``, ``unknown_op``,
            ``data_not_a_list`` or ``data_arity``.
    """
    members = parse_body(body)
    where = addressed(members)
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
    """Tell whether it is a text that UTF-8 can spell and that says something."""
    return type(found) is str and found != "" and not any("\ud800" <= letter <= "\udfff" for letter in found)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_PARSER: Final = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=Members)


def _refuse(reason: str, detail: str, element: str = "") -> NoReturn:
    raise InvalidValue(detail, reason=reason, element=element)
