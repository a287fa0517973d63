"""Laws of the codec: values survive, limits come before memory, any bytes give values or an error of ours."""

from __future__ import annotations

import math
import struct
import uuid
from enum import Enum
from typing import Any, Self

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from silverfold.conf.errors import InvalidValue, OversizedMessage, TruncatedMessage, WireError
from silverfold.connectors.tengi.protocol import (
    Byte,
    Char,
    Decoder,
    Encoder,
    EnumerableValue,
    EnumValue,
    FilterResult,
    Float,
    Identifier,
    Int,
    Marshallable,
    Marshaller,
    Message,
    Packet,
    Short,
    TypeRegistry,
)
from silverfold.connectors.tengi.protocol.debugger import SerializationDebugger
from silverfold.connectors.tengi.protocol.errors import UnknownType
from silverfold.connectors.tengi.protocol.scanner import PacketScanner, object_end
from silverfold.connectors.tengi.protocol.simple_messages import PacketEnds, message_end
from tests.support.tengi.vectors import TYPES, VECTORS, Point, Row, SubPacket, read_point, write_point, written

ID = Identifier(bytes(range(16)))
TEXTS = st.text(st.characters(exclude_categories=()), max_size=40)
SCALARS = st.one_of(
    st.integers(-128, 127).map(Byte),
    st.integers(-(1 << 15), (1 << 15) - 1).map(Short),
    st.integers(-(1 << 31), (1 << 31) - 1).map(Int),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(0, 0xFFFF).map(chr).map(Char),
    st.floats(width=32, allow_nan=False).map(Float),
    st.floats(allow_nan=False),
    TEXTS,
    st.binary(max_size=40),
    st.binary(min_size=16, max_size=16).map(Identifier),
    st.sampled_from([EnumValue(10, "UPDATE"), EnumerableValue(11, -2), Point(1, 2), SubPacket("s", 3)]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.builds(Packet, TEXTS, st.dictionaries(TEXTS, inner, max_size=4)),
        st.builds(Message, st.just(ID), inner),
        st.builds(Row, st.integers(-9, 9), TEXTS, inner, st.just((True,))),
    ),
    max_leaves=12,
)


@given(VALUES)
def test_a_value_read_is_written_as_it_came(value: Any) -> None:
    octets = written(value)
    decoder = Decoder(octets, TYPES)
    assert written(decoder.read_object()) == octets
    decoder.check_end()
    assert object_end(b"x" + octets + b"y", 1, TYPES) == len(octets) + 1


@given(st.binary(max_size=120), st.sampled_from([each["hex"] for each in VECTORS["objects"] if "hex" in each]))
def test_any_bytes_give_a_value_or_an_error_of_ours(tail: bytes, start: str) -> None:
    for octets in (tail, bytes.fromhex(start)[:12] + tail):
        for read in (lambda: Decoder(octets, TYPES).read_object(), lambda: object_end(octets, 0, TYPES)):  # noqa: B023 - called at once
            try:
                read()
            except WireError:
                continue
        assert SerializationDebugger(TYPES).explain_object(octets)


@given(
    st.dictionaries(TEXTS, VALUES, max_size=4), st.integers(0, 200), st.binary(max_size=4), st.sampled_from([90, 9999])
)
def test_a_packet_whole_is_judged_as_one_in_pieces(values: dict[str, Any], at: int, change: bytes, limit: int) -> None:
    octets = bytearray(b"\1" + written(ID) + written(Message(ID, Packet("p", values))))
    octets[at : at + len(change)] = change

    def judged(size: int) -> tuple[bytes | None, type[WireError] | None]:
        scanner, found = PacketScanner(TYPES, limit=limit), None
        try:
            for start in range(0, len(octets), size):
                scanner.receive(bytes(octets[start : start + size]))
                found = found or scanner.next_packet()
        except WireError as error:
            return found, type(error)
        return found, None

    assert judged(1) == judged(len(octets))


@given(
    st.dictionaries(TEXTS, VALUES, max_size=4), st.integers(0, 200), st.binary(min_size=1, max_size=4), st.booleans()
)
def test_the_end_of_a_packet_does_not_depend_on_those_before(
    values: dict[str, Any], at: int, change: bytes, is_message: bool
) -> None:
    packet = Packet("p", {"t": "text", "n": 1, "row": Packet("row", values)})
    octets = written(Message(ID, packet) if is_message else packet)
    changed = octets[:at] + change + octets[at + len(change) :]
    ends = PacketEnds()
    for each in (octets, changed, changed + b"more", changed[:-1], octets):
        assert ends.find(each, 0, b"") == message_end(each, 0, b"")


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.lists(st.booleans(), max_size=200), TEXTS, st.integers(16380, 16390))
def test_fields_come_back(number: int, bits: list[bool], text: str, size: int) -> None:
    encoder = Encoder()
    encoder.write_compressed_int64(number)
    encoder.write_bitset(bits)
    encoder.write_string(text)
    encoder.write_string("\U0001f600" * (size // 2) + text)
    decoder = Decoder(encoder.to_bytes())
    assert decoder.read_compressed_int64() == number
    assert decoder.read_bitset() == (bits or None)
    assert decoder.read_string() == joined(text)
    assert decoder.read_string() == joined("\U0001f600" * (size // 2) + text)


ARRAYS = {
    "short": ("h", st.integers(-(1 << 15), (1 << 15) - 1)),
    "int32": ("i", st.integers(-(1 << 31), (1 << 31) - 1)),
    "int64": ("q", st.integers(-(1 << 63), (1 << 63) - 1)),
    "float": ("f", st.floats(width=32)),
    "double": ("d", st.floats()),
}
"""Arrays of numbers: code of `struct`, and values."""


@pytest.mark.parametrize("name", ARRAYS)
@given(chosen=st.data())
def test_arrays_are_their_numbers_one_after_another(name: str, chosen: st.DataObject) -> None:
    code, values = ARRAYS[name]
    numbers = chosen.draw(st.lists(values, max_size=50))
    expected = struct.pack(f">{len(numbers)}{code}", *numbers)
    for given_as in (list, tuple, lambda each: np.array(each, code), lambda each: np.array(each, f">{code}")):
        encoder = Encoder()
        getattr(encoder, f"write_{name}_array")(given_as(numbers))
        assert encoder.to_bytes() == expected
    decoder = Decoder(b"x" + expected, at=1)
    found = getattr(decoder, f"read_{name}_array")(len(numbers))
    assert found.dtype == np.dtype(code)
    assert struct.pack(f">{len(numbers)}{code}", *found) == expected
    decoder.check_end()


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("short", [1 << 15]),
        ("int32", np.array([-(1 << 31) - 1])),
        ("int64", [1 << 63]),
        ("int64", np.array([1 << 63], np.uint64)),
        ("int32", [1.0]),
        ("int32", [None]),
        ("int32", 7),
        ("int32", np.array([1.0])),
        ("int32", np.array([True])),
        ("double", [[1.0]]),
        ("double", np.array([[1.0]])),
        ("double", "12"),
        ("float", [1e39]),
        ("float", np.array([1e39])),
    ],
)
def test_an_array_that_would_have_to_change_is_not_written(name: str, values: Any) -> None:
    encoder = Encoder()
    with pytest.raises(InvalidValue, match="out_of_range"):
        getattr(encoder, f"write_{name}_array")(values)
    assert encoder.to_bytes() == b""


def test_the_length_of_an_array_is_judged_before_it_is_read() -> None:
    for count, limit, error in ((-1, 16, InvalidValue), (5, 16, OversizedMessage), (3, 16, TruncatedMessage)):
        decoder = Decoder(bytes(8), limit=limit)
        with pytest.raises(error):
            decoder.read_int32_array(count)
        assert decoder.offset == 0
    assert decoder.needed == 12


class Samples(Marshallable):
    type_id = 30

    def __init__(self, values: Any) -> None:
        self.values = values

    def marshall(self, encoder: Encoder) -> None:
        encoder.write_int32(len(self.values))
        encoder.write_double_array(self.values)

    @classmethod
    def unmarshall(cls, decoder: Decoder) -> Self:
        return cls(decoder.read_double_array(decoder.read_count(8)))


def test_a_type_of_ones_own_has_an_array() -> None:
    types, values = TypeRegistry(Samples), np.arange(100) / 8
    octets = written(Samples(values), types)
    assert np.array_equal(Decoder(octets, types).read_object().values, values)
    assert object_end(octets, 0, types) == len(octets) == 808
    lines = SerializationDebugger(types).explain_object(octets).splitlines()
    assert len(lines) == 4
    assert "double_array array([ 0." in lines[-1]


def joined(text: str) -> str:
    """Halves of a pair that happen to meet are one character."""
    return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")


@pytest.mark.parametrize(
    ("chunk", "units", "text"),
    [("c181", 1, "A"), ("e08080", 1, "\0"), ("e0819f", 1, "_"), ("00", 1, "\0"), ("eda0bdedb880", 2, "\U0001f600")],
)
def test_unusual_forms_of_characters_are_read_as_java_does(chunk: str, units: int, text: str) -> None:
    octets = struct.pack(">iiH", units, units, len(chunk) // 2) + bytes.fromhex(chunk)
    assert Decoder(octets).read_string() == text


@pytest.mark.parametrize(
    ("chunk", "units", "reason"),
    [
        ("80", 1, "bad_text"),
        ("f09f9880", 2, "bad_text"),
        ("c3", 1, "bad_text"),
        ("c341", 2, "bad_text"),
        ("6161", 1, "chunk_units"),
        ("e2c181", 2, "bad_text"),
        ("edb880", 2, "chunk_units"),
    ],
)
def test_wrong_characters_are_refused(chunk: str, units: int, reason: str) -> None:
    octets = struct.pack(">iiH", units, units, len(chunk) // 2) + bytes.fromhex(chunk)
    with pytest.raises(InvalidValue) as refused:
        Decoder(octets).read_string()
    assert refused.value.reason == reason


@pytest.mark.parametrize(
    ("octets", "error", "reason"),
    [
        ("fff80000000300000004", InvalidValue, "bad_length"),
        ("fff8ffffffffffffffff", InvalidValue, "bad_length"),
        ("fff7ffffffff", InvalidValue, "bad_length"),
        ("fff77fffffff", OversizedMessage, "too_large"),
        ("ff99fc1800000000000000007fffffff", OversizedMessage, "too_large"),
        ("ff99fc180000000000000000ffffffff", InvalidValue, "bad_length"),
        ("ff98ff357fffffff", OversizedMessage, "too_large"),
        ("ff9afffc00000001", InvalidValue, "unexpected_object"),
        ("fff6000a0000000100000001000158", InvalidValue, "bad_constant"),
        ("fff5000b00000001", InvalidValue, "bad_constant"),
        ("03e7", UnknownType, "unknown_type"),
        ("ff9803e7", UnknownType, "unknown_type"),
        ("ff9903e7", UnknownType, "unknown_type"),
    ],
)
def test_wrong_objects_are_refused_before_memory_is_taken(octets: str, error: type[WireError], reason: str) -> None:
    with pytest.raises(error) as refused:
        Decoder(bytes.fromhex(octets), TYPES).read_object()
    assert refused.value.reason == reason


@pytest.mark.parametrize("wrap", [lambda value: Packet("p", {"k": value}), lambda value: Message(ID, value)])
def test_objects_are_at_most_32_deep(wrap: Any) -> None:
    value: Any = 7
    for _ in range(32):
        value = wrap(value)
    octets = written(value)
    assert Decoder(octets).read_object() == value
    with pytest.raises(InvalidValue, match="too_deep"):
        written(wrap(value))
    deeper = octets.replace(written(7), written(wrap(7)))
    for read in (lambda: Decoder(deeper).read_object(), lambda: object_end(deeper, 0)):
        with pytest.raises(InvalidValue, match="too_deep"):
            read()


def test_values_out_of_their_range_are_refused() -> None:
    for make in (
        lambda: Byte(128),
        lambda: Short(1 << 15),
        lambda: Int(1 << 31),
        lambda: Char("ab"),
        lambda: Float(1e39),
    ):
        with pytest.raises(InvalidValue):
            make()
    for value in (1 << 63, Packet("p", {"k": 1 << 63}), Packet("p", {1: 2}), Packet("p", {"k": True})):  # type: ignore[dict-item]  # the test
        with pytest.raises(InvalidValue):
            written(value)
    assert math.isnan(Decoder(written(Packet("p", {"k": Float(math.nan)}))).read_object().get_value("k"))


def test_a_uuid_is_an_identifier() -> None:
    assert written(uuid.UUID(bytes=ID)) == written(ID)
    assert Identifier.parse(str(ID)) == ID
    assert str(ID) == "00010203-0405-0607-0809-0A0B0C0D0E0F"
    assert uuid.UUID(bytes=bytes(Identifier.random())).version == 4


class Op(Enum):
    INSERT = 1
    DELETE = -2


def test_an_enum_of_python_is_read_as_its_constant() -> None:
    names, numbers = TypeRegistry(enums={10: Op}), TypeRegistry(enumerables={11: Op})
    assert written(Op.INSERT, names) == written(EnumValue(10, "INSERT"))
    assert Decoder(written(Op.INSERT, names), names).read_object() is Op.INSERT
    assert written(Op.DELETE, numbers) == written(EnumerableValue(11, -2))
    assert Decoder(written(Op.DELETE, numbers), numbers).read_object() is Op.DELETE
    with pytest.raises(UnknownType):
        written(Op.INSERT)


def test_filters_are_asked_in_order_and_no_more_once_an_answer_is_cached() -> None:
    asked: list[int] = []

    def answering(number: int, result: FilterResult) -> Marshaller[Point]:
        def accepts(_value: object) -> FilterResult:
            asked.append(number)
            return result

        return Marshaller(number, accepts, read_point, write_point)

    results = (FilterResult.NEXT, FilterResult.ACCEPTED, FilterResult.ACCEPTED_AND_CACHED)
    for last, expected in ((1, [0, 1, 0, 1]), (2, [0, 2])):
        types = TypeRegistry(marshallers=[answering(0, results[0]), answering(last, results[last])])
        asked.clear()
        assert written(Point(1, 2), types)[:2] == written(Point(3, 4), types)[:2] == struct.pack(">h", last)
        assert asked == expected


@pytest.mark.parametrize(
    "make",
    [
        lambda: TypeRegistry(Row, enums={12: ["A"]}),
        lambda: TypeRegistry(enums={1 << 15: ["A"]}),
        lambda: TypeRegistry(marshallers=[Marshaller(-8, lambda _: FilterResult.NEXT, read_point, write_point)]),
    ],
)
def test_an_id_has_one_meaning(make: Any) -> None:
    with pytest.raises(ValueError, match="id"):
        make()


def test_a_class_that_is_not_registered_is_refused() -> None:
    for value in (SubPacket("s", 1), Row(1, "n", None, ())):
        with pytest.raises(UnknownType):
            written(value, TypeRegistry())


def test_the_debugger_prints_every_field_up_to_the_one_that_does_not_parse() -> None:
    packet = b"\1" + written(ID) + written(Message(ID, Packet("p", {"k": Int(7), "l": Row(5, "n", None, (True,))})))
    lines = SerializationDebugger(TYPES).explain_packet(packet).splitlines()
    assert lines[0].split() == ["0", "01", "boolean", "True"]
    assert [line.split()[0] for line in lines] == sorted([line.split()[0] for line in lines], key=int)
    assert any(line.endswith("int32 7") for line in lines)
    assert any(line.endswith("compressed_int32 5") for line in lines)
    cut = SerializationDebugger(TYPES).explain_packet(packet[:-1]).splitlines()
    assert cut[:-1] == lines[:-1]
    assert cut[-1].startswith(TruncatedMessage.__name__)
    assert len(SerializationDebugger(TYPES, max_fields=3).explain_packet(packet).splitlines()) == 4
