"""Compares the groups and the data of one level: of a message's root, or of a group's entries."""

from __future__ import annotations

from collections.abc import Sequence

from connectors.wire.sbe.compare.fields import compare_remarks
from connectors.wire.sbe.compare.layouts import data_layout, group_layout
from connectors.wire.sbe.compare.ledger import Ledger, Location
from connectors.wire.sbe.compare.pairing import Parts, pair_parts
from connectors.wire.sbe.compare.skipping import can_skip_data, can_skip_group
from connectors.wire.sbe.compare.structures import compare_data_layouts, compare_dimensions
from connectors.wire.sbe.compare.texts import data_text, group_text
from connectors.wire.sbe.compare.versions import Age, check_new_age, check_new_body, compare_ages
from connectors.wire.sbe.model import Body, Data, Group, Message


def compare_groups(ledger: Ledger, spot: Location, old: Body, new: Body) -> list[tuple[Location, Group, Group]]:
    """Compare the groups of a level, and the dimensions of each; return the pairs that both schemas have."""
    parts = pair_parts(old.groups, new.groups, group_layout)
    root = isinstance(old, Message)
    if not parts.in_order:
        ledger.add("R56", spot.among(1), old=_names(old.groups), new=_names(new.groups))
    for group in parts.removed:
        is_passed = (root and not new.data) or can_skip_group(group, ledger.new)
        at = spot.at(group.name, 1, old.groups.index(group))
        ledger.add(f"R55{_removal(group, old.groups, parts, is_passed=is_passed)}", at, old=group_text(group))
    for group in (*parts.appended, *parts.inserted):
        row = "R53" if group in parts.inserted else _group_row(ledger, group, old)
        _add(ledger, spot.at(group.name, 1, new.groups.index(group)), group, row, group_text(group))
    pairs = [(spot.at(after.name, 1, new.groups.index(after)), before, after) for before, after in parts.pairs]
    for at, before, after in pairs:
        _compare_same(ledger, "R60", at, before, after)
        compare_dimensions(ledger, at, before.dimensions, after.dimensions)
    return pairs


def _group_row(ledger: Ledger, group: Group, old: Body) -> str:
    if isinstance(old, Message) and not old.data:
        return _at_the_end(ledger, "R50")
    row = "R51" if isinstance(old, Message) else "R54"
    return _inside(ledger, row, can_skip=can_skip_group(group, ledger.old))


def _at_the_end(ledger: Ledger, row: str) -> str:
    """Return the row for a part at the end of a message: old readers ignore it, unless they read on there."""
    return row if ledger.framed or ledger.profile == "counted" else f"{row}/unframed"


def _inside(ledger: Ledger, row: str, *, can_skip: bool) -> str:
    """Return the row for a part before known ones: old readers can skip it only if messages are counted."""
    if ledger.profile != "counted":
        return row
    return f"{row}/counted" if can_skip else f"{row}/unskippable"


def compare_data(ledger: Ledger, spot: Location, old: Body, new: Body) -> None:
    """Compare the data of a level."""
    parts = pair_parts(old.data, new.data, data_layout)
    root = isinstance(old, Message)
    if not parts.in_order:
        ledger.add("R70", spot.among(2), old=_names(old.data), new=_names(new.data))
    for data in parts.removed:
        is_passed = root or can_skip_data(data, ledger.new)
        at = spot.at(data.name, 2, old.data.index(data))
        ledger.add(f"R69{_removal(data, old.data, parts, is_passed=is_passed)}", at, old=data_text(data))
    for data in (*parts.appended, *parts.inserted):
        row = "R68" if data in parts.inserted else _data_row(ledger, data, root=root)
        _add(ledger, spot.at(data.name, 2, new.data.index(data)), data, row, data_text(data))
    for before, after in parts.pairs:
        at = spot.at(after.name, 2, new.data.index(after))
        _compare_same(ledger, "R74", at, before, after)
        compare_data_layouts(ledger, at, before, after)


def _data_row(ledger: Ledger, data: Data, *, root: bool) -> str:
    if root:
        return _at_the_end(ledger, "R65")
    return _inside(ledger, "R66", can_skip=can_skip_data(data, ledger.old))


def _names(level: Sequence[Group] | Sequence[Data]) -> str:
    return ", ".join(part.name for part in level)


def _removal(
    part: Group | Data, level: Sequence[Group] | Sequence[Data], parts: Parts[Group] | Parts[Data], *, is_passed: bool
) -> str:
    """Return the case of a removed part: counts help only if all parts after it are gone too, and none was added.

    Args:
        is_passed: New readers can skip it, or need not because nothing follows.
    """
    kept = {before.name for before, _ in parts.pairs}
    names = [each.name for each in level]
    behind = names[names.index(part.name) + 1 :]
    if kept.intersection(behind) or parts.appended or parts.inserted:
        return ""
    return "/last" if is_passed else "/unskippable"


def _add(ledger: Ledger, spot: Location, part: Group | Data, row: str, text: str) -> None:
    """Report a new part, and a sinceVersion that does not show that older messages lack it."""
    age = Age(part.since_version, part.deprecated)
    check_new_age(ledger, spot, age)
    if isinstance(part, Group):
        check_new_body(ledger, spot, part)
    proper = ledger.is_proper(part.since_version)
    if proper or row not in {"R50", "R65"}:
        ledger.add(row, spot, new=text, since=part.since_version)
    if not proper:
        missing = "R52" if isinstance(part, Group) else "R67"
        ledger.add(f"{missing}/inserted" if row in {"R53", "R68"} else missing, spot, new=text)


def _compare_same(ledger: Ledger, rule: str, spot: Location, old: Group | Data, new: Group | Data) -> None:
    compare_remarks(ledger, spot, old, new)
    compare_ages(ledger, spot, Age(old.since_version, old.deprecated), Age(new.since_version, new.deprecated))
    if (old.name, old.id) != (new.name, new.id):
        ledger.add(rule, spot, old=f"{old.name}, id {old.id}", new=f"{new.name}, id {new.id}")
