"""Records of HStreamDB that land behind a base, late or not: what a table must hold then. Written by hand, no Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from silverfold.connectors.hstreamdb.connector import CONNECTOR
from silverfold.connectors.verification import ReferenceChange
from silverfold.pipelines.landing.batch import Batch
from silverfold.pipelines.landing.bronze_table import SCHEMA, create, retention_id
from silverfold.pipelines.landing.writer import BronzeWriter
from silverfold.pipelines.places import Places
from silverfold.pipelines.storage.commit_note import CommitNote
from silverfold.pipelines.storage.silver_rows import SilverRows
from silverfold.pipelines.verifying.base_rows import BaseRows
from silverfold.pipelines.verifying.verify import TableVerification, Verdict, verify_table
from tests.connectors.hstreamdb.test_build import batch as record
from tests.connectors.hstreamdb.test_build import deleted
from tests.support.hstreamdb.landed import feed_of, table_of
from tests.support.written_silver import write_silver

SHOP = feed_of(orders=table_of({"keys": ["id"], "columns": {"id": "bigint", "name": "string", "qty": "bigint"}}))
COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("qty", pa.int64()), ("_position", pa.string())])
NOTE = CommitNote(feed=SHOP.name, table="orders", epoch=1, first_position=0, last_position=0, replaced=False, updates=1)


def row(number: int, name: str | None, qty: int | None, batch: int) -> dict[str, Any]:
    return {"id": number, "name": name, "qty": qty, "_position": f"{7:020}-{batch:020}-{0:010}"}


def upsert(number: int, **columns: Any) -> dict[str, Any]:
    return {"key": {"id": number}, "value": {"id": number, **columns}}


def verified(
    root: Path, later: list[Any], base: list[dict[str, Any]], rows: list[dict[str, Any]], *, partial: bool
) -> TableVerification:
    """Verify rows that stand on a base, whose one frame was dropped, and on later frames."""
    places = Places(str(root))
    bronze = places.bronze(SHOP.name)
    landed = Batch(0)
    landed.add([record(5, upsert(9)), *later], 1, 1_700_000_000)
    BronzeWriter.open(bronze, SHOP.name, token="test").append(landed.prepare().table)
    records = CommitProperties(app_transactions=[Transaction(retention_id(SHOP.name), 1)])
    write_deltalake(create(bronze), SCHEMA.empty_table(), mode="append", commit_properties=records)
    for place, found, position in ((places.base("orders"), base, 0), (places, rows, len(later))):
        note = replace(NOTE, last_position=position, partial=partial)
        write_silver(place, SHOP.name, "orders", found, position=position, schema=COLUMNS, note=note)
    return verify_table(places, CONNECTOR, SHOP, "orders")


@pytest.mark.parametrize(
    ("later", "rows"),
    [
        ([], [row(1, "a", 1, 5), row(2, "b", 2, 5)]),
        ([record(4, upsert(1, name="late", qty=0)), record(4, deleted(2))], [row(1, "a", 1, 5), row(2, "b", 2, 5)]),
        ([record(6, upsert(1, qty=7)), record(6, deleted(2))], [row(1, "a", 7, 6)]),
        ([record(6, upsert(3, name="c", qty=3))], [row(1, "a", 1, 5), row(2, "b", 2, 5), row(3, "c", 3, 6)]),
    ],
    ids=["nothing", "late", "newer", "new"],
)
def test_later_records_are_folded_into_the_rows_of_the_base(
    tmp_path: Path, later: list[Any], rows: list[dict[str, Any]]
):
    base = [row(1, "a", 1, 5), row(2, "b", 2, 5)]

    found = verified(tmp_path, later, base, rows, partial=False)
    wrong = verified(tmp_path / "wrong", later, base, [*rows[:-1], rows[-1] | {"qty": 99}], partial=False)

    assert (found.verdict, found.base_position, wrong.verdict) == (Verdict.EQUAL, 0, Verdict.DIFFERENT)


@pytest.mark.parametrize(
    ("whole", "verdict", "counted"),
    [(False, Verdict.EQUAL, True), (True, Verdict.DIFFERENT, False)],
    ids=["not compared", "compared again"],
)
def test_a_row_of_partial_updates_that_a_record_comes_late_to_is_compared_from_its_next_whole_row_on(
    tmp_path: Path, whole: bool, verdict: Verdict, counted: bool
):
    late = [record(4, upsert(1, name="late"))]
    later = [*late, record(6, upsert(1, name="whole", qty=1))] if whole else late

    found = verified(tmp_path, later, [row(1, "a", 1, 5)], [row(1, "wrong", 99, 5)], partial=True)

    assert found.verdict is verdict
    assert found.reason is not None
    assert ("1 key not compared" in found.reason) is counted


LATE_THEN_WHOLE = [
    ReferenceChange("update", 3, (1,), {"id": 1, "qty": 7}, sequence="4"),
    ReferenceChange("insert", 4, (1,), {"id": 1, "name": "a", "qty": 7}, sequence="6"),
]


@pytest.mark.parametrize("versions", [False, True])
def test_versions_from_before_a_whole_row_lack_a_late_change_all_the_same(versions: bool):
    rows = SilverRows(Places("w").silver("shop", "orders"), 0)
    base = BaseRows(0, 1, rows, deletes=None, history=rows, degraded=frozenset(), partial=True, misfit=None)
    with patch.object(BaseRows, "names", ["id", "name", "qty"]):
        before = [ReferenceChange("insert", 0, (1,), sequence="5")]
        found = base.left_out(["id"], before, LATE_THEN_WHOLE, versions=versions)
    assert found.keys == ({(1,)} if versions else set())


@pytest.mark.parametrize(
    ("later", "has_history", "left_out"),
    [
        ([ReferenceChange("update", 3, (1,), {"id": 1, "qty": 7}, sequence="6")], False, {(1,)}),
        ([ReferenceChange("insert", 3, (1,), {"id": 1, "name": "a", "qty": 7}, sequence="4")], False, {(1,)}),
        ([ReferenceChange("insert", 3, (1,), {"id": 1, "name": "a", "qty": 7}, sequence="6")], False, set()),
        ([ReferenceChange("delete", 3, (1,), sequence="6")], False, set()),
        ([ReferenceChange("delete", 3, (1,), sequence="6")], True, {(1,)}),
    ],
    ids=["partial", "late", "whole", "deleted", "with versions"],
)
def test_a_key_whose_mark_is_in_the_base_is_compared_again_from_its_next_whole_row_on(
    later: list[ReferenceChange], has_history: bool, left_out: set[tuple[int]]
):
    rows = SilverRows(Places("w").silver("shop", "orders"), 0)
    base = BaseRows(
        position=0,
        floor=1,
        rows=rows,
        deletes=None,
        history=rows if has_history else None,
        degraded=frozenset({(1,)}),
        partial=True,
        misfit=None,
    )
    with patch.object(BaseRows, "names", ["id", "name", "qty"]):
        found = base.left_out(["id"], [ReferenceChange("insert", 0, (1,), sequence="5")], later)
    assert found.keys == left_out
