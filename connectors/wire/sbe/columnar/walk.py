"""Steps through many messages of one template together, noting where their blocks, entries and data lie.

Every step is one numpy operation over all messages that are at it: the root blocks; for each group its dimensions, then
the entries of flat groups at once, those of others one by one in all messages that still have one; the lengths of data.
Counts and lengths are checked against the bytes before use. A message that fails a check is marked and left behind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from connectors.wire.sbe.columnar.headers import NOT_SAID
from connectors.wire.sbe.columnar.levels import FIRST_GROUP, Level
from connectors.wire.sbe.columnar.octets import CLAMP, Bools, Longs
from connectors.wire.sbe.columnar.plan import BodyPlan, DataPlan, GroupPlan
from connectors.wire.sbe.columnar.single import FEW, Shape, Single
from connectors.wire.sbe.columnar.state import State
from connectors.wire.sbe.skip import Skipper
from connectors.wire.sbe.values import Fault

Skip: TypeAlias = Callable[[Single, BodyPlan, Shape, int], int]


class Shapes(NamedTuple):
    """What messages say of their bodies, or of each entry of a group."""

    block_length: Longs
    groups: Longs
    data: Longs

    def of(self, which: Bools) -> Shapes:
        """Return those of some messages."""
        return self if which.all() else Shapes(*(column[which] for column in self))

    def one(self, index: int) -> Shape:
        """Return that of one message."""
        return Shape(int(self.block_length[index]), int(self.groups[index]), int(self.data[index]))


class Walk:
    """Walks the messages of a state. Where several are named, each is named once."""

    def __init__(self, state: State, skipper: Skipper) -> None:
        self._state, self._skipper = state, skipper

    def messages(self, plan: BodyPlan, level: Level, shapes: Shapes) -> None:
        """Walk through all messages, the cursors being at their root blocks."""
        which = np.arange(len(self._state.version))
        if len(which) >= FEW:
            self._bodies(plan, level, which, shapes)
            return
        for message in which.tolist():
            self._alone(message, plan, level, None, shapes.one(message))

    def _alone(self, message: int, body: BodyPlan, level: Level, entries: int | None, shape: Shape) -> None:
        """Walk through so many entries of one message, or its one root body."""
        one, state = Single(self._state, self._skipper, message), self._state
        start = int(state.cursor[message] - state.begin[message])
        try:
            if entries is None:
                end = one.read(body, level, start, shape)
            else:
                end = one.entries(body, level, start, entries, shape)
            state.cursor[message] = end + state.begin[message]
        except Fault:
            state.bad[message] = True

    def _bodies(self, plan: BodyPlan, level: Level, which: Longs, shapes: Shapes) -> None:
        """Note one body of each message, its block where the message's cursor is; move the cursors behind it."""
        state = self._state
        start = state.cursor[which]
        fits = state.fail(which, shapes.block_length > state.end[which] - start)
        if not fits.all():
            which, start, shapes = which[fits], start[fits], shapes.of(fits)
        state.weigh(len(which), plan.body.content_length)
        columns = level.chunk(which, start, shapes.block_length)
        state.cursor[which] = start + shapes.block_length
        for number, group in enumerate(plan.groups):
            at = self._having(which, number, group.since, shapes.groups)
            columns[FIRST_GROUP + number, at] = self._group(group, level.groups[number], which[at])
        self._skip(which, plan, shapes, Single.skip_groups, shapes.groups > len(plan.groups))
        for number, datum in enumerate(plan.data):
            at, place = self._having(which, number, datum.since, shapes.data), level.place(number)
            columns[place, at], columns[place + 1, at] = self._data(datum, which[at])
        self._skip(which, plan, shapes, Single.skip_data, shapes.data > len(plan.data))

    def _skip(self, which: Longs, plan: BodyPlan, shapes: Shapes, skip: Skip, unknown: Bools) -> None:
        """Pass the parts that messages have and the schema does not know: one by one, they are rare."""
        state = self._state
        for index in np.flatnonzero(unknown & ~state.bad[which]).tolist():
            message = int(which[index])
            begin = int(state.begin[message])
            try:
                one = Single(state, self._skipper, message)
                state.cursor[message] = begin + skip(one, plan, shapes.one(index), int(state.cursor[message]) - begin)
            except Fault:
                state.bad[message] = True

    def _having(self, which: Longs, number: int, since: int, said: Longs) -> Longs:
        """Return the places of those messages that have a part: their version has it, or they say so."""
        present = np.where(said == NOT_SAID, self._state.version[which] >= since, said > number)
        return np.flatnonzero(present & ~self._state.bad[which])

    def _group(self, group: GroupPlan, level: Level, which: Longs) -> Longs:
        """Note the entries of the group whose dimensions come next; return how many each message has."""
        state, counts = self._state, np.zeros(len(which), np.int64)
        start = state.cursor[which] + group.dimensions.size
        at = np.flatnonzero(state.fail(which, start > state.end[which]))
        which, start = which[at], start[at]
        read = group.dimensions.read(state.octets, state.cursor[which])
        count, block_length = np.minimum(read["numInGroup"], CLAMP), np.minimum(read["blockLength"], CLAMP)
        wrong = (count < group.minimum) | (count > group.maximum) | (block_length * count > state.end[which] - start)
        right = state.fail(which, wrong)
        not_said = np.full(len(which), NOT_SAID, np.int64)
        shapes = Shapes(block_length, read.get("numGroups", not_said), read.get("numVarDataFields", not_said)).of(right)
        which, count, counts[at[right]] = which[right], count[right], count[right]
        state.cursor[which] = start[right]
        flat = self._flat(group.entry, which, shapes)
        self._flat_entries(level, which[flat], count[flat], shapes.block_length[flat])
        if not flat.all():
            self._entries(group, level, which[~flat], count[~flat], shapes.of(~flat))
        return counts

    def _flat(self, entry: BodyPlan, which: Longs, shapes: Shapes) -> Bools:
        """Tell which messages have nothing behind the blocks of the group's entries."""
        flat = np.ones(len(which), np.bool_)
        for parts, said in ((entry.groups, shapes.groups), (entry.data, shapes.data)):
            oldest = min((part.since for part in parts), default=CLAMP)
            flat &= np.where(said == NOT_SAID, self._state.version[which] < oldest, said <= 0)
        return flat

    def _flat_entries(self, level: Level, which: Longs, count: Longs, block_length: Longs) -> None:
        state = self._state
        empty = block_length == 0
        if empty.any():
            state.count_empty(which[empty], count[empty])
            kept = ~state.bad[which]
            which, count, block_length = which[kept], count[kept], block_length[kept]
        last = np.cumsum(count)
        state.weigh(int(count.sum()), level.body.content_length)
        number = np.arange(last[-1] if len(last) else 0) - np.repeat(last - count, count)
        lengths, cursor = np.repeat(block_length, count), state.cursor[which]
        level.chunk(np.repeat(which, count), np.repeat(cursor, count) + lengths * number, lengths)
        state.cursor[which] = cursor + block_length * count

    def _entries(self, group: GroupPlan, level: Level, which: Longs, count: Longs, shapes: Shapes) -> None:
        """Note entries that have parts of their own: the first of all messages, then the second, and so on."""
        state, done = self._state, 0
        while True:
            more = (count > done) & ~state.bad[which]
            which, count, shapes = which[more], count[more], shapes.of(more)
            if len(which) < FEW:
                break
            begin = state.cursor[which]
            self._bodies(group.entry, level, which, shapes)
            empty = which[(state.cursor[which] == begin) & ~state.bad[which]]
            if len(empty):
                state.count_empty(empty, 1)
            done += 1
        for index, message in enumerate(which.tolist()):
            self._alone(message, group.entry, level, int(count[index]) - done, shapes.one(index))

    def _data(self, datum: DataPlan, which: Longs) -> tuple[Longs, Longs]:
        """Return offset and length of the data whose length comes next."""
        state = self._state
        places, lengths = np.full((2, len(which)), -1, np.int64)
        cursor = state.cursor[which]
        at = np.flatnonzero(state.fail(which, cursor + datum.length.size > state.end[which]))
        which, cursor = which[at], cursor[at]
        length, start = datum.length.read(state.octets, cursor)["length"], cursor + datum.offset
        wrong = (length < datum.minimum) | (length > datum.maximum) | (length > state.end[which] - start)
        right = state.fail(which, wrong)
        places[at[right]], lengths[at[right]] = start[right], length[right]
        state.cursor[which[right]] = start[right] + length[right]
        return places, lengths
