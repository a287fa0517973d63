"""Compares the messages of two schemas, and their bodies including nested groups."""

from __future__ import annotations

from silverfold.connectors.wire.sbe.compare.blocks import Strays, compare_blocks
from silverfold.connectors.wire.sbe.compare.fields import compare_remarks
from silverfold.connectors.wire.sbe.compare.findings import Severity
from silverfold.connectors.wire.sbe.compare.ledger import Ledger, Location
from silverfold.connectors.wire.sbe.compare.pairing import pair_messages
from silverfold.connectors.wire.sbe.compare.parts import compare_data, compare_groups
from silverfold.connectors.wire.sbe.compare.versions import (
    ElementVersions,
    check_new_body,
    check_new_versions,
    compare_deprecation,
    compare_order,
)
from silverfold.connectors.wire.sbe.schema.model import Body, Message


def compare_messages(ledger: Ledger) -> None:
    """Compare all messages of both schemas."""
    paired = pair_messages(ledger.old.messages.values(), ledger.new.messages.values())
    for old, new in paired.pairs:
        _compare_pair(ledger, old, new)
    for old, new in paired.renumbered:
        ledger.add("R13", _location(new, old.id), old=f"template {old.id}", new=f"template {new.id}")
    for message in paired.removed:
        deprecated = "" if message.deprecated is None else "/deprecated"
        ledger.add(f"R12{deprecated}", _location(message, message.id), old=_text(message))
    for message in paired.added:
        _add(ledger, message)


def _location(message: Message, order: int) -> Location:
    return Location(message.name, (1, order), message.name)


def _text(message: Message) -> str:
    return f"template {message.id}"


def _add(ledger: Ledger, message: Message) -> None:
    location = _location(message, message.id)
    ledger.add("R10" if ledger.framed else "R10/unframed", location, new=_text(message))
    if not ledger.is_versioned(message.since_version):
        ledger.add("R11", location, new=f"since {message.since_version}")
    check_new_versions(ledger, location, ElementVersions(message.since_version, message.deprecated))
    check_new_body(ledger, location, message)


def _compare_pair(ledger: Ledger, old: Message, new: Message) -> None:
    """Compare two messages with the same template id. A reused id is reported instead of all differences."""
    location = _location(new, new.id)
    inside = ledger.fork()
    strays = Strays(inside)
    _compare_bodies(inside, location, old, new, strays)
    strays.report()
    names = {"old": f"{old.name}, template {old.id}", "new": f"{new.name}, template {new.id}"}
    if old.name != new.name:
        breaks = [finding for finding in inside.findings() if finding.worst is Severity.BREAKING]
        if breaks:
            ledger.add("R14", location, **names, first=f"{breaks[0].rule} at {breaks[0].path} ({breaks[0].title})")
            return
        if ledger.is_versioned(new.since_version):
            ledger.add("R14/alike", location, **names)
            return
        taken = new.name in ledger.old.messages or old.name in ledger.new.messages
        ledger.add("R15/taken" if taken else "R15", location, **names)
    ledger.merge(inside)
    compare_remarks(ledger, location, old, new)
    if old.since_version != new.since_version:
        ledger.add("R16", location, old=old.since_version, new=new.since_version)
    versions = ElementVersions(old.since_version, old.deprecated), ElementVersions(new.since_version, new.deprecated)
    compare_deprecation(ledger, location, *versions)


def _compare_bodies(ledger: Ledger, location: Location, old: Body, new: Body, strays: Strays) -> None:
    compare_order(ledger, location, old, new)
    compare_blocks(ledger, location, old, new, strays)
    for at, before, after in compare_groups(ledger, location, old, new):
        _compare_bodies(ledger, at, before, after, strays)
    compare_data(ledger, location, old, new)
