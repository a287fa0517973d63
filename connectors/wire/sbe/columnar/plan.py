"""What the walk needs to know of a message: where counts and lengths lie, what they may be, since when parts exist."""

from __future__ import annotations

from connectors.wire.sbe.columnar.octets import CLAMP
from connectors.wire.sbe.columnar.roles import RoleColumns
from connectors.wire.sbe.model import Body, ByteOrder, Data, Group
from connectors.wire.sbe.walk import DimensionsReader, LengthReader


class DataPlan:
    """One data element: its length, then its bytes."""

    def __init__(self, data: Data, order: ByteOrder) -> None:
        self.since = data.since_version
        self.minimum, self.maximum = data.length.minimum, data.length.maximum
        self.offset = data.data_offset
        self.length = RoleColumns({"length": data.length}, data.length.offset + data.length.size, order)
        self.single = LengthReader(data, order)


class GroupPlan:
    """One group: its dimensions, and the body of its entries."""

    def __init__(self, group: Group, order: ByteOrder) -> None:
        self.since = group.since_version
        roles = group.dimensions.roles
        self.minimum, self.maximum = roles["numInGroup"].minimum, roles["numInGroup"].maximum
        self.counts_parts = bool({"numGroups", "numVarDataFields"}.intersection(roles))
        """Entries say how many parts they have."""
        self.dimensions = RoleColumns(roles, group.dimensions.size, order)
        self.single = DimensionsReader(group.dimensions, order)
        self.entry = BodyPlan(group, order)


class BodyPlan:
    """One body: its groups, then its data."""

    def __init__(self, body: Body, order: ByteOrder, *, root: bool = False) -> None:
        self.body = body
        self.root = root
        """It is the message itself: nothing follows it."""
        self.groups = tuple(GroupPlan(group, order) for group in body.groups)
        self.data = tuple(DataPlan(data, order) for data in body.data)
        self.first_group = min((group.since for group in self.groups), default=CLAMP)
        """The version since which there are groups at all."""
        self.first_data = min((data.since for data in self.data), default=CLAMP)
