"""Compares the groups and the data of one level: of a message's root, or of a group's entries."""

from __future__ import annotations

from collections.abc import Sequence

from silverfold.connectors.wire.sbe.codec.skip import data_layout
from silverfold.connectors.wire.sbe.compare.fields import compare_remarks
from silverfold.connectors.wire.sbe.compare.layouts import (
    can_skip_data,
    can_skip_group,
    charset_name,
    group_layout,
    is_misread_data,
    is_misread_group,
    structure_layout,
)
from silverfold.connectors.wire.sbe.compare.ledger import Ledger, Location
from silverfold.connectors.wire.sbe.compare.pairing import Parts, pair_parts
from silverfold.connectors.wire.sbe.compare.texts import data_text, group_text, length_text, range_text, structure_text
from silverfold.connectors.wire.sbe.compare.values import Limits, charset_case, is_narrowed
from silverfold.connectors.wire.sbe.compare.versions import (
    ElementVersions,
    check_new_body,
    check_new_versions,
    compare_versions,
)
from silverfold.connectors.wire.sbe.schema.model import Body, Data, Group, Message, Role, Structure


def compare_dimensions(ledger: Ledger, location: Location, old: Structure, new: Structure) -> None:
    """Compare the dimensions of a group: layout, name, and limits of the number of entries."""
    if structure_layout(old, named=False) != structure_layout(new, named=False):
        ledger.add("R57", location, old=structure_text(old), new=structure_text(new))
        return
    if old.name != new.name:
        ledger.add("R58", location, old=old.name, new=new.name)
    _compare_limits(ledger, "R59", location, old.roles["numInGroup"], new.roles["numInGroup"])


def compare_data_layouts(ledger: Ledger, location: Location, old: Data, new: Data) -> None:
    """Compare the composites of data: length, its limits, charset or bytes."""
    if data_layout(old) != data_layout(new):
        ledger.add("R71", location, old=length_text(old), new=length_text(new))
    else:
        _compare_limits(ledger, "R73", location, old.length, new.length)
    _compare_charsets(ledger, location, old.charset, new.charset)
    if old.type_name != new.type_name and _content(old) == _content(new):
        ledger.add("R41", location, old=old.type_name, new=new.type_name)


def _content(data: Data) -> tuple[object, ...]:
    return data.length, data.data_offset, data.charset


def _compare_charsets(ledger: Ledger, location: Location, old: str | None, new: str | None) -> None:
    if old is None or new is None:
        if old != new:
            ledger.add("R72/plain", location, old=old or "bytes", new=new or "bytes")
    elif charset_name(old) != charset_name(new):
        ledger.add(f"R72{charset_case(old, new)}", location, old=old, new=new)


def _compare_limits(ledger: Ledger, rule: str, location: Location, old: Role, new: Role) -> None:
    before, after = Limits(old.minimum, old.maximum), Limits(new.minimum, new.maximum)
    texts = {"old": range_text(*before), "new": range_text(*after)}
    if is_narrowed(before, after):
        ledger.add(f"{rule}/narrowed", location, **texts)
    if is_narrowed(after, before):
        ledger.add(f"{rule}/widened", location, **texts)


def compare_groups(ledger: Ledger, location: Location, old: Body, new: Body) -> list[tuple[Location, Group, Group]]:
    """Compare the groups of a level, and the dimensions of each; return the pairs that both schemas have."""
    parts = pair_parts(old.groups, new.groups, group_layout, ledger.old.version)
    root = isinstance(old, Message)
    if not parts.in_order:
        ledger.add("R56", location.with_order(1), old=_names(old.groups), new=_names(new.groups))
    for group in parts.removed:
        is_last = root and not new.data and not is_misread_group(group, ledger.new)
        is_skippable = is_last or can_skip_group(group, ledger.new)
        at = location.at(group.name, 1, old.groups.index(group))
        case = _removal(ledger, group, old.groups, parts, is_skippable=is_skippable)
        ledger.add(f"R55{case}", at, old=group_text(group))
    replaces = _is_last_removed(old.groups, parts)
    for group in (*parts.appended, *parts.inserted):
        row = "R53" if group in parts.inserted else _group_row(ledger, group, old, replaces=replaces)
        _add(ledger, location.at(group.name, 1, new.groups.index(group)), group, row, group_text(group))
    pairs = [(location.at(after.name, 1, new.groups.index(after)), before, after) for before, after in parts.pairs]
    for at, before, after in pairs:
        _compare_same(ledger, "R60", at, before, after)
        compare_dimensions(ledger, at, before.dimensions, after.dimensions)
    return pairs


def _group_row(ledger: Ledger, group: Group, old: Body, *, replaces: bool) -> str:
    can_skip = can_skip_group(group, ledger.old)
    is_last = isinstance(old, Message) and not old.data
    row = "R50" if is_last else "R51" if isinstance(old, Message) else "R54"
    if replaces:
        return f"{row}/replaced"
    if is_last:
        return _last_row(ledger, row, can_skip=can_skip, is_misread=is_misread_group(group, ledger.old))
    return _inner_row(ledger, row, can_skip=can_skip)


def _last_row(ledger: Ledger, row: str, *, can_skip: bool, is_misread: bool) -> str:
    """Return the row for a part at the end of a message: old readers ignore it, unless they read on there."""
    is_counted = ledger.profile == "counted"
    if is_counted and is_misread:
        return f"{row}/unskippable"
    return row if ledger.framed or (is_counted and can_skip) else f"{row}/unframed"


def _inner_row(ledger: Ledger, row: str, *, can_skip: bool) -> str:
    """Return the row for a part before known ones: old readers can skip it only if messages are counted."""
    if ledger.profile != "counted":
        return row
    return f"{row}/counted" if can_skip else f"{row}/unskippable"


def compare_data(ledger: Ledger, location: Location, old: Body, new: Body) -> None:
    """Compare the data of a level."""
    parts = pair_parts(old.data, new.data, data_layout, ledger.old.version)
    root = isinstance(old, Message)
    if not parts.in_order:
        ledger.add("R70", location.with_order(2), old=_names(old.data), new=_names(new.data))
    for data in parts.removed:
        is_last = root and not is_misread_data(data, ledger.new)
        is_skippable = is_last or can_skip_data(data, ledger.new)
        at = location.at(data.name, 2, old.data.index(data))
        case = _removal(ledger, data, old.data, parts, is_skippable=is_skippable)
        ledger.add(f"R69{case}", at, old=data_text(data))
    replaces = _is_last_removed(old.data, parts)
    for data in (*parts.appended, *parts.inserted):
        row = "R68" if data in parts.inserted else _data_row(ledger, data, root=root, replaces=replaces)
        _add(ledger, location.at(data.name, 2, new.data.index(data)), data, row, data_text(data))
    for before, after in parts.pairs:
        at = location.at(after.name, 2, new.data.index(after))
        _compare_same(ledger, "R74", at, before, after)
        compare_data_layouts(ledger, at, before, after)


def _data_row(ledger: Ledger, data: Data, *, root: bool, replaces: bool) -> str:
    if replaces:
        return "R65/replaced" if root else "R66/replaced"
    can_skip = can_skip_data(data, ledger.old)
    if root:
        return _last_row(ledger, "R65", can_skip=can_skip, is_misread=is_misread_data(data, ledger.old))
    return _inner_row(ledger, "R66", can_skip=can_skip)


def _names(level: Sequence[Group] | Sequence[Data]) -> str:
    return ", ".join(part.name for part in level)


def _is_last_removed(level: Sequence[Group] | Sequence[Data], parts: Parts[Group] | Parts[Data]) -> bool:
    """Return whether old readers expect a removed part where the appended ones begin."""
    return bool(level) and level[-1].name in {each.name for each in parts.removed}


def _removal(
    ledger: Ledger,
    part: Group | Data,
    level: Sequence[Group] | Sequence[Data],
    parts: Parts[Group] | Parts[Data],
    *,
    is_skippable: bool,
) -> str:
    """Return the case of a removed part: counts help only if all parts after it are gone too.

    If others were appended, they help new readers only, and only if these know that old messages lack those.

    Args:
        is_skippable: New readers can skip it, or need not because nothing follows.
    """
    remaining = {before.name for before, _ in parts.pairs}
    names = [each.name for each in level]
    following = names[names.index(part.name) + 1 :]
    if remaining.intersection(following) or parts.inserted:
        return ""
    if parts.appended:
        is_known = all(ledger.is_versioned(each.since_version) for each in parts.appended)
        return "/replaced" if is_known and is_skippable else ""
    return "/last" if is_skippable else "/unskippable"


def _add(ledger: Ledger, location: Location, part: Group | Data, row: str, text: str) -> None:
    """Report a new part, and a sinceVersion that does not show that older messages lack it."""
    versions = ElementVersions(part.since_version, part.deprecated)
    check_new_versions(ledger, location, versions)
    if isinstance(part, Group):
        check_new_body(ledger, location, part)
    is_versioned = ledger.is_versioned(part.since_version)
    if is_versioned or row not in {"R50", "R65"}:
        ledger.add(row, location, new=text, since=part.since_version)
    if not is_versioned:
        missing = "R52" if isinstance(part, Group) else "R67"
        ledger.add(f"{missing}/inserted" if row in {"R53", "R68"} else missing, location, new=text)


def _compare_same(ledger: Ledger, rule: str, location: Location, old: Group | Data, new: Group | Data) -> None:
    compare_remarks(ledger, location, old, new)
    compare_versions(
        ledger,
        location,
        ElementVersions(old.since_version, old.deprecated),
        ElementVersions(new.since_version, new.deprecated),
    )
    if (old.name, old.id) != (new.name, new.id):
        ledger.add(rule, location, old=f"{old.name}, id {old.id}", new=f"{new.name}, id {new.id}")
