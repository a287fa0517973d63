"""Which columns a silver table has: those of a message, or of a group's entries with what encloses them.

Columns of enclosing levels come first, from the message down. Where a name is taken by a column further in, whatever
its case, that of the outer level is called ``<level>_<name>``, the level being the message or the group it is of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from conf.errors import SchemaError
from conf.names import folded
from connectors.sbe.options import SENT, SbeTable
from connectors.wire.sbe.blocks import ends_of
from connectors.wire.sbe.columnar.decode import arrow_schema
from connectors.wire.sbe.columnar.options import ColumnOptions
from connectors.wire.sbe.model import Body, Encoding, Enum, Message, Schema


@dataclass(frozen=True)
class Source:
    """Where a column's values come from.

    Args:
        name: Of the column.
        level: 0 is the message; further ones are the groups of the table's path.
        element: Name of the field, group or data in its level.
        since: Version from which blocks have it, if it is a field.
        ends: Bytes of the block it needs, by version (`ends_of`), if it is a field; none of groups and data, which are
            absent where NULL.
        type: Of the column.
        values: Names of the values by what is sent for them, if it is an enum field; none of others.
    """

    name: str
    level: int
    element: str
    since: int
    ends: tuple[tuple[int, int], ...]
    type: pa.DataType
    values: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Layout:
    """The columns of one silver table.

    Args:
        lists_sent: There is the column `SENT` behind them.
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
        """Return the column of a name; None when there is none."""
        return next((source for source in self.columns if source.name == name), None)


def column_options(table: SbeTable, *, shapes: bool) -> ColumnOptions:
    """Return how the columnar decoder is to make a table's columns."""
    return ColumnOptions(
        types="spark",
        text=table.text,
        sets=table.sets,
        decimals=table.decimals,
        timestamps=table.timestamps,
        shapes=shapes,
    )


def layout_of(schema: Schema, message: Message, table: SbeTable) -> Layout:
    """Return the columns of a table.

    Raises:
        SchemaError: The message has no such group, or ``with`` names what does not enclose it.
    """
    kind: Any = pa.struct(list(arrow_schema(schema, message.name, column_options(table, shapes=False))))
    levels = [_sources(message, 0, kind)]
    body: Body = message
    for depth, name in enumerate(table.path, start=1):
        group = next((group for group in body.groups if group.name == name), None)
        if group is None:
            known = ", ".join(group.name for group in body.groups) or "there is none"
            told = f"{'.'.join((message.name, *table.path[:depth]))} is no group; groups there: {known}"
            raise SchemaError(told, file=schema.file)
        body, kind = group, kind.field(name).type.value_type
        levels.append(_sources(group, depth, kind))
    names = [message.name, *table.path]
    inner = [source for source in levels[-1] if table.groups == "arrays" or not _is_group(body, source)]
    outer = list(_enclosing(levels[:-1], inner, names))
    return Layout(message, (*_chosen(outer, table, message, schema), *inner), lists_sent=table.absent == "listed")


def _sources(body: Body, level: int, kind: Any) -> list[Source]:
    fields = [
        Source(f.name, level, f.name, f.since_version, ends_of(f), kind.field(f.name).type, _values(f.encoding))
        for f in body.fields
    ]
    others = [*(group.name for group in body.groups), *(data.name for data in body.data)]
    return fields + [Source(name, level, name, 0, (), kind.field(name).type) for name in others]


def _values(encoding: Encoding) -> Mapping[int, str]:
    return encoding.values if isinstance(encoding, Enum) else {}


def _is_group(body: Body, source: Source) -> bool:
    return any(group.name == source.element for group in body.groups)


def _enclosing(levels: list[list[Source]], inner: list[Source], names: list[str]) -> Iterator[Source]:
    """Yield the columns of the outer levels, by the names they have in the table; groups are none."""
    taken = {folded(source.name) for source in inner}
    renamed: list[list[Source]] = []
    for level, sources in reversed(list(enumerate(levels))):
        mine = [
            replace(source, name=_free(source.name, names[level], taken))
            for source in sources
            if source.ends or not pa.types.is_list(source.type)
        ]
        taken |= {folded(source.name) for source in mine}
        renamed.append(mine)
    for mine in reversed(renamed):
        yield from mine


def _free(name: str, level: str, taken: set[str]) -> str:
    return f"{level}_{name}" if folded(name) in taken else name


def _chosen(outer: list[Source], table: SbeTable, message: Message, schema: Schema) -> list[Source]:
    if table.with_ is None:
        return [source for source in outer if source.ends]
    lacking = [name for name in table.with_ if all(source.name != name for source in outer)]
    if lacking:
        known = ", ".join(source.name for source in outer) or "none"
        where = ".".join((message.name, *table.path))
        raise SchemaError(f"with: {lacking[0]} does not enclose {where}; known are {known}", file=schema.file)
    return [source for source in outer if source.name in table.with_]
