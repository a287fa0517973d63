"""Reads a message's body: block, groups and data, nested as in the schema, for one acting version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from silverfold.conf.errors import InvalidValue, TruncatedMessage
from silverfold.connectors.wire.sbe.codec.blocks import BlockOptions, BlockPlan, BlockReader, charset_fault
from silverfold.connectors.wire.sbe.codec.skip import Skipper, Unskippable
from silverfold.connectors.wire.sbe.codec.values import Fault, Finding
from silverfold.connectors.wire.sbe.codec.walk import Dimensions, DimensionsReader, LengthReader
from silverfold.connectors.wire.sbe.schema.model import Body, Buffer, Data, Group
from silverfold.connectors.wire.sbe.schema.text import text_reader


class Scan:
    """State of reading one message: its bytes, its findings, and how many more empty entries it may have."""

    __slots__ = ("body", "empty_entries_left", "findings", "skipper", "stopped")

    def __init__(self, body: Buffer, *, empty_entries: int, skipper: Skipper) -> None:
        self.body = body
        self.empty_entries_left = empty_entries
        self.findings: dict[tuple[str, str], Finding] = {}
        """By reason and element: the same finding for many entries is reported once."""
        self.skipper = skipper
        self.stopped = False
        """Unknown parts at the end of the message could not be skipped: its end is unknown."""

    def note(self, reason: str, element: str, detail: str, offset: int | None) -> None:
        """Add a finding, unless the element already has one with this reason."""
        self.findings.setdefault((reason, element), Finding(reason, element, detail, offset))

    def count_empty(self, entries: int, offset: int) -> None:
        """Count entries that take no bytes; raise `Fault` if they become too many for one message."""
        self.empty_entries_left -= entries
        if self.empty_entries_left < 0:
            detail = f"{entries} entries of no bytes are more than one message may have"
            raise Fault(InvalidValue, "count-range", detail, offset)


class Counts(NamedTuple):
    """Numbers of groups and data according to the message; None if it does not carry them."""

    groups: int | None
    data: int | None


class BodyReader:
    """Reads the body of a message or of an entry.

    Args:
        path: Path of the element from the message down, for findings.
        root: This is the body of the message itself: nothing follows it.
    """

    def __init__(self, body: Body, options: BlockOptions, *, path: str, root: bool = False) -> None:
        self.path = path
        self._root = root
        self._plan = BlockPlan(body.fields, options, body.block_length)
        version = options.version
        groups = tuple(_GroupReader(group, options, f"{path}.{group.name}") for group in body.groups)
        data = tuple(_DataReader(data, options) for data in body.data)
        self._present_groups = tuple(reader for reader in groups if reader.since_version <= version)
        self._present_data = tuple(reader for reader in data if reader.since_version <= version)
        self.flat = not self._present_groups and not self._present_data
        """Nothing follows the block at the acting version."""

    def block(self, scan: Scan, block_length: int, offset: int) -> BlockReader:
        """Return the reader for blocks of this length on the wire; add a finding if it is too short."""
        full = self._plan.full
        if block_length >= full.size:
            return full
        detail = f"a block of {block_length} bytes, the fields of its version need {full.size}"
        scan.note("short-block", self.path, detail, offset)
        return self._plan.reader(block_length)

    def read(self, scan: Scan, offset: int, block_length: int, counts: Counts | None) -> tuple[dict[str, Any], int]:
        """Return the values of the body whose block is at ``offset``, and the offset of its end."""
        left = len(scan.body) - offset
        if block_length > left:
            raise Fault(TruncatedMessage, "truncated", f"block needs {block_length} bytes, {left} are left", offset)
        reader = self.block(scan, block_length, offset)
        try:
            values = reader.read(scan.body, offset)
        except UnicodeError:
            raise reader.fault(scan.body, offset) from None
        offset += block_length
        if counts is None:
            for group in self._present_groups:
                values[group.name], offset = group.read(scan, offset)
            for data in self._present_data:
                values[data.name], offset = data.read(scan, offset)
            return values, offset
        return values, self._read_counted(scan, offset, values, counts)

    def _read_counted(self, scan: Scan, offset: int, values: dict[str, Any], counts: Counts) -> int:
        """Read as many groups and data as the message counts; skip those unknown to the schema.

        Parts newer than the message's version are not counted, wherever they are in the schema. Of the others, only the
        last may be missing.
        """
        groups = self._present_groups[: counts.groups]
        data = self._present_data[: counts.data]
        for group in groups:
            values[group.name], offset = group.read(scan, offset)
        offset = self._skip(scan, offset, groups=(counts.groups or 0) - len(groups), last=not data)
        for datum in data:
            values[datum.name], offset = datum.read(scan, offset)
        return self._skip(scan, offset, data=(counts.data or 0) - len(data), last=True)

    def _skip(self, scan: Scan, offset: int, *, groups: int = 0, data: int = 0, last: bool) -> int:
        """Skip unknown parts. If they cannot be skipped, raise only if known elements follow."""
        if scan.stopped or (groups <= 0 and data <= 0):
            return offset
        try:
            return scan.skipper.skip(scan.body, offset, groups=groups, data=data)
        except Unskippable:
            what = f"{groups} unknown groups" if groups > 0 else f"{data} unknown data"
            detail = f"{what} cannot be skipped: nothing tells how they are laid out"
            if not (last and self._root):
                raise Fault(InvalidValue, "unskippable", detail, offset) from None
            scan.note("unskippable", self.path, detail, offset)
            scan.stopped = True
            return offset


class _GroupReader:
    def __init__(self, group: Group, options: BlockOptions, path: str) -> None:
        self.name = group.name
        self.since_version = group.since_version
        self._dimensions = DimensionsReader(group.dimensions, options.order)
        self._entry = BodyReader(group, options, path=path)

    def read(self, scan: Scan, offset: int) -> tuple[list[dict[str, Any]], int]:
        """Return the entries of the group whose dimensions are at ``offset``, and the offset of its end."""
        try:
            dimensions = self._dimensions.read(scan.body, offset)
            flat = self._entry.flat and not dimensions.groups and not dimensions.data
            if flat and not dimensions.block_length:
                scan.count_empty(dimensions.entries, offset)
        except Fault as fault:
            fault.path.append(self.name)
            raise
        return self._read_flat(scan, dimensions) if flat else self._read_entries(scan, dimensions)

    def _read_flat(self, scan: Scan, dimensions: Dimensions) -> tuple[list[dict[str, Any]], int]:
        block_length, count, start = dimensions[:3]
        end = start + block_length * count
        if not count:
            return [], end
        reader, body = self._entry.block(scan, block_length, start), scan.body
        try:
            if reader.read_all is not None and reader.length == block_length:
                return reader.read_all(body[start:end]), end
            offsets = range(start, end, block_length) if block_length else [start] * count
            return [reader.read(body, offset) for offset in offsets], end
        except UnicodeError:
            raise self._text_fault(scan, reader, dimensions) from None

    def _text_fault(self, scan: Scan, reader: BlockReader, dimensions: Dimensions) -> Fault:
        """Return the fault of the first entry with invalid text."""
        for index in range(dimensions.entries):
            offset = dimensions.start + index * dimensions.block_length
            try:
                reader.read(scan.body, offset)
            except UnicodeError:
                fault = reader.fault(scan.body, offset)
                fault.path.append(f"{self.name}[{index}]")
                return fault
        raise AssertionError("text was invalid a moment ago")

    def _read_entries(self, scan: Scan, dimensions: Dimensions) -> tuple[list[dict[str, Any]], int]:
        offset, entries = dimensions.start, []
        counted = dimensions.groups is not None or dimensions.data is not None
        counts = Counts(dimensions.groups, dimensions.data) if counted else None
        for index in range(dimensions.entries):
            start = offset
            try:
                values, offset = self._entry.read(scan, start, dimensions.block_length, counts)
                if offset == start:
                    scan.count_empty(1, offset)
            except Fault as fault:
                fault.path.append(f"{self.name}[{index}]")
                raise
            entries.append(values)
        return entries, offset


class _DataReader:
    def __init__(self, data: Data, options: BlockOptions) -> None:
        self.name = data.name
        self.since_version = data.since_version
        self._length = LengthReader(data, options.order)
        self._charset = data.charset or ""
        self._read: Callable[[Buffer], Any] = bytes if data.charset is None else text_reader(data.charset, options.text)

    def read(self, scan: Scan, offset: int) -> tuple[Any, int]:
        """Return the text or bytes whose length is at ``offset``, and the offset of their end."""
        try:
            start, end = self._length.read(scan.body, offset)
            return self._read(scan.body[start:end]), end
        except UnicodeError:
            fault = charset_fault(scan.body[start:end], self._charset, start)
            fault.path.append(self.name)
            raise fault from None
        except Fault as fault:
            fault.path.append(self.name)
            raise
