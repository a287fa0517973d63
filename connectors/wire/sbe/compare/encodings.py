"""Compares the encodings of a field or of a composite's member, down to single enum values and set choices."""

from __future__ import annotations

from connectors.wire.sbe.compare.layouts import kind, meaning, shape
from connectors.wire.sbe.compare.ledger import Ledger, Location
from connectors.wire.sbe.compare.named_values import compare_enums, compare_sets
from connectors.wire.sbe.compare.pairing import Blocks, pair_blocks
from connectors.wire.sbe.compare.texts import composite_text, encoding_text
from connectors.wire.sbe.compare.values import compare_constants, compare_presence, compare_values
from connectors.wire.sbe.compare.versions import Age, check_new_age, compare_ages, compare_deprecation
from connectors.wire.sbe.model import Array, Composite, Encoding, Enum, Member, Presence, Scalar, Set


def compare_encodings(
    ledger: Ledger, spot: Location, old: Encoding, new: Encoding, *, label: str, nullable: bool = False
) -> None:
    """Compare the old and the new encoding of an element.

    Args:
        spot: Location of the element.
        label: Name of the new encoding in findings: its own, or the member's path if it has none.
        nullable: The element may be null on both sides.
    """
    at = spot.encoding(label)
    _compare_remarks(ledger, at, old, new)
    match old, new:
        case Scalar() | Array(), Scalar() | Array() if shape(old) == shape(new):
            compare_values(ledger, spot, old, new, nullable=nullable)
        case Enum(), Enum():
            compare_enums(ledger, at, old, new)
        case Set(), Set():
            compare_sets(ledger, at, old, new)
        case Composite(), Composite():
            _compare_composites(ledger, at, old, new, nullable=nullable)
        case _:
            ledger.add("R27", spot, old=encoding_text(old), new=encoding_text(new))


def compare_type_names(ledger: Ledger, spot: Location, old: Encoding, new: Encoding) -> None:
    """Compare the names of an element's types; a difference counts only if they are equal otherwise."""
    if old.name != new.name and meaning(old) == meaning(new):
        ledger.add("R41", spot, old=old.name, new=new.name)


def _compare_remarks(ledger: Ledger, spot: Location, old: Encoding, new: Encoding) -> None:
    if old.name != new.name:
        return
    said, says = old.remarks, new.remarks
    if (said.description, said.semantic_type) != (says.description, says.semantic_type):
        ledger.add("R40", spot, old=said.semantic_type or said.description, new=says.semantic_type or says.description)
    compare_deprecation(ledger, spot, Age(old.since_version, said.deprecated), Age(new.since_version, says.deprecated))


def _compare_composites(ledger: Ledger, spot: Location, old: Composite, new: Composite, *, nullable: bool) -> None:
    blocks = pair_blocks(old.members, new.members)
    added = [member for member in blocks.added if member.presence is not Presence.CONSTANT]
    if old.size != new.size or not _keeps_layout(blocks):
        ledger.add("R93", spot, old=composite_text(old), new=composite_text(new))
    else:
        for member in added:
            proper = ledger.is_proper(member.since_version)
            place = f"{encoding_text(member.encoding)} at {member.offset}"
            ledger.add("R94" if proper else "R94/unversioned", spot.at(member.name), new=place)
            check_new_age(ledger, spot.at(member.name), Age(member.since_version, member.deprecated))
    _compare_constant_members(ledger, spot, blocks)
    for before, after in blocks.pairs:
        _compare_members(ledger, spot.at(after.name), before, after, nullable=nullable and before is _first(old))


def _keeps_layout(blocks: Blocks[Member]) -> bool:
    """Return whether all members with bytes still have the same offset and layout."""
    if any(member.presence is not Presence.CONSTANT for member in blocks.removed):
        return False
    return all(_place(old) == _place(new) for old, new in blocks.pairs)


def _place(member: Member) -> tuple[object, ...]:
    """Return a member's offset and shape; only kind and size of enums, sets and composites, which are compared too."""
    if member.presence is Presence.CONSTANT:
        return ("constant",)
    encoding = member.encoding
    plain = isinstance(encoding, Scalar | Array)
    return member.offset, shape(encoding) if plain else (kind(encoding), encoding.size)


def _first(composite: Composite) -> Member | None:
    """Return the member that determines whether the composite is null."""
    return next((member for member in composite.members if member.presence is not Presence.CONSTANT), None)


def _compare_constant_members(ledger: Ledger, spot: Location, blocks: Blocks[Member]) -> None:
    for member in blocks.removed:
        if member.presence is Presence.CONSTANT:
            ledger.add("R95/removed", spot.at(member.name), old=member.constant)
    for member in blocks.added:
        if member.presence is Presence.CONSTANT:
            ledger.add("R95/added", spot.at(member.name), new=member.constant)


def _compare_members(ledger: Ledger, spot: Location, old: Member, new: Member, *, nullable: bool) -> None:
    compare_ages(ledger, spot, Age(old.since_version, old.deprecated), Age(new.since_version, new.deprecated))
    if old.description != new.description:
        ledger.add("R40", spot, old=old.description, new=new.description)
    constants = [member.presence is Presence.CONSTANT for member in (old, new)]
    if all(constants):
        compare_constants(ledger, spot, old, new)
    elif not any(constants) and shape(old.encoding)[0] == shape(new.encoding)[0]:
        compare_presence(ledger, spot, old.presence, new.presence)
        if not isinstance(old.encoding, Scalar | Array) or shape(old.encoding) == shape(new.encoding):
            label = new.encoding.name if new.referred else spot.path
            both = nullable or old.presence is new.presence is Presence.OPTIONAL
            compare_encodings(ledger, spot, old.encoding, new.encoding, label=label, nullable=both)
        if old.referred and new.referred:
            compare_type_names(ledger, spot, old.encoding, new.encoding)
    if old.name != new.name or (old.referred != new.referred and meaning(old.encoding) == meaning(new.encoding)):
        ledger.add("R96", spot, old=_origin(old), new=_origin(new))


def _origin(member: Member) -> str:
    return f"{member.name}, {f'a ref to {member.encoding.name}' if member.referred else 'defined in place'}"
