"""Draws the encodings of an SBE schema: types, constants, enums, sets and composites, each as XML and as `Known`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st

from tests.support.sbe.drawing import INTEGERS, SIZES, UNSIGNED, Known, Pen, tag

CHARSETS = (None, "US-ASCII", "UTF-8", "ISO-8859-1", "windows-1252", "ASCII")
_FLOAT_TEXTS = ("0", "-1.5", "1e3", "250000", "-0.0", "1.0E-3")
_MAX_DEPTH = 2

Drawn = tuple[str, Known]


def bounds(primitive: str) -> tuple[int, int]:
    """Return the smallest and largest value of an integer primitive."""
    bits = 8 * SIZES[primitive]
    return (0, 2**bits - 1) if primitive in UNSIGNED else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def scalar(pen: Pen, name: str, extra: dict[str, Any]) -> Drawn:
    """Draw a single-value type with random limits, null value and presence."""
    primitive = pen.pick(tuple(SIZES))
    attributes = {"name": name, "primitiveType": primitive, **extra}
    presence = pen.pick(["", "", "optional", "required"])
    if presence:
        attributes["presence"] = presence
    limited = primitive != "char" and pen.chance(25)
    if limited:
        attributes |= _limits(pen, primitive)
    if presence == "optional" and pen.chance(40):
        attributes["nullValue"] = _null(pen, primitive)
    if primitive == "char" and pen.chance(20):
        attributes["characterEncoding"] = pen.pick(CHARSETS[1:])
    if pen.chance(8):
        attributes["length"] = 1
    known = Known(name, "type", SIZES[primitive], primitive=primitive, limited=limited)
    known.null = attributes.get("nullValue")
    return tag("type", attributes), known


def _limits(pen: Pen, primitive: str) -> dict[str, Any]:
    if primitive in INTEGERS:
        low, high = bounds(primitive)
        lowest = pen.number(low, high - 1)
        return {"minValue": lowest, "maxValue": pen.number(lowest, high)}
    return {"minValue": pen.pick(["-1e6", "-0.1"]), "maxValue": pen.pick(["0.1", "1E+6"])}


def _null(pen: Pen, primitive: str) -> Any:
    if primitive == "char":
        return pen.pick(["Z", "~", "0"])
    return pen.number(*bounds(primitive)) if primitive in INTEGERS else pen.pick(_FLOAT_TEXTS)


def array(pen: Pen, name: str, extra: dict[str, Any]) -> Drawn:
    """Draw a multi-value type: text, or a list of numbers."""
    primitive = pen.pick(["char", "char", *SIZES])
    length = pen.number(2, 6)
    attributes = {"name": name, "primitiveType": primitive, "length": length, **extra}
    optional = pen.chance(30)
    if optional:
        attributes["presence"] = "optional"
        if primitive != "char" and pen.chance(40):
            attributes["nullValue"] = _null(pen, primitive)
    charset = pen.pick(CHARSETS) if primitive == "char" else None
    if charset:
        attributes["characterEncoding"] = charset
    return tag("type", attributes), Known(name, "type", length * SIZES[primitive], length=length, optional=optional)


def constant(pen: Pen, name: str, extra: dict[str, Any]) -> Drawn:
    """Draw a constant: its value as text or by reference to an enum."""
    primitive = pen.pick(tuple(SIZES))
    attributes = {"name": name, "primitiveType": primitive, "presence": "constant", **extra}
    enums = [known for known in pen.known if known.tag == "enum" and known.values and not known.since]
    text = ""
    if enums and pen.chance(40):
        enum = pen.pick(enums)
        attributes |= {"primitiveType": enum.primitive, "valueRef": f"{enum.name}.{pen.pick(enum.values)}"}
    elif primitive == "char":
        text = pen.pick(["A", "XLON", "a b", "é", "'quoted'"])
        if not text.isascii():
            attributes["characterEncoding"] = "UTF-8"
        if pen.chance(30):
            attributes["length"] = len(text.encode()) + pen.number(0, 2)
    elif primitive in INTEGERS:
        text = str(pen.number(*bounds(primitive)))
    else:
        text = pen.pick(_FLOAT_TEXTS)
    return tag("type", attributes, text=text), Known(name, "type", 0, primitive=primitive, constant=True)


def enum(pen: Pen, name: str, extra: dict[str, Any], since: int) -> Drawn:
    """Draw an enum over a primitive or an already defined type."""
    direct = ("char", "uint8", "int8", "int16", "uint16", "int32")
    encoding, primitive, default = _encoding_type(pen, (*direct, *(() if pen.kind.portable else INTEGERS)), since)
    attributes = {"name": name, "encodingType": encoding, **extra}
    raws, null = _raws(pen, primitive, default)
    optional = pen.chance(25)
    if optional:
        attributes["presence"] = "optional"
    if null is not None and (optional or pen.chance(20)):
        attributes["nullValue"] = null
    values, shared = [], []
    for raw in raws:
        value, age = pen.name("V"), pen.since(since) if shared else since
        values.append(tag("validValue", {"name": value, **pen.ages(age)}, text=str(raw)))
        shared += [value] if age == since else []
    known = Known(name, "enum", SIZES[primitive], since, primitive, values=shared, optional=optional)
    return tag("enum", attributes, *values), known


def _raws(pen: Pen, primitive: str, default: Any) -> tuple[list[Any], Any]:
    """Draw the values of an enum, none of them its type's null value; also a null value distinct from them."""
    if primitive == "char":
        return pen.draw(st.lists(st.sampled_from("ABCdef19%"), min_size=1, max_size=5, unique=True)), "#"
    low, high = bounds(primitive)
    inside = (low, high - 1) if primitive in UNSIGNED else (low + 1, high)
    null = inside[1]
    numbers = (st.integers(*inside) | st.integers(0, 9)).filter(lambda raw: raw not in {null, default})
    raws = pen.draw(st.lists(numbers, min_size=1, max_size=5, unique=True))
    return raws, null


def _encoding_type(pen: Pen, primitives: tuple[str, ...], since: int) -> tuple[str, str, Any]:
    """Draw a primitive or a type over one; also return the declared null value."""
    named = [
        known
        for known in pen.known
        if known.tag == "type" and known.length == 1 and not known.constant and not known.limited
        if known.primitive in primitives and known.since <= since
    ]
    if named and pen.chance(30):
        chosen = pen.pick(named)
        return chosen.name, chosen.primitive, chosen.null
    primitive = pen.pick(primitives)
    return primitive, primitive, None


def bits(pen: Pen, name: str, extra: dict[str, Any], since: int) -> Drawn:
    """Draw a set."""
    encoding, primitive, _ = _encoding_type(pen, UNSIGNED, since)
    numbers = pen.draw(st.lists(st.integers(0, 8 * SIZES[primitive] - 1), max_size=4, unique=True))
    choices = [
        tag("choice", {"name": pen.name("C"), **pen.ages(pen.since(since))}, text=str(number)) for number in numbers
    ]
    return tag("set", {"name": name, "encodingType": encoding, **extra}, *choices), Known(
        name, "set", SIZES[primitive], since, primitive
    )


def composite(pen: Pen, name: str, extra: dict[str, Any], since: int, depth: int = 0) -> Drawn:
    """Draw a composite: members of every kind, gaps, references, composites within."""
    members: list[str] = []
    taken: list[str] = []
    cursor, constants = 0, True
    for _ in range(pen.number(0, 4)):
        member = pen.name("m", taken)
        gap = pen.number(0, 5) if pen.chance(20) else None
        # a newer member would change the composite's size for readers of older versions
        age = since if pen.kind.evolving else pen.since(since)
        placed = pen.ages(age) | ({} if gap is None else {"offset": cursor + gap})
        text, known = _member(pen, member, placed, age, depth)
        members.append(text)
        cursor += (gap or 0) + known.size
        constants = constants and known.constant
    if pen.chance(10) and not constants:
        extra = {**extra, "presence": pen.pick(["required", "optional"])}
    return tag("composite", {"name": name, **extra}, *members), Known(name, "composite", cursor, since)


def _member(pen: Pen, name: str, placed: dict[str, Any], since: int, depth: int) -> Drawn:
    named = [known for known in pen.known if known.since <= since or not pen.kind.evolving]
    if named and pen.chance(35):
        target = pen.pick(named)
        return tag("ref", {"name": name, "type": target.name, **placed}), Known(
            name, target.tag, target.size, constant=target.constant
        )
    draw = pen.pick(("scalar", "scalar", "array", "constant", "enum", "set", "composite"))
    if draw == "composite" and depth < _MAX_DEPTH:
        return composite(pen, name, placed, since, depth + 1)
    if draw in {"enum", "set"}:
        return (enum if draw == "enum" else bits)(pen, name, placed, since)
    return {"array": array, "constant": constant}.get(draw, scalar)(pen, name, placed)


def definition(pen: Pen) -> str:
    """Draw a named encoding and register it."""
    name, since = pen.name("T"), pen.since()
    simple: tuple[Callable[..., Drawn], ...] = (scalar, array, constant)
    draw = pen.pick((*simple, enum, bits, composite, composite))
    extra = pen.ages(since)
    text, known = draw(pen, name, extra) if draw in simple else draw(pen, name, extra, since)
    known.since = since
    pen.known.append(known)
    return text
