"""Compares the encodings of a field or of a composite's member, down to single enum values and set choices."""

from __future__ import annotations

from silverfold.connectors.wire.sbe.compare.layouts import kind, meaning, shape
from silverfold.connectors.wire.sbe.compare.ledger import Ledger, Location
from silverfold.connectors.wire.sbe.compare.named_values import compare_enums, compare_sets
from silverfold.connectors.wire.sbe.compare.pairing import Blocks, pair_blocks
from silverfold.connectors.wire.sbe.compare.texts import composite_text, encoding_text
from silverfold.connectors.wire.sbe.compare.values import Nullable, compare_constants, compare_presence, compare_values
from silverfold.connectors.wire.sbe.compare.versions import (
    ElementVersions,
    check_new_versions,
    compare_deprecation,
    compare_versions,
)
from silverfold.connectors.wire.sbe.schema.model import (
    Array,
    Composite,
    Encoding,
    Enum,
    Field,
    Member,
    Presence,
    Scalar,
    Set,
)


def compare_encodings(
    ledger: Ledger, location: Location, old: Encoding, new: Encoding, nullable: Nullable, *, label: str
) -> None:
    """Compare the old and the new encoding of an element.

    Args:
        location: Location of the element.
        label: Name of the new encoding in findings: its own, or the member's path if it has none.
    """
    at = location.encoding(label)
    _compare_remarks(ledger, at, old, new)
    match old, new:
        case Scalar() | Array(), Scalar() | Array() if shape(old) == shape(new):
            compare_values(ledger, location, old, new, nullable)
        case Enum(), Enum():
            compare_enums(ledger, at, old, new)
        case Set(), Set():
            compare_sets(ledger, at, old, new)
        case Composite(), Composite():
            _compare_composites(ledger, at, old, new, nullable)
        case _:
            ledger.add("R27", location, old=encoding_text(old), new=encoding_text(new))


def compare_type_names(ledger: Ledger, location: Location, old: Encoding, new: Encoding) -> None:
    """Compare the names of an element's types; a difference counts only if they are equal otherwise."""
    if old.name != new.name and meaning(old) == meaning(new):
        ledger.add("R41", location, old=old.name, new=new.name)


def _compare_remarks(ledger: Ledger, location: Location, old: Encoding, new: Encoding) -> None:
    if old.name != new.name:
        return
    old_remarks, new_remarks = old.remarks, new.remarks
    if (old_remarks.description, old_remarks.semantic_type) != (new_remarks.description, new_remarks.semantic_type):
        ledger.add(
            "R40",
            location,
            old=old_remarks.semantic_type or old_remarks.description,
            new=new_remarks.semantic_type or new_remarks.description,
        )
    compare_deprecation(
        ledger,
        location,
        ElementVersions(old.since_version, old_remarks.deprecated),
        ElementVersions(new.since_version, new_remarks.deprecated),
    )


def _compare_composites(ledger: Ledger, location: Location, old: Composite, new: Composite, nullable: Nullable) -> None:
    blocks = pair_blocks(old.members, new.members, ledger.old.version)
    added = [member for member in blocks.added if member.presence is not Presence.CONSTANT]
    if old.size != new.size or not _preserves_layout(blocks):
        ledger.add("R93", location, old=composite_text(old), new=composite_text(new))
    else:
        for member in added:
            is_versioned = ledger.is_versioned(member.since_version)
            description = f"{encoding_text(member.encoding)} at {member.offset}"
            ledger.add("R94" if is_versioned else "R94/unversioned", location.at(member.name), new=description)
            check_new_versions(
                ledger, location.at(member.name), ElementVersions(member.since_version, member.deprecated)
            )
    _compare_constant_members(ledger, location, blocks)
    for before, after in blocks.pairs:
        inherited = Nullable(nullable.old and before is _first(old), nullable.new and after is _first(new))
        _compare_members(ledger, location.at(after.name), before, after, inherited)


def _preserves_layout(blocks: Blocks[Member]) -> bool:
    """Return whether all members with bytes still have the same offset and layout."""
    if any(member.presence is not Presence.CONSTANT for member in blocks.removed):
        return False
    return all(_member_layout(old) == _member_layout(new) for old, new in blocks.pairs)


def _member_layout(member: Member) -> tuple[object, ...]:
    """Return a member's offset and shape; only kind and size of enums, sets and composites, which are compared too."""
    if member.presence is Presence.CONSTANT:
        return ("constant",)
    encoding = member.encoding
    is_simple = isinstance(encoding, Scalar | Array)
    return member.offset, shape(encoding) if is_simple else (kind(encoding), encoding.size)


def may_be_null(part: Field | Member) -> bool:
    """Return whether a field or member may be null: by its presence, or as a composite by that of its first member."""
    first = _first(part.encoding) if isinstance(part.encoding, Composite) else None
    return part.presence is Presence.OPTIONAL or (first is not None and may_be_null(first))


def _first(composite: Composite) -> Member | None:
    """Return the member that determines whether the composite is null."""
    return next((member for member in composite.members if member.presence is not Presence.CONSTANT), None)


def _compare_constant_members(ledger: Ledger, location: Location, blocks: Blocks[Member]) -> None:
    for member in blocks.removed:
        if member.presence is Presence.CONSTANT:
            ledger.add("R95/removed", location.at(member.name), old=member.constant)
    for member in blocks.added:
        if member.presence is Presence.CONSTANT:
            ledger.add("R95/added", location.at(member.name), new=member.constant)


def _compare_members(ledger: Ledger, location: Location, old: Member, new: Member, inherited: Nullable) -> None:
    compare_versions(
        ledger,
        location,
        ElementVersions(old.since_version, old.deprecated),
        ElementVersions(new.since_version, new.deprecated),
    )
    if old.description != new.description:
        ledger.add("R40", location, old=old.description, new=new.description)
    constants = [member.presence is Presence.CONSTANT for member in (old, new)]
    if all(constants):
        compare_constants(ledger, location, old, new)
    elif not any(constants) and shape(old.encoding)[0] == shape(new.encoding)[0]:
        nullable = Nullable(inherited.old or may_be_null(old), inherited.new or may_be_null(new))
        compare_presence(ledger, location, old.presence, new.presence, nullable)
        if not isinstance(old.encoding, Scalar | Array) or shape(old.encoding) == shape(new.encoding):
            label = new.encoding.name if new.referred else location.path
            compare_encodings(ledger, location, old.encoding, new.encoding, nullable, label=label)
        if old.referred and new.referred:
            compare_type_names(ledger, location, old.encoding, new.encoding)
    if old.name != new.name or (old.referred != new.referred and meaning(old.encoding) == meaning(new.encoding)):
        ledger.add("R96", location, old=_origin(old), new=_origin(new))


def _origin(member: Member) -> str:
    return f"{member.name}, {f'a ref to {member.encoding.name}' if member.referred else 'defined in place'}"
