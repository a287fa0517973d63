"""Layout of a message for the walk: where counts and lengths are, their limits, and the versions of parts."""

from __future__ import annotations

from bisect import bisect_right

from silverfold.connectors.wire.sbe.codec.blocks import BlockOptions
from silverfold.connectors.wire.sbe.codec.compiled_decoder import EntryFinder, compile_entry_finder
from silverfold.connectors.wire.sbe.codec.decode import element_versions
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


class GroupPlan:
    """Layout of one group: its dimensions, and the body of its entries."""

    def __init__(self, group: Group, order: ByteOrder) -> None:
        self.since = group.since_version
        roles = group.dimensions.roles
        self.minimum, self.maximum = roles["numInGroup"].minimum, roles["numInGroup"].maximum
        self.dimensions = RoleColumns(roles, group.dimensions.size, order)
        self.entry = BodyPlan(group, order)


class BodyPlan:
    """Layout of one body: its groups, then its data."""

    def __init__(self, body: Body, order: ByteOrder, *, root: bool = False) -> None:
        self.body = body
        self._order = order
        self.root = root
        """It is the body of the message itself: nothing follows it."""
        self.groups = tuple(GroupPlan(group, order) for group in body.groups)
        self.data = tuple(DataPlan(data, order) for data in body.data)
        self.first_group = min((group.since for group in self.groups), default=CLAMP)
        """The first version with any groups."""
        self.first_data = min((data.since for data in self.data), default=CLAMP)
        self._versions = sorted(set(element_versions(body)))
        self._finders: dict[int, EntryFinder | None] = {}

    def entry_finder(self, version: int) -> EntryFinder | None:
        """Return the function that finds entries with this body, in messages of a version; None if there is none."""
        newest = bisect_right(self._versions, version)
        if newest not in self._finders:
            options = BlockOptions(self._order, self._versions[newest - 1] if newest else 0)
            self._finders[newest] = compile_entry_finder(self.body, options)
        return self._finders[newest]
