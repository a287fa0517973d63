"""Compares the old and the new version of a field: type, presence, meaning and documentation."""

from __future__ import annotations

from silverfold.connectors.wire.sbe.compare.encodings import compare_encodings, compare_type_names, may_be_null
from silverfold.connectors.wire.sbe.compare.ledger import Ledger, Location
from silverfold.connectors.wire.sbe.compare.texts import field_text
from silverfold.connectors.wire.sbe.compare.values import Nullable, compare_constants, compare_presence
from silverfold.connectors.wire.sbe.compare.versions import ElementVersions, compare_versions
from silverfold.connectors.wire.sbe.schema.model import Data, Field, Group, Message, Presence


def compare_fields(ledger: Ledger, location: Location, old: Field, new: Field) -> None:
    """Compare two fields paired by name or by offset."""
    if (old.name, old.id) != (new.name, new.id):
        ledger.add("R39", location, old=f"{old.name}, id {old.id}", new=f"{new.name}, id {new.id}")
    compare_remarks(ledger, location, old, new)
    compare_versions(
        ledger,
        location,
        ElementVersions(old.since_version, old.deprecated),
        ElementVersions(new.since_version, new.deprecated),
    )
    constants = [field.presence is Presence.CONSTANT for field in (old, new)]
    if all(constants):
        compare_constants(ledger, location, old, new)
        compare_type_names(ledger, location, old.encoding, new.encoding)
    elif any(constants):
        ledger.add("R28", location, old=field_text(old), new=field_text(new))
    else:
        _compare_wire_fields(ledger, location, old, new)


def _compare_wire_fields(ledger: Ledger, location: Location, old: Field, new: Field) -> None:
    nullable = Nullable(may_be_null(old), may_be_null(new))
    compare_presence(ledger, location, old.presence, new.presence, nullable)
    if (old.epoch, old.time_unit) != (new.epoch, new.time_unit):
        ledger.add("R33", location, old=_clock(old), new=_clock(new))
    compare_encodings(ledger, location, old.encoding, new.encoding, nullable, label=new.encoding.name)
    compare_type_names(ledger, location, old.encoding, new.encoding)


def compare_remarks(
    ledger: Ledger, location: Location, old: Message | Field | Group | Data, new: Message | Field | Group | Data
) -> None:
    """Compare the documentation attributes of an element that both schemas have."""
    before, after = _remarks(old), _remarks(new)
    for name in before:
        if before[name] != after[name]:
            ledger.add(
                "R40",
                location,
                old=before[name] and f"{name} {before[name]}",
                new=after[name] and f"{name} {after[name]}",
            )


def _remarks(element: Message | Field | Group | Data) -> dict[str, str | None]:
    extras = element.extras if isinstance(element, Field) else {}
    return {
        "semanticType": element.semantic_type,
        "description": element.description,
        "attributes": ", ".join(f"{name}={value}" for name, value in sorted(extras.items())) or None,
    }


def _clock(field: Field) -> str:
    return f"{field.time_unit} since {field.epoch}"
