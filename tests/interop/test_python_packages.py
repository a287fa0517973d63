"""The Python packages `sbe` and `sbedecoder` see the same in messages that they can read.

Neither knows variable-length data, references, custom nulls or versions; both read flat groups of plain fields in
little-endian. The schema has no more than that. They come with the extra ``interop``.
"""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from silverfold.connectors.wire.sbe.codec.decode import decode
from silverfold.connectors.wire.sbe.codec.encode import encode
from silverfold.connectors.wire.sbe.codec.values import SetValue
from silverfold.connectors.wire.sbe.schema.load import load_schema
from tests.support.sbe.messages import comparable, messages

MARKET = Path(__file__).parents[1] / "golden" / "sbe" / "oracle" / "market.xml"
SCHEMA = load_schema(MARKET)

pytestmark = pytest.mark.interop


@given(message=messages(SCHEMA))
def test_the_package_sbe_sees_the_same(message: tuple[str, dict[str, Any]]):
    package = pytest.importorskip("sbe", reason="the package sbe comes with the extra interop")
    body = encode(SCHEMA, *message)

    with MARKET.open("rb") as file:
        theirs = package.Schema.parse(file).decode(body)

    assert comparable(in_form_of_sbe(decode(SCHEMA, body).values)) == comparable(theirs.value)
    assert (theirs.message_name, theirs.header["templateId"]) == ("Refresh", 32)


@given(message=messages(SCHEMA))
def test_the_package_sbedecoder_sees_the_same(message: tuple[str, dict[str, Any]]):
    package = pytest.importorskip("sbedecoder", reason="the package sbedecoder comes with the extra interop")
    body = encode(SCHEMA, *message)

    theirs = package.SBEMessage.parse_message(decoder_schema(package), body)

    assert comparable(names_of_sets(decode(SCHEMA, body).values)) == comparable(shown_by_sbedecoder(theirs))


@cache
def decoder_schema(package: Any) -> Any:
    schema = package.SBESchema()
    with warnings.catch_warnings():  # it compiles patterns that later Pythons dislike
        warnings.simplefilter("ignore")
        schema.parse(str(MARKET))
    return schema


def names_of_sets(value: Any) -> Any:
    """Return decoded values with sets as the names of their bits, lowest bit first."""
    match value:
        case dict():
            return {name: names_of_sets(element) for name, element in value.items()}
        case list():
            return [names_of_sets(element) for element in value]
        case SetValue():
            return [name for name in ("last", "implied", "recovery") if name in value]
        case _:
            return value


def in_form_of_sbe(values: dict[str, Any]) -> dict[str, Any]:
    """Return values as the package prints them: it takes white space off texts."""
    return names_of_sets(values) | {"symbol": values["symbol"].strip()}


def shown_by_sbedecoder(message: Any) -> dict[str, Any]:
    """Return all values of a message. The package gives fields and groups as objects, header members among them."""
    header = {"blockLength", "templateId", "schemaId", "version"}
    shown = {field.original_name: _shown(field) for field in message.fields if field.original_name not in header}
    for group in message.groups:
        entries = [{field.original_name: _shown(field) for field in entry.fields} for entry in group.repeating_groups]
        shown[group.original_name] = entries
    return shown


def _shown(field: Any) -> Any:
    if hasattr(field, "enumerant"):
        return field.enumerant
    if hasattr(field, "parts"):
        return field.raw_value
    if field.original_name == "flags":
        return field.value.split(", ") if field.value else []
    return field.value
