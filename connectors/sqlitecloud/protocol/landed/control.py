"""The control frame of a snapshot: its table, the columns of its rows, and the key.

The receiver lands it before the first frame of each snapshot: rows after the first frame do not name their columns, and
notifications never include column types. As JSON::

    {"table": "foo",
     "columns": [{"name": "id", "type": "INTEGER", "not_null": true, "pk": 1, "hidden": 0}, ...],
     "keys": ["id"]}

``columns`` are those of the table, in order, as reported by ``pragma_table_xinfo``; ``type`` is the declared type,
empty for none. A column with a nonzero ``hidden`` is generated, or belongs to a virtual table: it is neither selected
nor notified. Snapshot rows have the other columns, in this order.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, NoReturn

from silverfold.conf.errors import InvalidValue

MAX_COLUMNS: Final = 32_767
"""The largest column count of an SQLite table, however SQLite is compiled."""

MAX_BYTES: Final = 1 << 23
"""The longest accepted control frame."""


class TableColumn(NamedTuple):
    """A column of a source table."""

    name: str
    type: str = ""
    """The declared type, verbatim; empty for none."""
    not_null: bool = False
    pk: int = 0
    """Position in the primary key, from 1; 0 for a column outside it."""
    hidden: int = 0


@dataclass(frozen=True)
class Description:
    """A source table, as it was when a snapshot of it began.

    Args:
        keys: The columns that identify a row, in the order in which old key values are sent, if the source knows them.
    """

    table: str
    columns: tuple[TableColumn, ...]
    keys: tuple[str, ...]

    @property
    def selected(self) -> tuple[TableColumn, ...]:
        """The columns of snapshot rows, in order."""
        return tuple(column for column in self.columns if not column.hidden)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the selected columns."""
        return tuple(column.name for column in self.selected)

    @property
    def has_primary_key(self) -> bool:
        """Whether the key is the table's primary key."""
        return {column.name for column in self.columns if column.pk} == set(self.keys)

    @property
    def nullable_keys(self) -> list[str]:
        """The key columns in which SQLite allows NULL: any not declared NOT NULL, except a rowid alias.

        Tables WITHOUT ROWID and STRICT tables report their key columns as NOT NULL.
        """
        primary = [column for column in self.columns if column.pk]
        rowid = [column.name for column in primary if len(primary) == 1 and column.type.upper() == "INTEGER"]
        columns = {column.name: column for column in self.columns}
        return [name for name in self.keys if not columns[name].not_null and name not in rowid]

    def to_json(self) -> bytes:
        """Return the body of the control frame."""
        content = {
            "table": self.table,
            "columns": [column._asdict() for column in self.columns],
            "keys": list(self.keys),
        }
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def read_description(body: bytes) -> Description:
    """Parse a control frame.

    Raises:
        InvalidValue: ``bad_control``: it is malformed or inconsistent.
    """
    if len(body) > MAX_BYTES:
        _refuse(f"{len(body)} bytes, {MAX_BYTES} are allowed")
    try:
        parsed = json.loads(body.decode())
    except (ValueError, RecursionError) as error:
        _refuse(f"no JSON: {error}")
    if not isinstance(parsed, dict) or set(parsed) != {"table", "columns", "keys"}:
        _refuse("an object of table, columns and keys is expected")
    described = Description(_text(parsed["table"]), _columns(parsed["columns"]), _names(parsed["keys"]))
    _check(described)
    return described


def _columns(parsed: Any) -> tuple[TableColumn, ...]:
    if not isinstance(parsed, list) or not 0 < len(parsed) <= MAX_COLUMNS:
        _refuse(f"a list of 1 to {MAX_COLUMNS} columns is expected")
    return tuple(map(_column, parsed))


def _column(parsed: Any) -> TableColumn:
    if not isinstance(parsed, dict) or set(parsed) != set(TableColumn._fields):
        _refuse(f"a column has {', '.join(TableColumn._fields)}")
    column = TableColumn(**parsed)
    kinds = (str, str, bool, int, int)
    if any(type(value) is not kind for value, kind in zip(column, kinds, strict=True)):
        _refuse("a column's name and type are texts, not_null is a boolean, pk and hidden are integers")
    return column


def _names(parsed: Any) -> tuple[str, ...]:
    if not isinstance(parsed, list):
        _refuse("keys are a list of names")
    return tuple(map(_text, parsed))


def _text(parsed: Any) -> str:
    if type(parsed) is not str:
        _refuse("a name is a text")
    return parsed


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
