"""A strategy that draws the values of a message, as `decode` returns them, for any schema."""

from __future__ import annotations

import math
import struct
from typing import Any

import hypothesis.strategies as st

from silverfold.connectors.wire.sbe.codec.values import SetValue
from silverfold.connectors.wire.sbe.schema.model import (
    Array,
    Body,
    Composite,
    Data,
    Encoding,
    Enum,
    Field,
    Group,
    Member,
    Message,
    Presence,
    Primitive,
    Scalar,
    Schema,
    Set,
)

_FLOATS = {Primitive.FLOAT: 32, Primitive.DOUBLE: 64}
_CODECS = {"utf-16": "utf-16-be", None: "ascii"}
_LETTERS = st.characters(min_codepoint=1, max_codepoint=0x2FFF, exclude_categories=["Cs"])


@st.composite
def messages(draw: st.DrawFn, schema: Schema, *, tolerant: bool = False) -> tuple[str, dict[str, Any]]:
    """Draw a message's name and its values. If ``tolerant``, include values that only readers must accept: unlisted raw
    values and bits, numbers beyond their limits, null in required fields."""
    message: Message = draw(st.sampled_from(list(schema.messages.values())))
    return message.name, Values(draw, tolerant=tolerant).body(message)


class Values:
    """Draws values, encoding by encoding."""

    def __init__(self, draw: st.DrawFn, *, tolerant: bool) -> None:
        self._draw, self._tolerant = draw, tolerant

    def body(self, body: Body) -> dict[str, Any]:
        """Draw a value for each field, group and data."""
        values = {field.name: self._part(field, nullable=False) for field in body.fields}
        values |= {group.name: self._group(group) for group in body.groups}
        return values | {data.name: self._data(data) for data in body.data}

    def _group(self, group: Group) -> list[dict[str, Any]]:
        role = group.dimensions.roles["numInGroup"]
        count = self._draw(st.integers(role.minimum, min(role.maximum, role.minimum + 3)))
        return [self.body(group) for _ in range(count)]

    def _data(self, data: Data) -> str | bytes:
        limit = min(data.length.maximum, 20)
        return self._draw(st.binary(max_size=limit)) if data.charset is None else self._text(data.charset, limit)

    def _text(self, charset: str | None, limit: int, *, nul: bool = True) -> str:
        codec = _CODECS.get(charset.lower() if charset else None, charset) or "ascii"
        letters = st.characters(min_codepoint=0, max_codepoint=127) if nul else st.characters(max_codepoint=127)
        drawn = self._draw(st.text(letters | _LETTERS, max_size=limit))
        encoded = drawn.encode(codec, "ignore")
        text = encoded[:limit].decode(codec, "ignore")
        return text if nul else text.replace("\0", "")

    def _part(self, part: Field | Member, *, nullable: bool) -> Any:
        """Draw the value of a field or member; ``nullable`` if its null value makes its composite null."""
        if part.presence is Presence.CONSTANT:
            return part.constant
        return self.value(part.encoding, optional=nullable or part.presence is Presence.OPTIONAL)

    def value(self, encoding: Encoding, *, optional: bool) -> Any:
        """Draw a value, including None if it may be null."""
        match encoding:
            case Composite():
                return self._composite(encoding, optional=optional)
            case Set():
                return self._set(encoding)
            case Enum():
                return self._enum(encoding, optional=optional)
            case _ if optional and self._draw(st.integers(0, 3)) == 3:
                return None
            case Array():
                return self._array(encoding, optional=optional)
            case Scalar():
                return self._scalar(encoding, optional=optional)

    def _composite(self, composite: Composite, *, optional: bool) -> dict[str, Any]:
        values = {}
        for member in composite.members:
            values[member.name] = self._part(member, nullable=optional)
            optional = optional and member.presence is Presence.CONSTANT
        return values

    def _set(self, encoding: Set) -> SetValue:
        bits = range(8 * encoding.size) if self._tolerant else list(encoding.choices)
        drawn = self._draw(st.lists(st.sampled_from(bits), unique=True)) if bits else []
        return SetValue(sum(1 << bit for bit in drawn), encoding.choices)

    def _enum(self, enum: Enum, *, optional: bool) -> Any:
        choices: list[Any] = [*enum.values.values(), *([None] if optional or self._tolerant else [])]
        if self._tolerant:
            raw = self._draw(st.integers(*_bytes_hold(enum.encoding.primitive)))
            if raw not in enum.values and raw != enum.null:
                choices.append(chr(raw) if enum.encoding.primitive is Primitive.CHAR else raw)
        return self._draw(st.sampled_from(choices))

    def _array(self, array: Array, *, optional: bool) -> Any:
        if array.element.primitive is Primitive.CHAR:
            text = self._text(array.charset, array.count, nul=False)
            return text or (None if optional else "")
        numbers = [
            None if optional and self._draw(st.integers(0, 3)) == 3 else self._scalar(array.element, optional=optional)
            for _ in range(array.count)
        ]
        return None if all(number is None for number in numbers) else numbers

    def _scalar(self, scalar: Scalar, *, optional: bool) -> Any:
        if scalar.primitive is Primitive.CHAR:
            codes = st.integers(int(scalar.minimum), int(scalar.maximum)).filter(lambda code: code != scalar.null)
            return chr(self._draw(codes))
        if scalar.primitive in _FLOATS:
            return self._draw(self._floats(scalar, optional=optional))
        lowest, highest = _bytes_hold(scalar.primitive) if self._tolerant else (scalar.minimum, scalar.maximum)
        numbers = st.integers(int(lowest), int(highest)) | st.sampled_from([int(lowest), int(highest)])
        if optional and lowest == highest == scalar.null:
            return None
        return self._draw(numbers.filter(lambda number: not optional or number != scalar.null))

    def _floats(self, scalar: Scalar, *, optional: bool) -> st.SearchStrategy[float]:
        width = _FLOATS[scalar.primitive]
        code = "f" if width == 32 else "d"
        null = struct.unpack(code, struct.pack(code, scalar.null))[0]
        limited = abs(scalar.minimum) < 1e30 and not self._tolerant
        numbers = st.floats(width=width)
        if limited:
            lowest, highest = (struct.unpack(code, struct.pack(code, n))[0] for n in (scalar.minimum, scalar.maximum))
            numbers = st.floats(lowest, highest, width=width) | st.sampled_from([lowest, highest])
        if optional and math.isnan(null):
            return numbers.filter(lambda number: not math.isnan(number))
        return numbers.filter(lambda number: not optional or number != null).map(_canonical_nan)


def _bytes_hold(primitive: Primitive) -> tuple[int, int]:
    if primitive is Primitive.CHAR:
        return 0, 255
    bits = int(primitive.value.lstrip("uint"))
    return (0, 2**bits - 1) if primitive.value[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _canonical_nan(number: float) -> float:
    """Return the canonical NaN, whose bytes survive any copy."""
    return math.nan if math.isnan(number) else number


def comparable(value: Any) -> Any:
    """Return a form that compares by encoded bytes: NaN equals NaN, and zeros keep their sign."""
    match value:
        case float():
            return ("float", repr(value))
        case dict():
            return {name: comparable(element) for name, element in value.items()}
        case list():
            return [comparable(element) for element in value]
        case _:
            return value
