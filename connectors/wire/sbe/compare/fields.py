"""Compares the old and the new version of a field: type, presence, meaning and documentation."""

from __future__ import annotations

from connectors.wire.sbe.compare.encodings import compare_encodings, compare_type_names
from connectors.wire.sbe.compare.ledger import Ledger, Location
from connectors.wire.sbe.compare.texts import field_text
from connectors.wire.sbe.compare.values import compare_constants, compare_presence
from connectors.wire.sbe.compare.versions import Age, compare_ages
from connectors.wire.sbe.model import Data, Field, Group, Message, Presence


def compare_fields(ledger: Ledger, spot: Location, old: Field, new: Field) -> None:
    """Compare two fields paired by name or by offset."""
    if (old.name, old.id) != (new.name, new.id):
        ledger.add("R39", spot, old=f"{old.name}, id {old.id}", new=f"{new.name}, id {new.id}")
    compare_remarks(ledger, spot, old, new)
    compare_ages(ledger, spot, Age(old.since_version, old.deprecated), Age(new.since_version, new.deprecated))
    constants = [field.presence is Presence.CONSTANT for field in (old, new)]
    if all(constants):
        compare_constants(ledger, spot, old, new)
        compare_type_names(ledger, spot, old.encoding, new.encoding)
    elif any(constants):
        ledger.add("R28", spot, old=field_text(old), new=field_text(new))
    else:
        _compare_wire_fields(ledger, spot, old, new)


def _compare_wire_fields(ledger: Ledger, spot: Location, old: Field, new: Field) -> None:
    compare_presence(ledger, spot, old.presence, new.presence)
    if (old.epoch, old.time_unit) != (new.epoch, new.time_unit):
        ledger.add("R33", spot, old=_clock(old), new=_clock(new))
    nullable = old.presence is new.presence is Presence.OPTIONAL
    label = new.encoding.name
    compare_encodings(ledger, spot, old.encoding, new.encoding, label=label, nullable=nullable)
    compare_type_names(ledger, spot, old.encoding, new.encoding)


def compare_remarks(
    ledger: Ledger, spot: Location, old: Message | Field | Group | Data, new: Message | Field | Group | Data
) -> None:
    """Compare the documentation attributes of an element that both schemas have."""
    before, after = _remarks(old), _remarks(new)
    for name in before:
        if before[name] != after[name]:
            ledger.add(
                "R40", spot, old=before[name] and f"{name} {before[name]}", new=after[name] and f"{name} {after[name]}"
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
