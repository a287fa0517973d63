"""Draws the messages of an SBE schema, and the composites for headers, dimensions and lengths."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.support.sbe.drawing import SIZES, Known, Pen, tag
from tests.support.sbe.types import CHARSETS

_HEADER = ("blockLength", "templateId", "schemaId", "version")
_COUNTS = ("numGroups", "numVarDataFields")
_MAX_DEPTH = 2


class Layout(NamedTuple):
    """Composites used by the messages of a schema."""

    dimensions: tuple[str, ...]
    lengths: tuple[str, ...]
    counted: bool


def header(pen: Pen, name: str, schema_id: int, *, counted: bool) -> str:
    """Draw a message header: the four members and others, in any order and width, with gaps."""
    simple = pen.chance(50)
    members = list(_HEADER if simple else pen.shuffled(_HEADER))
    members += _COUNTS if counted else []
    if not simple and pen.chance(30):
        members.insert(pen.number(0, len(members)), "extra")
    written, cursor = [], 0
    for member in members:
        wide = not simple and pen.chance(30)
        wider = ["uint32"] if pen.kind.portable else ["uint32", "uint64"]
        signed = ["int16"] if member not in _COUNTS else []
        primitive = pen.pick([*wider, *([] if member == "blockLength" else [*signed, "uint8"])])
        attributes: dict[str, Any] = {"name": member, "primitiveType": primitive if wide else "uint16"}
        if not simple and pen.chance(15):
            cursor += pen.number(0, 3)
            attributes["offset"] = cursor
        constant = not simple and member == "schemaId" and pen.chance(15)
        if constant:
            attributes["presence"] = "constant"
        cursor += 0 if constant else SIZES[attributes["primitiveType"]]
        written.append(tag("type", attributes, text=str(schema_id) if constant else ""))
    return tag("composite", {"name": name}, *written)


def dimensions(pen: Pen, name: str, *, counted: bool) -> str:
    """Draw the dimensions of groups; if ``counted``, with the number of parts of an entry."""
    width = pen.pick(["uint16", "uint8", "uint32"])
    count: dict[str, Any] = {"name": "numInGroup", "primitiveType": width}
    if width == "uint32" or pen.chance(15):
        count["maxValue"] = pen.pick([5, 100])
    if pen.chance(10):
        count["minValue"] = pen.number(0, 1)
    if pen.chance(8):
        count |= {"primitiveType": "int8", "minValue": 0}
        count.pop("maxValue", None)
    length = {
        "name": "blockLength",
        "primitiveType": "uint32" if pen.chance(20) and not pen.kind.portable else "uint16",
    }
    members = [length, count]
    if not pen.kind.portable and pen.chance(20):
        members.reverse()
    if pen.chance(15):
        members[1]["offset"] = SIZES[str(members[0]["primitiveType"])] + pen.number(0, 5)
    written = [tag("type", member) for member in members]
    if counted:
        written += [tag("type", {"name": member, "primitiveType": "uint16"}) for member in _COUNTS]
    elif pen.chance(10):
        written.append(tag("type", {"name": "extra", "primitiveType": "int32"}))
    return tag("composite", {"name": name}, *written)


def length(pen: Pen, name: str) -> str:
    """Draw the composite of variable-length data."""
    width = pen.pick(["uint16", "uint8", "uint32"])
    number: dict[str, Any] = {"name": "length", "primitiveType": width}
    if width == "uint32" or pen.chance(15):
        number["maxValue"] = pen.pick([200, 9])
    bytes_member: dict[str, Any] = {"name": "varData", "primitiveType": pen.pick(["uint8", "char"]), "length": 0}
    if pen.chance(15) and not pen.kind.portable:
        bytes_member["name"] = "data"
    if pen.chance(10):
        del bytes_member["length"]
    if pen.chance(15):
        bytes_member["offset"] = SIZES[width] + pen.number(0, 3)
    charset = pen.pick((*CHARSETS, "UTF-16"))
    if charset:
        bytes_member["characterEncoding"] = charset
    return tag("composite", {"name": name}, tag("type", number), tag("type", bytes_member))


class _Body:
    """A body being drawn. In an evolving schema its parts are ordered by version."""

    def __init__(self, pen: Pen, layout: Layout, *, since: int, depth: int) -> None:
        self.pen, self.layout, self.since, self.depth = pen, layout, since, depth
        self.names: list[str] = []
        self.ages: list[int] = []
        """Effective sinceVersion of each part so far."""
        self.ids = 0
        self.cursor = 0

    def parts(self) -> list[str]:
        """Draw fields, groups and data."""
        pen = self.pen
        fields, age = [], 0
        for _ in range(pen.number(0, 4)):
            text, age = self._field(age)
            fields.append(text)
        groups: list[str] = []
        age = 0
        for _ in range(pen.number(0, 2 if self.depth < _MAX_DEPTH else 0)):
            text, age = self._group(age)
            groups.append(text)
        data: list[str] = []
        age = age if pen.kind.evolving and not self.layout.counted else 0
        for _ in range(pen.pick([0, 0, 1, 2])):
            text, age = self._data(age)
            data.append(text)
        return [*fields, *groups, *data]

    def _identity(self, stem: str) -> dict[str, Any]:
        self.ids += 1
        return {"name": self.pen.name(stem, self.names), "id": self.ids}

    def _since(self, lowest: int, *, part: bool) -> int:
        """Draw the sinceVersion of an element that follows one of version ``lowest``."""
        pen = self.pen
        if part and self.depth and pen.kind.evolving and not self.layout.counted:
            return self.since
        ordered = pen.kind.evolving or (part and self.layout.counted)
        return pen.since(max(lowest, self.since) if pen.kind.evolving else lowest if ordered else 0)

    def _field(self, age: int) -> tuple[str, int]:
        pen = self.pen
        since = self._since(age, part=False)
        attributes = self._identity("f")
        usable = [known for known in pen.known if not pen.kind.evolving or known.since <= since]
        if usable and pen.chance(75):
            known = pen.pick(usable)
        else:
            primitive = pen.pick(tuple(SIZES))
            known = Known(primitive, "type", SIZES[primitive], primitive=primitive)
        attributes |= {"type": known.name, **pen.ages(since), **self._presence(known, since)}
        size = 0 if known.constant or attributes.get("presence") == "constant" else known.size
        if pen.chance(15) and self.cursor:
            self.cursor += pen.number(0, 5)
            attributes["offset"] = self.cursor
        self.cursor += size
        if pen.chance(5):
            attributes |= {"epoch": "unix", "timeUnit": "microsecond", "semanticType": "UTCTimestamp"}
        self.ages.append(max(since, known.since))
        return tag("field", attributes), self.ages[-1] if size else age

    def _presence(self, known: Known, since: int) -> dict[str, Any]:
        pen = self.pen
        if known.tag == "enum" and known.values and pen.chance(20):
            return {"presence": "constant", "valueRef": f"{known.name}.{pen.pick(known.values)}"}
        if known.constant:
            return pen.pick([{}, {"presence": "constant"}])
        enums = [enum for enum in pen.known if enum.tag == "enum" and enum.values and enum.primitive == known.primitive]
        is_scalar = known.tag == "type" and known.length == 1
        if is_scalar and enums and pen.chance(10):
            enum = pen.pick(enums)
            if enum.since <= max(since, known.since):
                return {"presence": "constant", "valueRef": f"{enum.name}.{pen.pick(enum.values)}"}
        return pen.pick([{}, {}, {"presence": "optional"}, {"presence": "required"}])

    def _group(self, age: int) -> tuple[str, int]:
        pen = self.pen
        attributes = self._identity("g")
        since = self._since(age, part=True)
        body = _Body(pen, self.layout, since=since, depth=self.depth + 1)
        parts = body.parts()
        dimension = pen.pick(self.layout.dimensions)
        if dimension != "groupSizeEncoding" or pen.chance(20):
            attributes["dimensionType"] = dimension
        attributes |= pen.ages(since) | _block_length(pen, body.cursor)
        derived = min(body.ages, default=0)
        if derived != since and pen.kind.evolving and self.depth:
            attributes["sinceVersion"] = since
        self.ages.append(since if "sinceVersion" in attributes else derived)
        return tag("group", attributes, *parts), self.ages[-1]

    def _data(self, age: int) -> tuple[str, int]:
        since = self._since(age, part=True)
        attributes = {**self._identity("d"), "type": self.pen.pick(self.layout.lengths), **self.pen.ages(since)}
        self.ages.append(since)
        return tag("data", attributes), since


def _block_length(pen: Pen, content: int) -> dict[str, Any]:
    if pen.chance(30):
        return {"blockLength": 0 if pen.chance(20) else content + pen.number(0, 6)}
    return {}


def message(pen: Pen, layout: Layout, number: int, tag_name: str) -> str:
    """Draw a message with this template id."""
    body = _Body(pen, layout, since=0, depth=0)
    parts = body.parts()
    name = pen.known[0].name if pen.known and number == 1 and pen.chance(10) else pen.name("M")
    attributes = {"name": name, "id": number, **pen.ages(pen.since()), **_block_length(pen, body.cursor)}
    return tag(tag_name, attributes, *parts)
