"""Compares enums and sets: the names of numbers or bits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from silverfold.connectors.wire.sbe.compare.ledger import Ledger, Location
from silverfold.connectors.wire.sbe.compare.versions import ElementVersions, check_new_versions, compare_versions
from silverfold.connectors.wire.sbe.schema.model import Enum, Primitive, Set


class _Names(NamedTuple):
    """The names in an enum or a set, by number or bit."""

    names: Mapping[int, str]
    versions: Mapping[int, int]
    deprecated: Mapping[int, int]
    descriptions: Mapping[int, str]

    def versions_of(self, raw: int) -> ElementVersions:
        return ElementVersions(self.versions.get(raw, 0), self.deprecated.get(raw))

    def of(self, name: str) -> int | None:
        return next((raw for raw, known in self.names.items() if known == name), None)


def _names(encoding: Enum | Set, names: Mapping[int, str]) -> _Names:
    return _Names(names, encoding.versions, encoding.deprecated_values, encoding.descriptions)


def compare_enums(ledger: Ledger, location: Location, old: Enum, new: Enum) -> None:
    """Compare the old and the new enum of a field or member."""
    if old.encoding.primitive is not new.encoding.primitive:
        ledger.add("R80", location, old=old.encoding.primitive.value, new=new.encoding.primitive.value)
        return
    if old.null != new.null:
        ledger.add("R87", location, old=old.null, new=new.null)
    names = _names(old, old.values), _names(new, new.values)
    is_char = old.encoding.primitive is Primitive.CHAR
    for raw in sorted({*old.values, *new.values}):
        _compare_value(ledger, location, names, raw, text=_number_text(raw, is_char=is_char))
    for name, *numbers in _moved_names(*names):
        before, after = (_number_text(number, is_char=is_char) for number in numbers)
        ledger.add("R84", location.at(name), old=before, new=after)
    _compare_both(ledger, location, names)


def _compare_value(ledger: Ledger, location: Location, names: tuple[_Names, _Names], raw: int, *, text: str) -> None:
    """Compare the names of one number. Names that moved to another number have their own rule."""
    old, new = names
    if (change := _name_change(old, new, raw)) is None:
        return
    before, after, is_added, is_removed = change
    if is_added and before is None:
        _add_value(ledger, location.at(str(after)), new.versions_of(raw), f"{after} = {text}")
    elif is_added and is_removed:
        is_new = ledger.is_versioned(new.versions_of(raw).since)
        ledger.add(
            "R86" if is_new else "R85", location.at(str(after)), old=f"{before} = {text}", new=f"{after} = {text}"
        )
    elif after is not None and not is_added and before is not None:
        ledger.add("R86", location.at(after), old=f"{before} = {text}", new=f"{after} = {text}")
    elif is_removed:
        deprecated = "" if old.versions_of(raw).deprecated is None else "/deprecated"
        ledger.add(f"R83{deprecated}", location.at(str(before)), old=f"{before} = {text}")


def _add_value(ledger: Ledger, location: Location, versions: ElementVersions, text: str) -> None:
    ledger.add("R81", location, new=text)
    if not ledger.is_versioned(versions.since):
        ledger.add("R82", location, new=f"since {versions.since}")
    check_new_versions(ledger, location, versions)


def compare_sets(ledger: Ledger, location: Location, old: Set, new: Set) -> None:
    """Compare the old and the new set of a field or member."""
    if old.encoding.primitive is not new.encoding.primitive:
        ledger.add("R88", location, old=old.encoding.primitive.value, new=new.encoding.primitive.value)
        return
    names = _names(old, old.choices), _names(new, new.choices)
    for bit in sorted({*old.choices, *new.choices}):
        _compare_choice(ledger, location, names, bit)
    for name, before, after in _moved_names(*names):
        ledger.add("R91", location.at(name), old=f"bit {before}", new=f"bit {after}")
    _compare_both(ledger, location, names)


def _compare_choice(ledger: Ledger, location: Location, names: tuple[_Names, _Names], bit: int) -> None:
    old, new = names
    if (change := _name_change(old, new, bit)) is None:
        return
    before, after, is_added, is_removed = change
    if is_added and is_removed:
        reused = "/reused" if ledger.is_versioned(new.versions_of(bit).since) else ""
        ledger.add(f"R92{reused}", location.at(str(after)), old=f"{before}, bit {bit}", new=f"{after}, bit {bit}")
    elif is_added:
        at, versions = location.at(str(after)), new.versions_of(bit)
        unversioned = "" if ledger.is_versioned(versions.since) else "/unversioned"
        ledger.add(f"R89{unversioned}", at, new=f"bit {bit}")
        check_new_versions(ledger, at, versions)
    elif is_removed:
        deprecated = "" if old.versions_of(bit).deprecated is None else "/deprecated"
        ledger.add(f"R90{deprecated}", location.at(str(before)), old=f"bit {bit}")


def _name_change(old: _Names, new: _Names, raw: int) -> tuple[str | None, str | None, bool, bool] | None:
    """Return a number's old and new name, whether the new name was added, and whether the old one was removed.

    None if both sides have the same name.
    """
    before, after = old.names.get(raw), new.names.get(raw)
    if before == after:
        return None
    is_added = after is not None and old.of(after) is None
    is_removed = before is not None and new.of(before) is None
    return before, after, is_added, is_removed


def _moved_names(old: _Names, new: _Names) -> Iterator[tuple[str, int, int]]:
    """Yield the names that moved to another number, with the old and the new number."""
    for name in old.names.values():
        before, after = old.of(name), new.of(name)
        if before is not None and after is not None and before != after:
            yield name, before, after


def _compare_both(ledger: Ledger, location: Location, names: tuple[_Names, _Names]) -> None:
    """Compare versions and descriptions of the numbers that both sides have."""
    old, new = names
    for raw, name in new.names.items():
        if raw in old.names:
            at = location.at(name)
            compare_versions(ledger, at, old.versions_of(raw), new.versions_of(raw), value=True)
            if old.descriptions.get(raw) != new.descriptions.get(raw):
                ledger.add("R40", at, old=old.descriptions.get(raw), new=new.descriptions.get(raw))


def _number_text(raw: int, *, is_char: bool) -> str:
    return repr(chr(raw)) if is_char else str(raw)
