"""SCSP frames as they are written: the vectors' own bytes, and what is read back is what was written."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import pytest
from hypothesis import given

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.sqlitecloud.protocol.encode import (
    OK,
    encode_array,
    encode_chunk,
    encode_command,
    encode_error,
    encode_json,
    encode_rowset,
    encode_statement,
    encode_text,
    encode_ticket,
    encode_value,
    encode_zero_text,
)
from silverfold.connectors.sqlitecloud.protocol.frames import FrameCutter, parse
from silverfold.connectors.sqlitecloud.protocol.messages import (
    Array,
    Column,
    Message,
    PubSubTicket,
    RawText,
    Rowset,
    RowsetChunk,
    ServerError,
    Single,
    Statement,
)
from silverfold.connectors.sqlitecloud.server.connection import read_statement
from tests.support.sqlitecloud.vectors import cell, message, names, octets, vectors
from tests.support.tries import half

WRITTEN = {"string", "zstring", "int", "null", "blob", "json", "array", "rowset", "rowset_chunk", "command"}
FRAMES = [
    vector
    for vector in vectors("frames")
    if vector["parsed"]["type"] in WRITTEN and not octets(vector).startswith(b"%") and "zero" not in vector["id"]
]
CLIENTS = [vector for vector in vectors("client_frames") if vector["command"] is not None]

utf8 = st.text(st.characters(codec="utf-8"))
raw = st.binary(min_size=1).map(b"\xff".__add__).map(RawText)
values = st.one_of(
    st.none(), st.integers(-(1 << 63), (1 << 63) - 1), st.floats(allow_nan=False), st.binary(), utf8, raw
)
flags = st.booleans()
names_or_none = st.one_of(st.none(), utf8)
named_columns = utf8.map(Column)
described_columns = st.tuples(utf8, *[names_or_none] * 4, flags, flags, flags).map(Column._make)


def frame(whole: bytes) -> Message:
    cutter = FrameCutter()
    cutter.receive(whole)
    cut = cutter.next_frame()
    assert cut is not None
    assert cutter.held == 0
    return parse(cut)


@st.composite
def tables(draw: st.DrawFn) -> Rowset:
    version = draw(st.sampled_from([1, 2]))
    columns = draw(st.lists(described_columns if version == 2 else named_columns, min_size=1, max_size=4))
    rows = draw(st.lists(st.tuples(*[values] * len(columns)), max_size=5))
    return Rowset(tuple(columns), rows, version)


def written(message: Message) -> bytes:
    """As `encode` writes it."""
    match message:
        case Single(value):
            return encode_value(value)
        case Array(items):
            return encode_array(items)
        case Rowset():
            return encode_rowset(message)
        case RowsetChunk():
            return encode_chunk(message)
        case _:
            return {"JsonText": encode_json, "Command": encode_command}[type(message).__name__](message.octets)


@pytest.mark.parametrize("vector", FRAMES, ids=names(FRAMES))
def test_what_a_vector_says_is_written_with_its_bytes(vector):
    assert written(message(vector["parsed"])) == octets(vector)


@pytest.mark.parametrize("vector", CLIENTS, ids=names(CLIENTS))
def test_commands_of_clients_are_read_and_written_with_their_bytes(vector):
    cutter = FrameCutter()
    cutter.receive(octets(vector))
    statement = Statement(vector["command"], tuple(cell(parameter) for parameter in vector.get("parameters", [])))
    assert read_statement(cutter.next_frame()) == statement
    assert encode_statement(statement) == octets(vector)


@pytest.mark.parametrize("whole", [b"=20 2 !9 SELECT ?\0:True ", b"=2 0 ", b"=5 1 :1 ", b":1 ", b"#2 {}", b"+1 \xff"])
def test_what_is_no_command_is_refused_and_the_next_frame_is_read(whole):
    cutter = FrameCutter()
    cutter.receive(whole + b"+4 PING")
    with pytest.raises(InvalidValue):
        read_statement(cutter.next_frame())
    assert read_statement(cutter.next_frame()) == Statement("PING")


@half
@given(values)
def test_a_value_is_read_as_it_was_written(value):
    assert frame(encode_value(value)) == Single(value)


@given(st.lists(values, max_size=6), st.booleans())
def test_an_array_is_read_as_it_was_written(items, zero_terminated):
    if zero_terminated:
        items = [item for item in items if not (isinstance(item, str | RawText) and b"\0" in encode_value(item))]
    assert frame(encode_array(items, zero_terminated=zero_terminated)) == Array(tuple(items))


@given(tables(), st.booleans())
def test_a_rowset_is_read_as_it_was_written(rowset, compressed):
    assert frame(encode_rowset(rowset, compressed=compressed)) == rowset


@given(tables(), st.booleans(), st.integers(1, 10**9))
def test_a_chunk_is_read_as_it_was_written(rowset, compressed, index):
    columns = rowset.columns if index == 1 else None
    chunk = RowsetChunk(index, rowset.version, columns, len(rowset.columns), rowset.rows)
    assert frame(encode_chunk(chunk, compressed=compressed)) == chunk


@given(st.integers(), st.integers(0), st.integers(-1), utf8)
def test_an_error_is_read_as_it_was_written(code, extended, offset, text):
    error = ServerError(code % 10**18, extended % 10**18, offset, text)
    if offset < 10**18:
        assert frame(encode_error(error)) == error


def test_the_answers_to_login_and_listen_are_written_as_the_handshake_has_them():
    ticket = PubSubTicket("a365efef-cfb7-4672-8ed4-45a489ddb194", "9230b8d8-93dc-4edc-bcaf-cc118fe32d4d")
    assert OK == b"+2 OK"
    assert encode_ticket(ticket) == (
        b"|79 PAUTH a365efef-cfb7-4672-8ed4-45a489ddb194 9230b8d8-93dc-4edc-bcaf-cc118fe32d4d"
    )
    assert encode_text(b"\xff\x00") == b"+2 \xff\x00"


def test_zero_terminated_rowsets_have_zero_terminated_names_too():
    rowset = Rowset((Column("a"),), [("x",)])
    assert encode_rowset(rowset, zero_terminated=True) == b"*18 0:1 1 1 !2 a\0!2 x\0"


def test_infinity_is_written_as_a_number_above_all_doubles():
    assert encode_value(math.inf) == b",9.0e+999 "
    assert encode_value(-math.inf) == b",-9.0e+999 "


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (1 << 63, "bad_number"),
        (-(1 << 63) - 1, "bad_number"),
        (math.nan, "bad_number"),
        ("\ud800", "not_utf8"),
        (object(), "bad_type"),
        ((1, 2), "bad_type"),
    ],
)
def test_what_sqlite_cannot_hold_is_refused(value, reason):
    with pytest.raises(InvalidValue) as caught:
        encode_value(value)
    assert caught.value.reason == reason


@pytest.mark.parametrize("parameter", ["a\0b", RawText(b"\xff\0")])
def test_a_bound_text_with_a_nul_is_refused_and_not_cut_off(parameter):
    with pytest.raises(InvalidValue) as caught:
        encode_statement(Statement("SELECT ?", (parameter,)))
    assert caught.value.reason == "nul_in_text"
    with pytest.raises(InvalidValue):
        encode_zero_text("a\0")
