"""Which columns a table has of a message, or of a group's entries, and what they are called."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

from silverfold.conf.errors import SchemaError
from silverfold.connectors.base import Problem
from silverfold.connectors.sbe.connector import CONNECTOR
from silverfold.connectors.sbe.decoder.checks import problems_of
from silverfold.connectors.sbe.decoder.layout import layout_of
from tests.support.sbe.basics import message_of
from tests.support.sbe.feed import SbeFeed, table

NESTED = message_of(
    '<field name="id" id="1" type="uint8"/><field name="Size" id="2" type="uint8"/>'
    '<group name="outer" id="3"><field name="id" id="4" type="uint8"/>'
    '<group name="inner" id="5"><field name="size" id="6" type="uint8"/></group></group>'
)


LEG = '<field name="n" id="3" type="uint8"/>'
LATER = '<field name="id" id="4" type="uint8" sinceVersion="1"/><data name="note" id="5" type="text" sinceVersion="1"/>'
ENCLOSED = '<field name="id" id="1" type="uint8"/><group name="legs" id="2" {since}>{leg}</group>'


@pytest.mark.parametrize(
    ("since", "leg", "names"),
    [
        ("", LEG, ["id", "n"]),
        ("", LEG + LATER, ["id", "n", "legs_id", "note"]),
        ('sinceVersion="1"', LEG + LATER, ["M_id", "n", "id", "note"]),
    ],
)
def test_a_column_stays_what_it_is_as_the_schema_grows(since: str, leg: str, names: list[str]):
    types = '<composite name="text"><type name="length" primitiveType="uint8"/><type name="varData" length="0" '
    types += 'primitiveType="uint8" characterEncoding="UTF-8"/></composite>'
    schema = message_of(ENCLOSED.format(since=since, leg=leg), types, version=1)

    (name,) = schema.messages
    found = layout_of(schema, schema.messages[name], table(template=name, group="legs")).row.names

    assert found == [each.replace("M_", f"{name}_") for each in names]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"group": "outer.none"}, "outer.none is no group; groups there: inner"),
        ({"group": "id"}, "id is no group; groups there: outer"),
        ({"group": "outer", "with": ["none"]}, "with: none does not enclose"),
        ({"group": "outer", "with": ["outer"]}, "with: outer does not enclose"),
    ],
)
def test_what_a_message_does_not_have_is_refused_by_name(settings, message):
    (name,) = NESTED.messages
    with pytest.raises(SchemaError, match=message):
        layout_of(NESTED, NESTED.messages[name], table(template=name, **settings))


def test_a_group_without_members_is_omitted_or_refused_by_name_unless_its_entries_are_the_rows():
    inside = '<group name="outer" id="2"><field name="b" id="3" type="uint8"/><group name="inner" id="4"/></group>'
    schema = message_of(f'<field name="a" id="1" type="uint8"/>{inside}')
    (name,) = schema.messages

    allowed = f"omit: {name}.outer is or has a group without members, which no column holds"
    refused = problems_of(schema, "t", table(template=name))
    assert list(refused) == [Problem("tables.t.groups", "arrays", allowed)]

    assert list(problems_of(schema, "t", table(template=name, groups="omit"))) == []
    assert layout_of(schema, schema.messages[name], table(template=name, group="outer.inner")).row.names == ["a", "b"]


def test_columns_are_described_as_their_elements_are(tmp_path: Path):
    own = tmp_path / "own.xml"
    text = (files("silverfold.connectors.sbe") / "market.xml").read_text(encoding="utf-8")
    text = text.replace('name="level" ', 'name="level" description="From 1, the best" ')
    own.write_text(text.replace('name="transactTime" ', 'name="transactTime" description="When it &lt;was&gt;" '))
    feed = SbeFeed(tmp_path, {"book": table(template="BookUpdate", group="entries")}, schema=str(own)).feed

    assert CONNECTOR.column_comments(feed, "book") == {"transactTime": "When it <was>", "level": "From 1, the best"}
