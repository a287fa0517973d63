"""What PROTOCOL.md says of rows, by the reference reader; `decoder/test_changes.py` has the decoder agree with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from silverfold.connectors.sbe.reference import SbeReferenceReader
from silverfold.connectors.wire.sbe.schema.model import Schema
from silverfold.pipelines.verifying.table_fold import TableFold
from tests.support.sbe.basics import frame, message_of
from tests.support.sbe.feed import table


def rows(schema: Schema, bodies: Sequence[bytes], **settings: Any) -> list[dict[str, Any]]:
    """Return the rows of a table with the key ``id``, once all messages are applied."""
    reader = SbeReferenceReader(schema, schema.messages["M"], table(keys=["id"], **settings))
    fold = TableFold(("id",), upserts=True)
    for change in reader.changes(1, enumerate(bodies)):
        fold.apply([change])
    return fold.all_rows()


@pytest.mark.parametrize(("action", "late"), [("4e", None), ("43", 7)], ids=["New", "Change"])
def test_what_an_older_message_lacks_stays_as_it_was_unless_it_makes_a_new_row(action: str, late: int | None) -> None:
    schema = message_of(
        '<field name="id" id="1" type="uint8"/><field name="action" id="2" type="act"/>'
        '<field name="late" id="3" type="uint8" sinceVersion="1"/>',
        '<enum name="act" encodingType="char"><validValue name="New">N</validValue>'
        '<validValue name="Change">C</validValue></enum>',
        version=1,
    )
    bodies = [frame("014e07", block_length=3, version=1), frame(f"01{action}", block_length=2)]
    (row,) = rows(schema, bodies, operation="action")
    assert row.get("late") == late  # a column that a row lacks is NULL


@pytest.mark.parametrize(("sets", "value"), [("names", ["a"]), ("integer", 5)])
def test_bits_without_a_name_are_only_in_a_set_as_an_integer(sets: str, value: object) -> None:
    schema = message_of(
        '<field name="id" id="1" type="uint8"/><field name="flags" id="2" type="flags"/>',
        '<set name="flags" encodingType="uint8"><choice name="a">0</choice></set>',
    )
    (row,) = rows(schema, [frame("0105", block_length=2)], sets=sets)
    assert row["flags"] == value
