"""Shared parts of the SBE schema strategies: hypothesis choices, versions, names, XML text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar
from xml.sax.saxutils import escape, quoteattr

import hypothesis.strategies as st

_T = TypeVar("_T")

SIZES = {
    "char": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "uint64": 8,
    "float": 4,
    "double": 8,
}
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = ("int8", "int16", "int32", "int64", *UNSIGNED)
# Names that only cause a warning; the official tool rejects some of them.
_NO_SYMBOLS = ("it's", 'a "b"', "{x}", "back\\slash", "naïve", "9", "a.b")
# Names with a meaning in Python, and a name of the maximum length.
ODD_NAMES = ("class", "None", "body", "offset", "unpack", "SetValue", "v0", "k1", "mantissa", "length", "_", "x" * 64)


class Kind(NamedTuple):
    """Options of the drawn schema."""

    evolving: bool = False
    """Newer elements occur only where readers of an older version can skip them."""
    portable: bool = False
    """Nothing that the official tool rejects (listed in `tests.support.sbe.official`) or misreads: headers with
    eight-byte integers, and dimensions that begin with the count."""


@dataclass
class Known:
    """A definition that others may refer to. ``since``: its sinceVersion; ``size``: its bytes on the wire."""

    name: str
    tag: str
    size: int
    since: int = 0
    primitive: str = ""
    constant: bool = False
    length: int = 1
    limited: bool = False
    optional: bool = False
    null: Any = None
    """Its nullValue, if it declares one."""
    values: Sequence[str] = ()
    """Names of the enum values that exist in every version."""


@dataclass
class Pen:
    """Draws choices, and records the definitions so far."""

    draw: Any
    kind: Kind
    version: int = 0
    known: list[Known] = field(default_factory=list)
    names: int = 0
    taken: list[str] = field(default_factory=list)
    """Odd names already used, for callers that pass no list of names."""

    def chance(self, percent: int) -> bool:
        """Draw whether to do something; shrinks to not doing it."""
        return bool(self.draw(st.integers(0, 99)) >= 100 - percent)

    def pick(self, choices: Sequence[_T]) -> _T:
        """Draw one of the choices; shrinks to the first."""
        return choices[self.draw(st.integers(0, len(choices) - 1))]

    def number(self, lowest: int, highest: int) -> int:
        """Draw an integer, both ends included; shrinks towards 0 or the lowest."""
        return int(self.draw(st.integers(lowest, highest)))

    def shuffled(self, choices: Sequence[_T]) -> list[_T]:
        """Draw an order."""
        return list(self.draw(st.permutations(choices)))

    def name(self, stem: str, taken: list[str] | None = None) -> str:
        """Return a name that is not in ``taken``, and add it; in a few cases an odd one."""
        taken = self.taken if taken is None else taken
        self.names += 1
        odd = self.pick(ODD_NAMES if self.kind.portable else (*ODD_NAMES, *_NO_SYMBOLS)) if self.chance(6) else ""
        taken.append(odd if odd and odd not in taken else f"{stem}{self.names}")
        return taken[-1]

    def since(self, lowest: int = 0) -> int:
        """Draw a version from ``lowest`` to that of the schema."""
        return self.number(lowest, self.version) if self.chance(35) else lowest

    def ages(self, since: int) -> dict[str, Any]:
        """Return the attributes of an element of this version, sometimes deprecated later."""
        attributes: dict[str, Any] = {"sinceVersion": since} if since or self.chance(5) else {}
        if self.chance(8):
            attributes["deprecated"] = self.number(since, self.version)
        if self.chance(8):
            attributes["description"] = self.pick(["", "what it is", 'quoted "so" & <so>'])
        return attributes


def tag(name: str, attributes: dict[str, Any], *content: str, text: str = "") -> str:
    """Return an element as XML."""
    written = "".join(f" {key}={quoteattr(str(value))}" for key, value in attributes.items())
    inner = "\n".join(content) + escape(text)
    return f"<{name}{written}>{inner}</{name}>" if inner else f"<{name}{written}/>"
