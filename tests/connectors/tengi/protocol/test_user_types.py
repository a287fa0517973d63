"""Types of a user's own: whose an error of their code is, and what a registry refuses."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from enum import Enum, Flag, IntEnum, StrEnum
from typing import Any

import pytest

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.tengi.protocol import (
    Decoder,
    Encoder,
    Marshallable,
    Marshaller,
    Message,
    Packet,
    TypeRegistry,
    accepts_class,
)
from silverfold.connectors.tengi.protocol.debugger import SerializationDebugger
from silverfold.connectors.tengi.transports.configuration import ConfigurationBuilder


def fail(*_: object) -> Any:
    raise KeyError(9)


class Day(Marshallable):
    type_id = 50

    def marshall(self, encoder: Encoder) -> None:
        encoder.write_byte(9)

    @classmethod
    def unmarshall(cls, decoder: Decoder) -> Day:
        return {1: cls()}[decoder.read_byte()]


class Extended(Packet):
    type_id = 51

    def unmarshall_fields(self, decoder: Decoder) -> None:
        fail()


TYPES = TypeRegistry(Day, Extended, marshallers=[Marshaller(52, accepts_class(complex), fail, lambda *_: None)])


@pytest.mark.parametrize("value", [Day(), Extended("p"), 1j], ids=["marshallable", "packet", "marshaller"])
def test_an_error_of_a_users_code_is_one_of_the_bytes(value: object) -> None:
    encoder = Encoder(TYPES)
    encoder.write_object(value)
    with pytest.raises(InvalidValue, match=r"user_type at byte \d+: a user type raised KeyError\(9\)"):
        Decoder(encoder.to_bytes(), TYPES).read_object()
    assert "KeyError(9)" in SerializationDebugger(TYPES).explain_object(encoder.to_bytes()).splitlines()[-1]


@pytest.mark.parametrize("error", [asyncio.CancelledError, GeneratorExit])
def test_an_error_that_would_end_the_reading_task_is_one_of_the_bytes_too(error: type[BaseException]) -> None:
    def give_up(_decoder: Decoder) -> complex:
        raise error

    types = TypeRegistry(marshallers=[Marshaller(52, accepts_class(complex), give_up, lambda *_: None)])
    encoder = Encoder(types)
    encoder.write_object(1j)
    with pytest.raises(InvalidValue, match=f"a user type raised {error.__name__}"):
        Decoder(encoder.to_bytes(), types).read_object()


class Letters(Enum):
    A = "a"


class Colour(IntEnum):
    RED = 1


class Rights(Flag):
    READ = 1
    WRITE = 2


class Size(StrEnum):
    SMALL = "s"


@pytest.mark.parametrize(
    "constant", [Letters.A, Colour.RED, Rights.READ, Size.SMALL], ids=["letter", "int", "flag", "text"]
)
def test_a_constant_in_place_of_its_class_is_named(constant: Any) -> None:
    with pytest.raises(ValueError, match=rf"enum 1 is given as {re.escape(repr(constant))}: .* its class"):
        TypeRegistry(enums={1: constant})
    with pytest.raises(ValueError, match=rf"enumerable 1 is given as {re.escape(repr(constant))}: .* its class"):
        TypeRegistry(enumerables={1: constant})


@pytest.mark.parametrize("strange", [Day, 52, None], ids=["a class", "an id", "nothing"])
def test_what_is_no_marshaller_is_named(strange: Any) -> None:
    with pytest.raises(ValueError, match=f"{re.escape(repr(strange))} is no Marshaller"):
        TypeRegistry(marshallers=[strange])


@pytest.mark.parametrize(
    ("enums", "enumerables"),
    [({1: Colour, 2: Colour}, {}), ({}, {1: Colour, 2: Colour}), ({1: Colour}, {2: Colour})],
    ids=["enums", "enumerables", "one of each"],
)
def test_an_enum_under_two_ids_is_refused(enums: Any, enumerables: Any) -> None:
    with pytest.raises(ValueError, match="Colour has two ids, 1 and 2"):
        TypeRegistry(enums=enums, enumerables=enumerables)


def test_two_enums_under_one_id_are_refused() -> None:
    builder = ConfigurationBuilder().add_enum(1, Letters).add_enumerable(2, Colour)
    with pytest.raises(ValueError, match="the id 1 names two types: <enum 'Letters'> and <enum 'Size'>"):
        builder.add_enum(1, Size)
    with pytest.raises(ValueError, match=r"the id 2 names two types: <enum 'Colour'> and \{'A': 1\}"):
        builder.add_enumerable(2, {"A": 1})


@pytest.mark.parametrize(
    ("packet", "strange"),
    [(Packet("a", {1: 2}), "1"), (Packet("a", {"b": 1, b"c": 2}), "b'c'"), (Packet(None), "None")],  # type: ignore[dict-item,arg-type]  # the test
    ids=["a number", "bytes", "no name"],
)
def test_a_name_or_a_key_that_is_no_text_is_named(packet: Packet, strange: str) -> None:
    with pytest.raises(InvalidValue, match=f"packet .*: its name and its keys are texts, unlike {strange}$"):
        Encoder().write_object(packet)


@pytest.mark.parametrize(
    "make",
    [
        lambda: TypeRegistry(enums={1: "RED"}),
        lambda: TypeRegistry(enumerables={1: {"A": 1 << 40}}),
        lambda: TypeRegistry(enumerables={1: Letters}),
    ],
    ids=["a text", "a large number", "letters"],
)
def test_constants_that_cannot_be_written_are_refused(make: Callable[[], TypeRegistry]) -> None:
    with pytest.raises(ValueError, match="enum"):
        make()


@pytest.mark.parametrize(
    "strange", [Letters, Packet("a"), type("Lacking", (Marshallable,), {})], ids=["an enum", "an object", "without id"]
)
def test_what_is_no_class_of_a_user_type_is_refused(strange: Any) -> None:
    with pytest.raises(ValueError, match="is no subclass of Packet or Marshallable with a type_id"):
        TypeRegistry(strange)


@pytest.mark.parametrize("answer", [True, False, None])
def test_a_filter_that_answers_otherwise_is_refused(answer: Any) -> None:
    types = TypeRegistry(marshallers=[Marshaller(7, lambda _: answer, fail, lambda *_: None)])
    with pytest.raises(TypeError, match="filter of marshaller 7"):
        Encoder(types).write_object(1j)


@pytest.mark.parametrize("identifier", [b"abc", "A", "x" * 16, 16, None])
def test_only_an_identifier_is_written_as_one(identifier: Any) -> None:
    with pytest.raises(InvalidValue, match="16 bytes"):
        Encoder().write_identifier(identifier)
    with pytest.raises(InvalidValue, match="16 bytes"):
        Encoder().write_object(Message(identifier, "hello"))


def test_a_user_type_cannot_read_backwards() -> None:
    decoder = Decoder((-4).to_bytes(4, "big", signed=True))
    with pytest.raises(InvalidValue, match="the length -4 is negative"):
        decoder.read_bytes(decoder.read_int32())


def write_or_replace(encoder: Encoder, _value: complex) -> None:
    try:
        encoder.write_object(Packet("a", {"b": 1, "c": Packet("d", {"e": None})}))
    except InvalidValue:
        encoder.write_object("refused")


def test_an_encoder_has_nothing_of_an_object_that_it_refused_and_goes_on() -> None:
    encoder = Encoder(TypeRegistry(marshallers=[Marshaller(53, accepts_class(complex), fail, write_or_replace)]))
    encoder.write_object(1j)
    for _ in range(40):  # more than objects may be deep
        for refuse in (encoder.write_object, encoder.write_nullable_object):
            with pytest.raises(InvalidValue, match="no_marshaller"):
                refuse(Packet("a", {"b": 1, "c": Packet("d", {"e": True})}))
    encoder.write_object(Packet("f"))
    assert encoder.to_bytes().hex() == "0035fff800000007000000070007" + b"refused".hex() + (
        "ff99fc18000000010000000100016600000000"
    )
