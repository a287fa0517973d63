"""Checks the names in a table's settings against the schema, before anything runs with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa

from silverfold.conf.errors import SchemaError
from silverfold.conf.names import caseless
from silverfold.connectors.base import Problem
from silverfold.connectors.sbe.decoder.layout import Layout, layout_of
from silverfold.connectors.sbe.options import SbeTable
from silverfold.connectors.sbe.protocol.operations import operations
from silverfold.connectors.sbe.protocol.schemas import template_of
from silverfold.connectors.wire.sbe.schema.model import Schema


def problems_of(schema: Schema, name: str, table: SbeTable) -> Iterator[Problem]:
    """Yield a problem for each name in a table's settings that does not fit the schema."""
    key = f"tables.{name}"
    try:
        message = template_of(schema, name, table.source)
    except SchemaError:
        yield Problem(f"{key}.template", table.source or name, f"one of {', '.join(schema.messages)}")
        return
    try:
        layout = layout_of(schema, message, table)
    except SchemaError as error:
        found = {"with": list(table.with_ or ()), "groups": table.groups, "group": table.group}
        setting = next((name for name in found if error.detail.startswith(f"{name}: ")), "group")
        allowed = f"omit: {error.detail.removeprefix('groups: ')}" if setting == "groups" else error.detail
        yield Problem(f"{key}.{setting}", found[setting], allowed)
        return
    yield from _column_problems(layout, key, table)


def _column_problems(layout: Layout, key: str, table: SbeTable) -> Iterator[Problem]:
    names = layout.row.names
    known = f"one of {', '.join(names)}"
    if not names:
        yield Problem(f"{key}.template", table.source or None, "a message, or a group, that has at least one element")
    twice = [each for each, count in Counter(caseless(name) for name in names).items() if count > 1]
    if twice:
        yield Problem(f"{key}.group", table.group or None, f"columns that differ in more than case, unlike {twice[0]}")
    for column in table.keys:
        if column not in names:
            yield Problem(f"{key}.keys", column, known)
        elif _cannot_be_key(layout.row.field(column).type):
            yield Problem(f"{key}.keys", column, "a column of one value each, and no float: rows are told apart by it")
    if not table.operation:
        return
    source = layout.column(table.operation)
    if source is None or not source.values:
        enums = [each.name for each in layout.columns if each.values]
        yield Problem(f"{key}.operation", table.operation, f"a field of an enum: {', '.join(enums) or 'there is none'}")
        return
    for setting in ("inserts", "updates", "deletes"):
        for value in getattr(table, setting):
            if value not in source.values.values():
                yield Problem(f"{key}.{setting}", value, f"one of {', '.join(source.values.values())}")
    if not operations(table, source.values.values()):
        what = "a field with values such as New, Change and Delete, or inserts, updates and deletes"
        yield Problem(f"{key}.operation", table.operation, what)


def _cannot_be_key(kind: pa.DataType) -> bool:
    return bool(pa.types.is_nested(kind) or pa.types.is_floating(kind))
