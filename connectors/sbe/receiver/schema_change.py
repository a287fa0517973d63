"""Describes the differences between the landed schema and the current one, as `connectors.wire.sbe.compare` does."""

from __future__ import annotations

from typing import Any

from silverfold.conf.errors import SchemaError
from silverfold.connectors.base import SourceChange
from silverfold.connectors.wire.sbe.compare.findings import Finding, values_text
from silverfold.connectors.wire.sbe.compare.schemas import compare
from silverfold.connectors.wire.sbe.schema.load import ACCEPTABLE, load_schema
from silverfold.connectors.wire.sbe.schema.model import Schema

_MOST = 50
"""Maximum number of changes that are listed."""


def source_change(before: bytes, now: Schema) -> SourceChange | None:
    """Return the result of `what_changed` as a message for users; None if only comments and the like changed."""
    changed = what_changed(before, now)
    if not changed["changes"]:
        return None
    first, last = changed.get("version_before", "?"), changed["version"]
    misread = ", and misreads what landed" if changed["breaks"] else ""
    return SourceChange(
        f"schema changed since it landed{misread}: version {first} → {last}", changed["changes"], changed["breaks"]
    )


def what_changed(before: bytes, now: Schema) -> dict[str, Any]:
    """Return the versions, the changes, and whether the new schema misreads messages that landed before.

    Args:
        before: XML of the earlier schema. If it cannot be read, the only change reported is that.
    """
    try:
        old = load_schema(before, file="the last schema", accept=ACCEPTABLE)
    except SchemaError as error:
        changes = [f"the last schema cannot be compared: {error.detail}"]
        return {"version": now.version, "breaks": False, "changes": changes}
    found = compare(old, now)
    lines = [_line(finding) for finding in found.findings]
    more = [f"and {len(lines) - _MOST} more"] if len(lines) > _MOST else []
    return {
        "version_before": old.version,
        "version": now.version,
        "breaks": found.breaks("backward"),
        "changes": [*lines[:_MOST], *more],
    }


def _line(finding: Finding) -> str:
    values = f": {text}" if (text := values_text(finding)) else ""
    return f"{finding.path}: {finding.title} ({finding.rule}){values}"
