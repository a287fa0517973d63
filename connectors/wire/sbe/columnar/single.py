"""Steps through one message at a time: for the few that still have entries when all others are done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from conf.errors import InvalidValue, TruncatedMessage
from connectors.wire.sbe.columnar.headers import NOT_SAID
from connectors.wire.sbe.columnar.levels import FIRST_GROUP, Level
from connectors.wire.sbe.columnar.plan import BodyPlan, DataPlan, GroupPlan
from connectors.wire.sbe.columnar.state import State
from connectors.wire.sbe.skip import Skipper, Unskippable
from connectors.wire.sbe.values import Fault

FEW = 24
"""Below this number of messages, one at a time is faster than all together."""


class Shape(NamedTuple):
    """What a message says of a body, or of each entry of a group."""

    block_length: int
    groups: int
    data: int


class Single:
    """Walks one message. Offsets are from its first byte; `Fault` when something does not fit."""

    def __init__(self, state: State, skipper: Skipper, message: int) -> None:
        self._state, self._skipper, self._message = state, skipper, message
        self._body = state.message(message)
        self._base = int(state.begin[message])
        self._version = int(state.version[message])

    def read(self, plan: BodyPlan, level: Level, start: int, shape: Shape) -> int:
        """Note the body whose block is at ``start``; return where it ends."""
        left = len(self._body) - start
        if shape.block_length > left:
            raise Fault(TruncatedMessage, "truncated", f"{left} bytes are left", start)
        self._state.weigh(1, plan.body.content_length)
        line = level.line(self._message, self._base + start, shape.block_length)
        offset = start + shape.block_length
        for number, group in enumerate(plan.groups):
            if self._has(number, group.since, shape.groups):
                line[FIRST_GROUP + number], offset = self._group(group, level.groups[number], offset)
        offset = self.skip_groups(plan, shape, offset)
        for number, datum in enumerate(plan.data):
            if self._has(number, datum.since, shape.data):
                offset = self._data(datum, line, level.place(number), offset)
        return self.skip_data(plan, shape, offset)

    def entries(self, entry: BodyPlan, level: Level, start: int, count: int, shape: Shape) -> int:
        """Note so many entries one behind another; return where they end."""
        offset = start
        for _ in range(count):
            begin = offset
            offset = self.read(entry, level, begin, shape)
            if offset == begin:
                self._count_empty(1)
        return offset

    def skip_groups(self, plan: BodyPlan, shape: Shape, offset: int) -> int:
        """Pass the groups that the schema does not know; return where they end."""
        last = plan.root and not self._any(plan.data, shape.data)
        return self._skip(offset, groups=shape.groups - len(plan.groups), lawful=last)

    def skip_data(self, plan: BodyPlan, shape: Shape, offset: int) -> int:
        """Pass the data that the schema does not know; return where they end."""
        return self._skip(offset, data=shape.data - len(plan.data), lawful=plan.root)

    def _skip(self, offset: int, *, groups: int = 0, data: int = 0, lawful: bool) -> int:
        """It is ``lawful`` not to understand unknown parts when nothing known follows."""
        if (groups <= 0 and data <= 0) or self._state.stopped[self._message]:
            return offset
        try:
            return self._skipper.skip(self._body, offset, groups=groups, data=data)
        except Unskippable:
            if not lawful:
                raise Fault(InvalidValue, "unskippable", "unknown parts", offset) from None
            self._state.stopped[self._message] = True
            return offset

    def _group(self, group: GroupPlan, level: Level, offset: int) -> tuple[int, int]:
        block_length, count, start, groups, data = group.single.read(self._body, offset)
        shape = Shape(block_length, NOT_SAID if groups is None else groups, NOT_SAID if data is None else data)
        if not self._flat(group.entry, shape):
            return count, self.entries(group.entry, level, start, count, shape)
        if not block_length:
            self._count_empty(count)
        self._state.weigh(count, group.entry.body.content_length)
        level.run(self._message, self._base + start, block_length, count)
        return count, start + block_length * count

    def _flat(self, entry: BodyPlan, shape: Shape) -> bool:
        if shape.groups > 0 or shape.data > 0:
            return False
        return not self._any(entry.groups, shape.groups) and not self._any(entry.data, shape.data)

    def _any(self, parts: Sequence[GroupPlan | DataPlan], said: int) -> bool:
        return any(self._has(number, part.since, said) for number, part in enumerate(parts))

    def _data(self, datum: DataPlan, line: list[int], place: int, offset: int) -> int:
        begin, end = datum.single.read(self._body, offset)
        line[place], line[place + 1] = self._base + begin, end - begin
        return end

    def _has(self, number: int, since: int, said: int) -> bool:
        return since <= self._version if said == NOT_SAID else number < said

    def _count_empty(self, entries: int) -> None:
        self._state.count_empty(np.array([self._message]), entries)
        if self._state.bad[self._message]:
            raise Fault(InvalidValue, "count-range", "too many entries of no bytes", 0)
