"""What the strategies for SBE schemas share: choices drawn from hypothesis, versions, names, XML text."""

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
# What only a warning says no to, and the official tool at times more.
_NO_SYMBOLS = ("it's", 'a "b"', "{x}", "back\\slash", "naïve", "9", "a.b")
# Words that mean something to a reader written in Python, and the longest name there may be.
ODD_NAMES = ("class", "None", "body", "offset", "unpack", "SetValue", "v0", "k1", "mantissa", "length", "_", "x" * 64)


class Kind(NamedTuple):
    """What is drawn."""

    evolving: bool = False
    """Newer elements stand only where readers of an older version can pass them."""
    portable: bool = False
    """Nothing that the official tool refuses, as `tests.support.sbe_official` lists it, or cannot find its way in:
    headers of eight-byte integers, and dimensions with their count in front."""


@dataclass
class Known:
    """A definition that others may refer to. ``since`` is of the definition, ``size`` what it takes on the wire."""

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
    """Its nullValue, where it declares one."""
    values: Sequence[str] = ()
    """Names of an enum's values that every version has."""


@dataclass
class Pen:
    """Draws choices, and keeps what was defined so far."""

    draw: Any
    kind: Kind
    version: int = 0
    known: list[Known] = field(default_factory=list)
    names: int = 0
    taken: list[str] = field(default_factory=list)
    """Odd names already used where no other list of names was given."""

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
        """Return a name that is not in ``taken`` yet and put it there; in a small part of cases an odd one."""
        taken = self.taken if taken is None else taken
        self.names += 1
        odd = self.pick(ODD_NAMES if self.kind.portable else (*ODD_NAMES, *_NO_SYMBOLS)) if self.chance(6) else ""
        taken.append(odd if odd and odd not in taken else f"{stem}{self.names}")
        return taken[-1]

    def since(self, lowest: int = 0) -> int:
        """Draw a version from ``lowest`` to the schema's."""
        return self.number(lowest, self.version) if self.chance(35) else lowest

    def ages(self, since: int) -> dict[str, Any]:
        """Return the attributes for an element of this version, now and then deprecated later."""
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
