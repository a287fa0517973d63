"""Laws that hold for every schema and every message of it: both are drawn."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import assume, given

from silverfold.conf.errors import WireError
from silverfold.connectors.wire.sbe.codec.decode import Decoded, decode
from silverfold.connectors.wire.sbe.codec.encode import encode
from silverfold.connectors.wire.sbe.schema.load import load_schema
from silverfold.connectors.wire.sbe.schema.model import Schema
from silverfold.connectors.wire.sbe.schema.text import TextMode
from tests.support.sbe.drawing import Kind
from tests.support.sbe.messages import comparable, messages
from tests.support.sbe.schemas import schemas
from tests.support.sbe.versions import as_shown_by, cut_down, known_at
from tests.support.tries import a_third


@a_third
@given(xml=schemas(), tolerant=st.booleans(), data=st.data())
def test_what_is_written_is_read_back_and_written_to_the_same_bytes(xml: bytes, tolerant: bool, data: st.DataObject):
    schema = load_schema(xml)
    name, values = data.draw(messages(schema, tolerant=tolerant))

    body = encode(schema, name, values, tolerant=tolerant)
    decoded = decode(schema, body)

    assert comparable(decoded.values) == comparable(values)
    assert (decoded.message.name, decoded.consumed, decoded.warnings) == (name, len(body), ())
    assert encode(schema, name, decoded.values, tolerant=tolerant, header=decoded.header.extras) == body


@a_third
@given(xml=schemas(), data=st.data())
def test_a_message_of_an_older_version_has_what_that_version_knows(xml: bytes, data: st.DataObject):
    schema = load_schema(xml)
    name, values = data.draw(messages(schema))
    message = schema.messages[name]
    version = data.draw(st.integers(message.since_version, schema.version))
    assume(schema.header.roles["version"].constant in {None, version})

    body = encode(schema, name, values, version=version)
    decoded = decode(schema, body)

    assert comparable(decoded.values) == comparable(known_at(message, values, version))
    assert (decoded.header.version, decoded.consumed) == (version, len(body))
    assert {finding.reason for finding in decoded.warnings} <= {"value-newer-than-version"}


@a_third
@given(xml=schemas(Kind(evolving=True)), data=st.data())
def test_readers_of_an_older_schema_see_what_they_know_of_a_newer_message(xml: bytes, data: st.DataObject):
    newer = load_schema(xml)
    name, values = data.draw(messages(newer))
    version = data.draw(st.integers(newer.messages[name].since_version, newer.version))
    older = load_schema(cut_down(xml, version))

    read = decode(older, encode(newer, name, values))

    known = known_at(newer.messages[name], values, version)
    assert comparable(read.values) == comparable(as_shown_by(older.messages[name], newer.messages[name], known))


@a_third
@given(xml=schemas(Kind(evolving=True)), data=st.data())
def test_readers_of_a_newer_schema_see_all_of_an_older_message(xml: bytes, data: st.DataObject):
    newer = load_schema(xml)
    older = load_schema(cut_down(xml, data.draw(st.integers(0, newer.version))))
    assume(older.messages)
    name, values = data.draw(messages(older))

    body = encode(older, name, values)
    read = decode(newer, body)

    assert comparable(read.values) == comparable(values)
    assert (read.consumed, read.warnings) == (len(body), ())


@a_third
@given(xml=schemas(), data=st.data())
def test_a_message_that_is_cut_short_is_an_error_with_its_place(xml: bytes, data: st.DataObject):
    schema = load_schema(xml)
    name, values = data.draw(messages(schema))
    body = encode(schema, name, values)
    cut = body[: data.draw(st.integers(0, len(body) - 1))]

    with pytest.raises(WireError) as caught:
        decode(schema, cut)

    assert caught.value.offset is not None
    assert 0 <= caught.value.offset <= len(cut)


@a_third
@given(xml=schemas(), data=st.data())
def test_a_byte_that_is_wrong_gives_values_or_a_wire_error(xml: bytes, data: st.DataObject):
    schema = load_schema(xml)
    name, values = data.draw(messages(schema))
    body = bytearray(encode(schema, name, values))
    body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))

    text: TextMode = data.draw(st.sampled_from(["strict", "bytes", "replace"]))

    outcome = attempt(schema, bytes(body), text=text, strict=data.draw(st.booleans()))

    if isinstance(outcome, WireError):
        assert outcome.reason
        assert outcome.offset is not None
        assert 0 <= outcome.offset <= len(body)
    else:
        assert schema.header.size <= outcome.consumed <= len(body)


def attempt(schema: Schema, body: bytes, *, text: TextMode, strict: bool) -> Decoded | WireError:
    """Return what becomes of any bytes; anything but values or a WireError is raised."""
    try:
        return decode(schema, body, text=text, strict=strict)
    except WireError as error:
        return error
