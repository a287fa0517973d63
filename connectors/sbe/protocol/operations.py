"""Semantics of enum values in a row: the operation each one stands for, and errors for values without a meaning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.sbe.options import DELETES, INSERTS, UPDATES, SbeTable

Op: TypeAlias = Literal["insert", "update", "delete"]

INSERT: Final = "insert"
UPDATE: Final = "update"
DELETE: Final = "delete"


_Meanings: TypeAlias = tuple[tuple[tuple[str, ...], Op], ...]


def operations(table: SbeTable, values: Iterable[str]) -> Mapping[str, Op]:
    """Return the operation of each value; a value that is missing here has no known operation.

    Args:
        values: Names of the enum's values, used if the settings list none.
    """
    given: _Meanings = ((table.inserts, INSERT), (table.updates, UPDATE), (table.deletes, DELETE))
    if any(names for names, _ in given):
        return {name: op for names, op in given for name in names}
    usual: _Meanings = ((INSERTS, INSERT), (UPDATES, UPDATE), (DELETES, DELETE))
    known = {name.lower(): op for names, op in usual for name in names}
    return {value: known[value.lower()] for value in values if value.lower() in known}


def unnamed(message: str, key: str, value: Any) -> InvalidValue:
    """Return the error for a key value without a name in the schema.

    Once a newer schema names it, later rows would have another key than earlier ones.
    """
    detail = f"{value!r} is no value of the key's enum: a schema that names it is needed"
    return InvalidValue(detail, reason="key", element=f"{message}.{key}")


def unknown(message: str, column: str, value: Any) -> InvalidValue:
    """Return the error for a value without a name in the schema, if ``unknown_values`` is ``error``."""
    detail = f"{value!r} is no value of the enum: a schema that names it is needed"
    return InvalidValue(detail, reason="unknown-value", element=f"{message}.{column}")


def unlisted(message: str, operation: str, value: Any) -> InvalidValue:
    """Return the error for an operation value that the settings do not list."""
    shown = "NULL" if value is None else repr(value)
    detail = f"{shown} is not among inserts, updates and deletes"
    return InvalidValue(detail, reason="operation", element=f"{message}.{operation}")
