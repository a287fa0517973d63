"""Compares the structures before groups and data (dimensions, lengths), their limits, and the charset of text."""

from __future__ import annotations

from connectors.wire.sbe.compare.layouts import charset_name, data_layout, structure_layout
from connectors.wire.sbe.compare.ledger import Ledger, Location
from connectors.wire.sbe.compare.texts import length_text, range_text, structure_text
from connectors.wire.sbe.compare.values import Limits, charset_case, is_narrowed
from connectors.wire.sbe.schema.model import Data, Role, Structure


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
