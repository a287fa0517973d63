"""The control frame of a snapshot: which table it is of, what columns its rows have, and what names a row.

A receiver lands it before the first frame of each snapshot; rows after the first frame do not name their columns, and
notifications never tell their types. As JSON::

    {"table": "foo",
     "columns": [{"name": "id", "type": "INTEGER", "not_null": true, "pk": 1, "hidden": 0}, ...],
     "keys": ["id"]}

``columns`` are those of the table, in its order, as ``pragma_table_xinfo`` tells them; ``type`` is the declared one,
empty for none. A column whose ``hidden`` is not 0 is generated, or of a virtual table: it is not selected, and no
notification has it. The rows of the snapshot have the others, in this order.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, NoReturn

from conf.errors import InvalidValue

MAX_COLUMNS: Final = 32_767
"""Most columns of an SQLite table, however it is compiled."""

MAX_BYTES: Final = 1 << 23
"""Longest control frame that is read."""


class TableColumn(NamedTuple):
    """A column of a table at the source."""

    name: str
    type: str = ""
    """The declared type, as it was written; empty for none."""
    not_null: bool = False
    pk: int = 0
    """Place in the primary key, from 1; 0 for a column that is not part of it."""
    hidden: int = 0


@dataclass(frozen=True)
class Description:
    """A table at the source, as it was when a snapshot of it was begun.

    Args:
        keys: Columns that name a row, in the order in which old key values are sent, if the source knows them.
    """

    table: str
    columns: tuple[TableColumn, ...]
    keys: tuple[str, ...]

    @property
    def selected(self) -> tuple[TableColumn, ...]:
        """The columns that rows of the snapshot have, in their order."""
        return tuple(column for column in self.columns if not column.hidden)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the selected columns."""
        return tuple(column.name for column in self.selected)

    @property
    def has_primary_key(self) -> bool:
        """Rows are named by the table's primary key."""
        return {column.name for column in self.columns if column.pk} == set(self.keys)

    @property
    def nullable_keys(self) -> list[str]:
        """The columns of the key in which SQLite allows NULL: in any that is not declared otherwise, but for a rowid's.

        Tables WITHOUT ROWID and STRICT ones tell theirs as NOT NULL.
        """
        primary = [column for column in self.columns if column.pk]
        rowid = [column.name for column in primary if len(primary) == 1 and column.type.upper() == "INTEGER"]
        columns = {column.name: column for column in self.columns}
        return [name for name in self.keys if not columns[name].not_null and name not in rowid]

    def to_json(self) -> bytes:
        """Return the body of the control frame."""
        told = {
            "table": self.table,
            "columns": [column._asdict() for column in self.columns],
            "keys": list(self.keys),
        }
        return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()


def read_description(body: bytes) -> Description:
    """Return what a control frame says.

    Raises:
        InvalidValue: ``bad_control``: it is not one, or contradicts itself.
    """
    if len(body) > MAX_BYTES:
        _refuse(f"{len(body)} bytes, {MAX_BYTES} are allowed")
    try:
        told = json.loads(body.decode())
    except (ValueError, RecursionError) as error:
        _refuse(f"no JSON: {error}")
    if not isinstance(told, dict) or set(told) != {"table", "columns", "keys"}:
        _refuse("an object of table, columns and keys is expected")
    described = Description(_text(told["table"]), _columns(told["columns"]), _names(told["keys"]))
    _check(described)
    return described


def _columns(told: Any) -> tuple[TableColumn, ...]:
    if not isinstance(told, list) or not 0 < len(told) <= MAX_COLUMNS:
        _refuse(f"a list of 1 to {MAX_COLUMNS} columns is expected")
    return tuple(map(_column, told))


def _column(told: Any) -> TableColumn:
    if not isinstance(told, dict) or set(told) != set(TableColumn._fields):
        _refuse(f"a column has {', '.join(TableColumn._fields)}")
    column = TableColumn(**told)
    kinds = (str, str, bool, int, int)
    if any(type(value) is not kind for value, kind in zip(column, kinds, strict=True)):
        _refuse("a column's name and type are texts, not_null is a boolean, pk and hidden are integers")
    return column


def _names(told: Any) -> tuple[str, ...]:
    if not isinstance(told, list):
        _refuse("keys are a list of names")
    return tuple(map(_text, told))


def _text(told: Any) -> str:
    if type(told) is not str:
        _refuse("a name is a text")
    return told


def _check(described: Description) -> None:
    names = described.names
    if len(set(names)) < len(names):
        _refuse("two columns have one name")
    if not described.keys or len(set(described.keys)) < len(described.keys):
        _refuse("keys name at least one column, none twice")
    if not set(described.keys) <= set(names):
        _refuse("keys name a column that rows do not have")


def _refuse(detail: str) -> NoReturn:
    raise InvalidValue(detail, reason="bad_control")
