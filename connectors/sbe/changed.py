"""Says what became of a schema since another one landed, in the words of `connectors.wire.sbe.compare`."""

from __future__ import annotations

from typing import Any

from conf.errors import SchemaError
from connectors.base import SourceChange
from connectors.wire.sbe.compare.findings import Finding, values_text
from connectors.wire.sbe.compare.schemas import compare
from connectors.wire.sbe.model import Schema
from connectors.wire.sbe.schema import ACCEPTABLE, load_schema

_MOST = 50
"""Changes that are told one by one."""


def source_change(before: bytes, now: Schema) -> SourceChange | None:
    """Return what `what_changed` does, for people; None when nothing did but comments and the like."""
    told = what_changed(before, now)
    if not told["changes"]:
        return None
    first, last = told.get("version_before", "?"), told["version"]
    misread = ", and misreads what landed" if told["breaks"] else ""
    return SourceChange(
        f"schema changed since it landed{misread}: version {first} → {last}", told["changes"], told["breaks"]
    )


def what_changed(before: bytes, now: Schema) -> dict[str, Any]:
    """Return the versions, whether messages that landed before are misread by the new schema, and what changed.

    Args:
        before: The earlier one's XML. If it cannot be read, that is all that is said.
    """
    try:
        old = load_schema(before, file="the last schema", accept=ACCEPTABLE)
    except SchemaError as error:
        told = [f"the last schema cannot be compared: {error.detail}"]
        return {"version": now.version, "breaks": False, "changes": told}
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
