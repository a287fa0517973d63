"""Layout of a message for the walk: where counts and lengths are, their limits, and the versions of parts."""

from __future__ import annotations

from silverfold.connectors.wire.sbe.codec.walk import DimensionsReader, LengthReader
from silverfold.connectors.wire.sbe.columnar.byte_arrays import CLAMP
from silverfold.connectors.wire.sbe.columnar.headers import RoleColumns
from silverfold.connectors.wire.sbe.schema.model import Body, ByteOrder, Data, Group


class DataPlan:
    """Layout of one data element: its length, then its bytes."""

    def __init__(self, data: Data, order: ByteOrder) -> None:
        self.since = data.since_version
        self.minimum, self.maximum = data.length.minimum, data.length.maximum
        self.offset = data.data_offset
        self.length = RoleColumns({"length": data.length}, data.length.offset + data.length.size, order)
        self.single = LengthReader(data, order)


class GroupPlan:
    """Layout of one group: its dimensions, and the body of its entries."""

    def __init__(self, group: Group, order: ByteOrder) -> None:
        self.since = group.since_version
        roles = group.dimensions.roles
        self.minimum, self.maximum = roles["numInGroup"].minimum, roles["numInGroup"].maximum
        self.counts_parts = bool({"numGroups", "numVarDataFields"}.intersection(roles))
        """The dimensions carry counts of nested parts."""
        self.dimensions = RoleColumns(roles, group.dimensions.size, order)
        self.single = DimensionsReader(group.dimensions, order)
        self.entry = BodyPlan(group, order)


class BodyPlan:
    """Layout of one body: its groups, then its data."""

    def __init__(self, body: Body, order: ByteOrder, *, root: bool = False) -> None:
        self.body = body
        self.root = root
        """It is the body of the message itself: nothing follows it."""
        self.groups = tuple(GroupPlan(group, order) for group in body.groups)
        self.data = tuple(DataPlan(data, order) for data in body.data)
        self.first_group = min((group.since for group in self.groups), default=CLAMP)
        """The first version with any groups."""
        self.first_data = min((data.since for data in self.data), default=CLAMP)
