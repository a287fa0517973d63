"""Compares blocks: the fields of a message's root or of a group's entries, and their block lengths.

Added and removed fields are not reported at once: a field that moved from one block of a message to another is one
finding, not two (`Strays`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

from silverfold.connectors.wire.sbe.compare.fields import compare_fields
from silverfold.connectors.wire.sbe.compare.layouts import kind, meaning, wire_fields
from silverfold.connectors.wire.sbe.compare.ledger import Ledger, Location
from silverfold.connectors.wire.sbe.compare.pairing import Blocks, pair_blocks
from silverfold.connectors.wire.sbe.compare.texts import field_text
from silverfold.connectors.wire.sbe.compare.versions import ElementVersions, check_new_versions
from silverfold.connectors.wire.sbe.schema.model import Body, Field, Presence


class Stray(NamedTuple):
    """A field with bytes that was added to a block or removed from it."""

    block: Location
    location: Location
    field: Field
    report: Callable[[], None]
    """Reports it as a finding of its own."""


@dataclasses.dataclass
class Strays:
    """The fields of a message that were added or removed, over all its blocks."""

    ledger: Ledger
    removed: list[Stray] = dataclasses.field(default_factory=list)
    added: list[Stray] = dataclasses.field(default_factory=list)

    def report(self) -> None:
        """Report each as moved to another block, or else as added or removed."""
        for stray in self.removed:
            target = next((each for each in self.added if _is_moved(stray, each)), None)
            if target is None:
                stray.report()
            else:
                self.added.remove(target)
                before, after = (f"{each.location.path}: {field_text(each.field)}" for each in (stray, target))
                self.ledger.add("R37", target.location, old=before, new=after)
        for stray in self.added:
            stray.report()


def _is_moved(removed: Stray, added: Stray) -> bool:
    same_name = removed.field.name == added.field.name
    return same_name and removed.block != added.block and kind(removed.field.encoding) == kind(added.field.encoding)


def compare_blocks(ledger: Ledger, location: Location, old: Body, new: Body, strays: Strays) -> None:
    """Compare the fields of two bodies, and their block lengths."""
    blocks = pair_blocks(old.fields, new.fields, ledger.old.version)
    moved = _report_exchanged(ledger, location, [pair for pair in blocks.pairs if _has_moved(*pair)])
    cause = None
    if moved:
        first = min(moved, key=lambda pair: pair[0].offset)
        cause, description = _cause(old, blocks, first)
        before, after = (field_text(each) for each in first)
        ledger.add("R24", _field_location(location, first[1]), old=before, new=after, cause=description)
    for pair in blocks.pairs:
        compare_fields(ledger, _field_location(location, pair[1]), *pair)
    for each in blocks.removed:
        _remove(ledger, location, each, strays)
    for each in blocks.added:
        _add(ledger, location, each, _rule_row(ledger, each, old, is_cause=each is cause), strays)
    _compare_lengths(ledger, location, old, new, blocks)


def _field_location(location: Location, field: Field) -> Location:
    return location.at(field.name, 0, field.offset)


def _has_moved(old: Field, new: Field) -> bool:
    return Presence.CONSTANT not in {old.presence, new.presence} and old.offset != new.offset


def _report_exchanged(
    ledger: Ledger, location: Location, moved: list[tuple[Field, Field]]
) -> list[tuple[Field, Field]]:
    """Report pairs of fields that exchanged their offsets; return the other moved pairs."""
    left = list(moved)
    for pair in moved:
        other = next((each for each in left if pair in left and _is_exchanged(pair, each)), None)
        if other is not None:
            left = [each for each in left if each not in (pair, other)]
            names = pair[1].name, other[1].name
            before, after = (
                f"{first} at {pair[0].offset}, {second} at {other[0].offset}" for first, second in (names, names[::-1])
            )
            ledger.add("R38", _field_location(location, pair[1]), old=before, new=after)
    return left


def _is_exchanged(pair: tuple[Field, Field], other: tuple[Field, Field]) -> bool:
    crossed = pair[0].offset == other[1].offset and pair[1].offset == other[0].offset
    encodings = [meaning(each.encoding) for each in (*pair, *other)]
    return crossed and pair is not other and all(each == encodings[0] for each in encodings)


def _cause(old: Body, blocks: Blocks[Field], first: tuple[Field, Field]) -> tuple[Field | None, str]:
    """Return the cause of a field's move: the field inserted before it, if that is the cause, and a description."""
    before, after = first
    for each in wire_fields(tuple(blocks.added)):
        if each.offset < after.offset and each.offset + each.size > before.offset - _gap_before(old, before):
            return each, f"{each.name} was put before it"
    for left, right in blocks.pairs:
        if left.size != right.size and right.offset < after.offset:
            return None, f"{right.name} before it takes {right.size} bytes instead of {left.size}"
    for each in wire_fields(tuple(blocks.removed)):
        if each.offset < before.offset:
            return None, f"{each.name} before it was removed"
    return None, "it is given another offset, or stands in another order"


def _gap_before(old: Body, field: Field) -> int:
    """Return the bytes of padding before a field."""
    ends = [each.offset + each.size for each in wire_fields(old.fields) if each.offset < field.offset]
    return field.offset - max(ends, default=0)


def _remove(ledger: Ledger, location: Location, field: Field, strays: Strays) -> None:
    at, text = _field_location(location, field), field_text(field)
    if field.presence is Presence.CONSTANT:
        ledger.add("R26/removed", at, old=text)
    else:
        strays.removed.append(Stray(location, at, field, lambda: ledger.add("R25", at, old=text)))


def _rule_row(ledger: Ledger, field: Field, old: Body, *, is_cause: bool) -> str | None:
    """Return the rule for a new field; None if its insertion is already reported as a cause."""
    if field.presence is Presence.CONSTANT:
        return "R26/added"
    if not ledger.is_versioned(field.since_version):
        return "R21"
    if field.offset >= old.block_length:
        return "R20"
    if field.offset >= old.content_length:
        return "R22"
    return None if is_cause else "R23"


def _add(ledger: Ledger, location: Location, field: Field, row: str | None, strays: Strays) -> None:
    at = _field_location(location, field)
    check_new_versions(ledger, at, ElementVersions(field.since_version, field.deprecated))

    def report() -> None:
        if row is not None:
            ledger.add(row, at, new=field_text(field), since=field.since_version)

    if field.presence is Presence.CONSTANT:
        report()
    else:
        strays.added.append(Stray(location, at, field, report))


def _compare_lengths(ledger: Ledger, location: Location, old: Body, new: Body, blocks: Blocks[Field]) -> None:
    """Compare the lengths of blocks whose old fields did not change; other changes imply a change of length."""
    layouts = [
        (each.offset, each.size, right.offset, right.size) for each, right in blocks.pairs if each.size or right.size
    ]
    if wire_fields(tuple(blocks.removed)) or any(layout[:2] != layout[2:] for layout in layouts):
        return
    lengths = {"old": f"{old.block_length} bytes", "new": f"{new.block_length} bytes"}
    if new.block_length < old.block_length:
        ledger.add("R45", location, **lengths)
    elif new.block_length > old.block_length and not wire_fields(tuple(blocks.added)):
        ledger.add("R46", location, **lengths)
