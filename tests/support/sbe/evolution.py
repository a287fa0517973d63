"""Pairs of SBE schemas that differ in one change, with the expected findings, from tests/golden/sbe/evolution."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from silverfold.connectors.wire.sbe.compare.findings import Profile, Severity
from silverfold.connectors.wire.sbe.schema.load import load_schema
from silverfold.connectors.wire.sbe.schema.model import Schema

GOLDEN = Path(__file__).parents[2] / "golden" / "sbe" / "evolution"
LETTERS = {
    "B": Severity.BREAKING,
    "W": Severity.WARNING,
    "I": Severity.INFORMATION,
    "-": Severity.NONE,
}
Edits = Sequence[Sequence[str]]

_COUNTS = '<type name="numGroups" primitiveType="uint16"/><type name="numVarDataFields" primitiveType="uint16"/>'
_COUNTED = re.compile(r'<type name="(?:version|numInGroup)"[^>]*/>')


@dataclass(frozen=True)
class Case:
    """One change, as defined in cases.toml."""

    name: str
    change: str
    decides: list[str]
    backward: str
    forward: str
    beside: list[str] = field(default_factory=list)
    both: Edits = ()
    old: Edits = ()
    new: Edits = ()
    form: str = ""
    framed: bool = True
    renamed: dict[str, str] = field(default_factory=dict)

    @property
    def rules(self) -> list[str]:
        """Rule codes of all expected findings, sorted."""
        return sorted([*self.decides, *self.beside])

    def severities(self, profile: Profile) -> tuple[Severity, Severity]:
        """Return the worst severities backward and forward."""
        letters = (severity.split()[-1 if profile == "counted" else 0] for severity in (self.backward, self.forward))
        backward, forward = (LETTERS[letter] for letter in letters)
        return backward, forward

    def texts(self, profile: Profile) -> tuple[str, str]:
        """Return the XML of the old and of the new schema."""
        base = edited((GOLDEN / "base.xml").read_text("utf-8"), self.both)
        old, new = edited(base, self.old), edited(base.replace('version="1"', 'version="2"', 1), self.new)
        if profile == "classic" or self.form:
            return old, new
        return counted(old), counted(new)

    def schemas(self, profile: Profile) -> tuple[Schema, Schema]:
        """Return the old and the new schema."""
        return _loaded(*self.texts(profile))


@cache
def _loaded(old: str, new: str) -> tuple[Schema, Schema]:
    return load_schema(old.encode()), load_schema(new.encode())


def counted(text: str) -> str:
    """Return a schema whose header and dimensions count groups and data."""
    return _COUNTED.sub(rf"\g<0>{_COUNTS}", text)


def edited(text: str, edits: Edits) -> str:
    """Return the text with each edit applied at its first match."""
    for edit in edits:
        match edit:
            case [found, "+", more]:
                wanted, instead = found, found + more
            case ["+", more, found]:
                wanted, instead = found, more + found
            case [wanted, instead]:
                pass
        assert wanted in text, wanted
        text = text.replace(wanted, instead, 1)
    return text


def cases() -> list[Case]:
    """Return all cases of the file."""
    table = tomllib.loads((GOLDEN / "cases.toml").read_text("utf-8"))
    return [Case(name=name, **fields) for name, fields in table.items()]
