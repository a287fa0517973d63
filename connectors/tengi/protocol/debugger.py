"""Prints bytes field by field, up to the one that does not parse.

::

       0  01                   boolean True
       1  ff9b                 short -101
       …
      39  00000003             int32 3
    TruncatedMessage: truncated at byte 43: 8 bytes are due, the bytes end after 0
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from silverfold.conf.errors import WireError
from silverfold.connectors.tengi.protocol.decoder import Decoder
from silverfold.connectors.tengi.protocol.registry import BUILT_IN, TypeRegistry

T = TypeVar("T")

_SHOWN: Final = 24
"""Bytes of a field that are shown, and characters of a value by four."""


class SerializationDebugger:
    """Explains bytes of packets and objects, user types among them.

    Args:
        types: User types, as those of the connection.
        max_fields: Most fields to print.
    """

    def __init__(self, types: TypeRegistry = BUILT_IN, *, max_fields: int = 10_000) -> None:
        self._types, self._max_fields = types, max_fields

    def explain_packet(self, octets: bytes) -> str:
        """Return the fields of a packet, one a line, and the error after them if there is one."""
        return self._explain(octets, _read_packet)

    def explain_object(self, octets: bytes) -> str:
        """Return the fields of an object, as `explain_packet`."""
        return self._explain(octets, Decoder.read_object)

    def _explain(self, octets: bytes, read: Callable[[Decoder], object]) -> str:
        decoder = _TracingDecoder(octets, self._types, limit=len(octets))
        try:
            read(decoder)
            decoder.check_end()
        except WireError as error:
            decoder.lines.append(f"{type(error).__name__}: {error}")
        left_out = len(decoder.lines) - self._max_fields
        if left_out > 0:
            decoder.lines[: -self._max_fields] = [f"… {left_out} fields before these are left out"]
        return "\n".join(decoder.lines)


def _read_packet(decoder: Decoder) -> None:
    if decoder.read_boolean():
        decoder.read_object()
    decoder.read_object()


class _TracingDecoder(Decoder):
    """Writes a line for each field that was read. Fields inside a field, such as the lengths of a text, have none."""

    def __init__(self, octets: bytes, types: TypeRegistry, *, limit: int) -> None:
        super().__init__(octets, types, limit=limit)
        self._simple = {}  # every field by its method
        self.lines: list[str] = []
        self._is_inside = False

    def trace(self, name: str, read: Callable[[], T]) -> T:
        """Return what a method reads, and write its line."""
        if self._is_inside:
            return read()
        at, self._is_inside = self.offset, True
        found = read()
        self._is_inside = False
        field = self._octets[at : self.offset]
        shown = field[:_SHOWN].hex() + ("…" if len(field) > _SHOWN else "")
        self.lines.append(f"{at:8}  {shown:20} {name} {repr(found)[: 4 * _SHOWN]}".replace("\n", ""))
        return found


def _traced(name: str) -> Callable[..., Any]:
    method = getattr(Decoder, f"read_{name}")
    return lambda decoder, *arguments: decoder.trace(name, lambda: method(decoder, *arguments))


_FIELDS: Final = (
    "byte",
    "unsigned_byte",
    "bytes",
    "short",
    "char",
    "int32",
    "compressed_int32",
    "int64",
    "compressed_int64",
    "float",
    "double",
    "boolean",
    "bitset",
    "short_array",
    "int32_array",
    "int64_array",
    "float_array",
    "double_array",
    "string",
    "identifier",
)
for _name in _FIELDS:
    setattr(_TracingDecoder, f"read_{_name}", _traced(_name))
