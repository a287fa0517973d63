"""Column layout of a silver table: the columns of a message, or of a group's entries and their enclosing levels.

Columns of enclosing levels come first, from the message down. If several have the same name, ignoring case, all but one
are renamed to ``<level>_<name>``, where the level is their message or group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

import pyarrow as pa

from silverfold.conf.errors import SchemaError
from silverfold.conf.names import caseless
from silverfold.connectors.sbe.options import SENT, SbeTable
from silverfold.connectors.wire.sbe.codec.blocks import field_ends
from silverfold.connectors.wire.sbe.columnar.decode import arrow_schema
from silverfold.connectors.wire.sbe.columnar.options import ColumnOptions
from silverfold.connectors.wire.sbe.schema.model import Body, Encoding, Enum, Message, Schema


@dataclass(frozen=True)
class Source:
    """Source of a column's values.

    Args:
        name: Name of the column.
        level: 0 is the message; further levels are the groups of the table's path.
        element: Name of the field, group or data in its level.
        since: Version from which the level has the element.
        ends: For a field, the block length it needs, by version (`field_ends`); empty for groups and data, which are
            absent if NULL.
        type: Type of the column.
        values: For an enum field, the names of values by their encoded form; empty for others.
        comment: What the schema says of the element; empty for nothing.
    """

    name: str
    level: int
    element: str
    since: int
    ends: tuple[tuple[int, int], ...]
    type: pa.DataType
    values: Mapping[int, str] = field(default_factory=dict)
    comment: str = ""


@dataclass(frozen=True)
class Layout:
    """The columns of one silver table.

    Args:
        lists_sent: The column `SENT` follows the others.
    """

    message: Message
    columns: tuple[Source, ...]
    lists_sent: bool = False

    @property
    def row(self) -> pa.Schema:
        """The columns as Arrow fields."""
        sent = [(SENT, pa.list_(pa.string()))] if self.lists_sent else []
        return pa.schema([*((source.name, source.type) for source in self.columns), *sent])

    def column(self, name: str) -> Source | None:
        """Return the column with the given name, or None."""
        return next((source for source in self.columns if source.name == name), None)


def column_options(table: SbeTable, *, shapes: bool) -> ColumnOptions:
    """Return the options of the columnar decoder for a table."""
    return ColumnOptions(
        types="spark",
        text=table.text,
        sets=table.sets,
        decimals=table.decimals,
        timestamps=table.timestamps,
        time_unit=table.time_unit,
        shapes=shapes,
    )


def layout_of(schema: Schema, message: Message, table: SbeTable) -> Layout:
    """Return the columns of a table.

    Raises:
        SchemaError: The message has no such group, ``with`` names a column that does not enclose it, or a column of
            ``groups`` would hold a group without members.
    """
    bodies = _bodies(schema, message, table.path)
    kind: Any = pa.struct(list(arrow_schema(schema, message.name, column_options(table, shapes=False))))
    kinds = accumulate(table.path, lambda outer, name: outer.field(name).type.value_type, initial=kind)
    levels = [_sources(body, level, kind) for level, (body, kind) in enumerate(zip(bodies, kinds, strict=True))]
    levels[:-1] = [[each for each in level if not _is_list(each)] for level in levels[:-1]]
    levels[-1] = [each for each in levels[-1] if table.groups == "arrays" or not _is_group(bodies[-1], each)]
    empty = next((source.element for source in levels[-1] if _holds_empty_struct(source.type)), None)
    if empty is not None:
        where = ".".join((message.name, *table.path, empty))
        raise SchemaError(f"groups: {where} is or has a group without members, which no column holds", file=schema.file)
    since = max((group.since_version for group in bodies[1:]), default=0)
    *enclosing, inner = _named(levels, [message.name, *table.path], since)
    outer = [source for level in enclosing for source in level]
    return Layout(message, (*_chosen(outer, table, message, schema), *inner), lists_sent=table.absent == "listed")


def _bodies(schema: Schema, message: Message, path: Sequence[str]) -> list[Body]:
    """Return a message and the groups on a path in it. Raises SchemaError: one of them is no group."""
    bodies: list[Body] = [message]
    for depth, name in enumerate(path, start=1):
        groups = {group.name: group for group in bodies[-1].groups}
        if name not in groups:
            known = ", ".join(groups) or "there is none"
            detail = f"{'.'.join((message.name, *path[:depth]))} is no group; groups there: {known}"
            raise SchemaError(detail, file=schema.file)
        bodies.append(groups[name])
    return bodies


def _sources(body: Body, level: int, kind: Any) -> list[Source]:
    fields = [
        Source(
            name=f.name,
            level=level,
            element=f.name,
            since=f.since_version,
            ends=field_ends(f),
            type=kind.field(f.name).type,
            values=_values(f.encoding),
            comment=f.description or "",
        )
        for f in body.fields
    ]
    others = [(each.name, each.since_version, each.description) for each in body.groups]
    others += ((each.name, each.since_version, each.description) for each in body.data)
    return fields + [
        Source(name, level, name, since, (), kind.field(name).type, {}, comment or "")
        for name, since, comment in others
    ]


def _values(encoding: Encoding) -> Mapping[int, str]:
    return encoding.values if isinstance(encoding, Enum) else {}


def _is_group(body: Body, source: Source) -> bool:
    return any(group.name == source.element for group in body.groups)


def _is_list(source: Source) -> bool:
    return not source.ends and bool(pa.types.is_list(source.type))


def _holds_empty_struct(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind):
        return _holds_empty_struct(kind.value_type)
    if not pa.types.is_struct(kind):
        return False
    return not kind.num_fields or any(_holds_empty_struct(field.type) for field in kind)


def _named(levels: Sequence[Sequence[Source]], names: Sequence[str], since: int) -> list[list[Source]]:
    """Return the columns of the levels with their names in the table.

    If several levels have a name, the level that had it first in the schema retains it, so that no column changes its
    meaning as the schema grows; of several at once, the innermost. The others are prefixed with their level's name.

    Args:
        since: Version in which the entries were added: elements that are older count as added then.
    """
    every = [source for level in levels for source in level]
    taken: dict[str, int] = {}
    for source in sorted(every, key=lambda each: (max(each.since, since), -each.level)):
        taken.setdefault(caseless(source.name), source.level)
    return [
        [
            source if taken[caseless(source.name)] == source.level else replace(source, name=f"{name}_{source.name}")
            for source in level
        ]
        for name, level in zip(names, levels, strict=True)
    ]


def _chosen(outer: list[Source], table: SbeTable, message: Message, schema: Schema) -> list[Source]:
    if table.with_ is None:
        return [source for source in outer if source.ends]
    lacking = [name for name in table.with_ if all(source.name != name for source in outer)]
    if lacking:
        known = ", ".join(source.name for source in outer) or "none"
        where = ".".join((message.name, *table.path))
        raise SchemaError(f"with: {lacking[0]} does not enclose {where}; known are {known}", file=schema.file)
    return [source for source in outer if source.name in table.with_]
