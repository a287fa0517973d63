"""Compares two versions of an SBE schema: what readers of one see of messages written with the other.

Elements are compared as resolved: types by their encodings, versions as effective. A schema's own claims about its
compatibility are ignored; everything follows from the two layouts.
"""

from __future__ import annotations

from collections.abc import Iterator

from silverfold.connectors.wire.sbe.compare.findings import Comparison, Profile
from silverfold.connectors.wire.sbe.compare.layouts import profile_of, same, structure_layout
from silverfold.connectors.wire.sbe.compare.ledger import SCHEMA_LOCATION, Ledger, Location
from silverfold.connectors.wire.sbe.compare.messages import compare_messages
from silverfold.connectors.wire.sbe.compare.texts import structure_text
from silverfold.connectors.wire.sbe.schema.model import Body, Composite, Encoding, Enum, Schema, Set

_ORDERS = {"<": "littleEndian", ">": "bigEndian"}
_AFTER_MESSAGES = 2


def compare(old: Schema, new: Schema, *, profile: Profile | None = None, framed: bool = True) -> Comparison:
    """Return all differences between two schemas, given in the order of publication.

    Args:
        profile: Whether messages carry the numbers of their groups and data. None: counted if the header and all
            dimensions in use of both schemas carry both counts, else classic.
        framed: The framing determines where messages end. False: they are packed back to back.
    """
    ledger = Ledger(old, new, profile or profile_of(old, new), framed)
    _compare_attributes(ledger)
    _compare_headers(ledger)
    compare_messages(ledger)
    _compare_unused(ledger)
    _compare_versions(ledger)
    return Comparison(ledger.profile, framed, ledger.findings(), new.version)


def _compare_attributes(ledger: Ledger) -> None:
    old, new = ledger.old, ledger.new
    if old.id != new.id:
        ledger.add("R1", SCHEMA_LOCATION, old=f"id {old.id}", new=f"id {new.id}")
    elif old.package != new.package:
        ledger.add("R2", SCHEMA_LOCATION, old=old.package, new=new.package)
    if old.byte_order != new.byte_order:
        ledger.add("R3", SCHEMA_LOCATION, old=_ORDERS[old.byte_order], new=_ORDERS[new.byte_order])


def _compare_headers(ledger: Ledger) -> None:
    old, new = ledger.old.header, ledger.new.header
    if structure_layout(old, named=True) != structure_layout(new, named=True):
        ledger.add("R4", SCHEMA_LOCATION, old=structure_text(old), new=structure_text(new))
    elif old.name != new.name:
        ledger.add("R4/name", SCHEMA_LOCATION, old=old.name, new=new.name)


def _compare_versions(ledger: Ledger) -> None:
    """Compare the versions of the schemas, after all other differences are known."""
    old, new = ledger.old, ledger.new
    versions = {"old": f"version {old.version}", "new": f"version {new.version}"}
    if new.version < old.version:
        ledger.add("R5", SCHEMA_LOCATION, **versions)
    elif new.version > old.version:
        if same(old, new):
            ledger.add("R8", SCHEMA_LOCATION, **versions)
    elif any(finding.touches_wire for finding in ledger.findings()):
        ledger.add("R6", SCHEMA_LOCATION, **versions)
    elif not (same(old, new) and _documentation(old) == _documentation(new)):
        ledger.add("R7", SCHEMA_LOCATION, **versions)


def _documentation(schema: Schema) -> tuple[str | None, str | None]:
    return schema.description, schema.semantic_version


def _compare_unused(ledger: Ledger) -> None:
    """Report changes of encodings that no message of either schema uses."""
    old, new = ledger.old.encodings, ledger.new.encodings
    used = {*_used(ledger.old), *_used(ledger.new)}
    names = [name for name in dict.fromkeys((*old, *new)) if name not in used]
    for index, name in enumerate(names):
        before, after = old.get(name), new.get(name)
        if before is None or after is None or not same(before, after):
            location = Location(name, (_AFTER_MESSAGES, index))
            texts = [None if each is None else type(each).__name__.lower() for each in (before, after)]
            ledger.add("R97", location, old=texts[0], new=texts[1])


def _used(schema: Schema) -> Iterator[str]:
    """Yield the names of the encodings that messages use, possibly repeated."""
    yield from _named(schema.header.composite)
    for message in schema.messages.values():
        yield from _used_in(message)


def _used_in(body: Body) -> Iterator[str]:
    for field in body.fields:
        yield from _named(field.encoding)
    for data in body.data:
        yield data.type_name
    for group in body.groups:
        yield from _named(group.dimensions.composite)
        yield from _used_in(group)


def _named(encoding: Encoding) -> Iterator[str]:
    yield encoding.name
    if isinstance(encoding, Enum | Set):
        yield encoding.encoding.name
    elif isinstance(encoding, Composite):
        for member in encoding.members:
            yield from _named(member.encoding)
