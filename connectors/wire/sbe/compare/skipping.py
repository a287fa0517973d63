"""Determines whether a reader of counted messages can skip a part that its schema lacks.

It knows the number of parts, not their layout: it assumes the schema's default dimensions for groups, and the only
length layout of the data in its messages. (`connectors.wire.sbe.codec.skip` also falls back to the schema's data types.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from connectors.wire.sbe.compare.findings import Profile
from connectors.wire.sbe.compare.layouts import data_layout, structure_layout
from connectors.wire.sbe.schema.model import Body, Data, Group, Schema, Structure

_COUNTS = frozenset({"numGroups", "numVarDataFields"})


def profile_of(*schemas: Schema) -> Profile:
    """Return counted if the header and all dimensions in use count groups and data, else classic."""
    in_use = (structure for schema in schemas for structure in _structures(schema))
    return "counted" if all(structure.roles.keys() >= _COUNTS for structure in in_use) else "classic"


def _structures(schema: Schema) -> Iterator[Structure]:
    yield schema.header
    for message in schema.messages.values():
        for group in _groups(message):
            yield group.dimensions


def _groups(body: Body) -> Iterator[Group]:
    for group in body.groups:
        yield group
        yield from _groups(group)


def can_skip_group(group: Group, reader: Schema) -> bool:
    """Return whether readers of a schema find the end of a group that it lacks, given counted messages."""
    default = reader.default_dimensions
    if default is None or structure_layout(default, named=False) != structure_layout(group.dimensions, named=False):
        return False
    nested = all(can_skip_group(each, reader) for each in group.groups)
    return nested and all(can_skip_data(each, reader) for each in group.data)


def can_skip_data(data: Data, reader: Schema) -> bool:
    """Return whether readers of a schema find the end of data that it lacks."""
    return {data_layout(each) for each in _all_data(reader.messages.values())} == {data_layout(data)}


def _all_data(bodies: Iterable[Body]) -> Iterator[Data]:
    for body in bodies:
        yield from body.data
        yield from _all_data(body.groups)
