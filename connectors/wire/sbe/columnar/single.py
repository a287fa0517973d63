"""Walks one message at a time: for the few that still have entries when all others are done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from silverfold.conf.errors import InvalidValue, TruncatedMessage
from silverfold.connectors.wire.sbe.codec.skip import Skipper, Unskippable
from silverfold.connectors.wire.sbe.codec.values import Fault
from silverfold.connectors.wire.sbe.columnar.headers import NOT_COUNTED
from silverfold.connectors.wire.sbe.columnar.levels import FIRST_GROUP, BlockTable
from silverfold.connectors.wire.sbe.columnar.plan import BodyPlan, DataPlan, GroupPlan
from silverfold.connectors.wire.sbe.columnar.state import WalkState

FEW = 48
"""Below this number of messages, walking them one at a time is faster than together."""
_AT_ONCE = 256
"""Entries whose memory is counted before they are read."""


class Shape(NamedTuple):
    """Block length and counts of a body, or of each entry of a group, according to the message."""

    block_length: int
    groups: int
    data: int


class _Parts(NamedTuple):
    """Parts of a body that a message of one version has, and the numbers of unknown ones."""

    groups: tuple[tuple[int, GroupPlan, BlockTable], ...]
    """Column in the lines of the body, layout, and table for the entries of each group."""
    data: tuple[tuple[int, DataPlan], ...]
    unknown_groups: int
    unknown_data: int

    @property
    def flat(self) -> bool:
        """Whether nothing follows the block."""
        return not (self.groups or self.data or self.unknown_groups > 0 or self.unknown_data > 0)


class Single:
    """Walks one message. Offsets are from its first byte; raises `Fault` if something does not fit."""

    def __init__(self, state: WalkState, skipper: Skipper, message: int) -> None:
        self._state, self._skipper, self._message = state, skipper, message
        self._body = state.message(message)
        self._size = len(self._body)
        self._base = int(state.begin[message])
        self._version = int(state.version[message])
        self._parts: dict[tuple[BodyPlan, int, int], _Parts] = {}

    def read(self, plan: BodyPlan, level: BlockTable, start: int, shape: Shape) -> int:
        """Record the body whose block is at ``start``; return the offset of its end."""
        self._state.count_memory(1, plan.body.content_length)
        return self._read(plan, level, start, shape, self._parts_of(plan, level, shape))

    def entries(self, entry: BodyPlan, level: BlockTable, start: int, count: int, shape: Shape) -> int:
        """Record ``count`` consecutive entries; return the offset of their end."""
        parts = self._parts_of(entry, level, shape)
        offset = start
        for first in range(0, count, _AT_ONCE):
            some = min(count - first, _AT_ONCE)
            self._state.count_memory(some, entry.body.content_length)
            for _ in range(some):
                begin = offset
                offset = self._read(entry, level, begin, shape, parts)
                if offset == begin:
                    self._count_empty(1)
        return offset

    def _read(self, plan: BodyPlan, level: BlockTable, start: int, shape: Shape, parts: _Parts) -> int:
        offset = start + shape.block_length
        if offset > self._size:
            raise Fault(TruncatedMessage, "truncated", f"{self._size - start} bytes are left", start)
        at, lines = level.line(self._message, self._base + start, shape.block_length), level.lines
        for column, group, entries in parts.groups:
            lines[at + column], offset = self._group(group, entries, offset)
        if parts.unknown_groups > 0:
            offset = self._skip(offset, groups=parts.unknown_groups, may_fail=plan.root and not parts.data)
        for column, datum in parts.data:
            begin, end = datum.single.read(self._body, offset)
            lines[at + column], lines[at + column + 1], offset = self._base + begin, end - begin, end
        return self._skip(offset, data=parts.unknown_data, may_fail=plan.root) if parts.unknown_data > 0 else offset

    def skip_groups(self, plan: BodyPlan, shape: Shape, offset: int) -> int:
        """Skip the groups unknown to the schema; return the offset of their end."""
        unknown = shape.groups - len(self._present(plan.groups, shape.groups))
        return self._skip(offset, groups=unknown, may_fail=plan.root and not self._present(plan.data, shape.data))

    def skip_data(self, plan: BodyPlan, shape: Shape, offset: int) -> int:
        """Skip the data unknown to the schema; return the offset of their end."""
        return self._skip(offset, data=shape.data - len(self._present(plan.data, shape.data)), may_fail=plan.root)

    def _skip(self, offset: int, *, groups: int = 0, data: int = 0, may_fail: bool) -> int:
        """Skip unknown parts; if ``may_fail``, nothing known follows and failing to skip them is no error."""
        if self._state.stopped[self._message]:
            return offset
        try:
            return self._skipper.skip(self._body, offset, groups=groups, data=data)
        except Unskippable:
            if not may_fail:
                raise Fault(InvalidValue, "unskippable", "unknown parts", offset) from None
            self._state.stopped[self._message] = True
            return offset

    def _group(self, group: GroupPlan, level: BlockTable, offset: int) -> tuple[int, int]:
        block_length, count, start, groups, data = group.single.read(self._body, offset)
        if not count:
            return 0, start
        shape = Shape(block_length, NOT_COUNTED if groups is None else groups, NOT_COUNTED if data is None else data)
        if not self._parts_of(group.entry, level, shape).flat:
            return count, self.entries(group.entry, level, start, count, shape)
        if not block_length:
            self._count_empty(count)
        self._state.count_memory(count, group.entry.body.content_length)
        level.run(self._message, self._base + start, block_length, count)
        return count, start + block_length * count

    def _parts_of(self, plan: BodyPlan, level: BlockTable, shape: Shape) -> _Parts:
        key = (plan, shape.groups, shape.data)
        parts = self._parts.get(key)
        if parts is None:
            groups, data = self._present(plan.groups, shape.groups), self._present(plan.data, shape.data)
            parts = _Parts(
                tuple((FIRST_GROUP + number, plan.groups[number], level.groups[number]) for number in groups),
                tuple((level.data_column(number), plan.data[number]) for number in data),
                shape.groups - len(groups),
                shape.data - len(data),
            )
            self._parts[key] = parts
        return parts

    def _present(self, parts: Sequence[GroupPlan | DataPlan], count: int) -> list[int]:
        """Return the indexes of the parts in the message: those of its version, or the first ``count`` of them."""
        present = [number for number, part in enumerate(parts) if part.since <= self._version]
        return present if count == NOT_COUNTED else present[:count]

    def _count_empty(self, entries: int) -> None:
        if self._state.count_empty_of(self._message, entries) < 0:
            raise Fault(InvalidValue, "count-range", "too many entries of no bytes", 0)
