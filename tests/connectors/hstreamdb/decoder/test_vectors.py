"""The golden records and histories, as change rows and as the reference reader has them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from silverfold.conf.errors import InvalidValue, WireError
from silverfold.connectors.frames import ControlFrame
from silverfold.connectors.hstreamdb.decoder.decoder import HStreamDecoder
from silverfold.connectors.hstreamdb.decoder.floors import read_floors
from silverfold.connectors.hstreamdb.options import HStreamTable
from silverfold.connectors.hstreamdb.protocol.messages.batches import CompressionType, Flag
from silverfold.connectors.hstreamdb.protocol.records import Json
from silverfold.connectors.hstreamdb.reference.reader import HStreamReferenceReader
from silverfold.connectors.hstreamdb.reference.source_replay import HStreamSourceReplay
from tests.support.hstreamdb.landed import changes_of, cut_of, entry, feed_of, frame_of, objects, table_of
from tests.support.hstreamdb.vectors import names, vectors

MALFORMED = [each for each in vectors("malformed") if each["error"]]
NAMED_INSERTS = ("c", "INSERT")
MOVES_PARTIALLY = "operation_update_moves_the_key"
"""Its row is not whole: such a move is an error since the vectors were made."""


def record_of(vector: dict[str, Any]) -> bytes:
    record = vector["record"]
    return frame_of([entry(bytes.fromhex(record["payload"]), Flag[record["flag"]], record["key"])])


def expected(vector: dict[str, Any], table: HStreamTable) -> list[tuple[str, Any, Any]]:
    """Return operation, key and cells of a vector's changes, as decided since.

    A whole row is an update of all columns unless its sender calls it an insert; a move is a delete and an update; a
    row has its key.
    """
    found = []
    for change in vector["changes"]:
        if "old_key" in change:
            found.append(("delete", change["old_key"], change["old_key"]))
        op = change["op"] if change["source_op"] in NAMED_INSERTS or change["op"] == "delete" else "update"
        found.append((op, change["key"], {**(change["row"] or {}), **change["key"]}))
    return [(op, written(key, table), written(cells, table)) for op, key, cells in found]


def written(cells: dict[str, Any], table: HStreamTable) -> dict[str, Any]:
    """Return values as vectors have them: exact numbers as numbers, all else as text."""
    return {name: shown(value, table.columns[name]) for name, value in cells.items()}


def shown(value: Any, kind: str) -> Any:
    if kind == "bigint" and value is not None:
        return int(value)
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case datetime():
            return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        case date() | Decimal():
            return str(value)
        case bytes():
            return value.hex()
    return value


def cells_of(change: dict[str, Any]) -> dict[str, Any]:
    row = change["row"] or change["key"]
    return row if change["present"] is None else {name: row[name] for name in change["present"]}


@pytest.mark.parametrize("vector", vectors("cdc"), ids=names("cdc"))
def test_a_golden_record_is_its_changes_or_its_error(vector: dict[str, Any]) -> None:
    table = table_of(vector["table"])
    changes, errors = changes_of(table, {5: record_of(vector)})
    if vector.get("error") or vector["name"] == MOVES_PARTIALLY:
        reason = vector.get("error", "partial_key_move")
        where = f" in {vector['column']}" if "column" in vector else ""
        assert [each["frame_seq"] for each in errors] == [5]
        assert errors[0]["error"]["error_class"] == "INVALID_VALUE"
        assert errors[0]["error"]["reason"].startswith(f"{reason}{where}:")
        assert changes == []
        return
    assert errors == []
    found = [(each["op"], written(each["key"], table), written(cells_of(each), table)) for each in changes]
    assert found == expected(vector, table)
    assert {each["sequence"] for each in changes} <= {"00000000000000000007-00000000000000000001-0000000000"}
    times = [each["source_time"] and shown(each["source_time"], "timestamp") for each in changes]
    assert times == [each.get("source_time") for each in vector["changes"] for _ in range(1 + ("old_key" in each))]


@pytest.mark.parametrize("vector", vectors("cdc"), ids=names("cdc"))
def test_a_golden_record_is_read_so_by_the_reference_too(vector: dict[str, Any]) -> None:
    table = table_of(vector["table"])
    reader = HStreamReferenceReader(table, feed_of().options)
    if vector.get("error") or vector["name"] == MOVES_PARTIALLY:
        with pytest.raises(WireError):
            list(reader.changes(1, [(5, record_of(vector))]))
        return
    changes = list(reader.changes(1, [(5, record_of(vector))]))
    keys = [dict(zip(table.keys, each.key, strict=True)) for each in changes]
    found = [
        (each.op, written(key, table), written(dict(each.row) or key, table))
        for each, key in zip(changes, keys, strict=True)
    ]
    assert found == expected(vector, table)


@pytest.mark.parametrize("vector", MALFORMED, ids=[each["name"] for each in MALFORMED])
def test_a_malformed_frame_or_record_is_one_error(vector: dict[str, Any]) -> None:
    table = table_of({"keys": ["id"], "columns": {"id": "bigint"}})
    _, errors = changes_of(table, {5: bytes.fromhex(vector["hex"])})
    reasons = [each["error"]["reason"] for each in errors]
    assert [reason for reason in reasons if reason.startswith(vector["error"])]
    assert len(errors) == 1 or vector["level"] == "record"
    assert {each["frame_seq"] for each in errors} == {5}


def landed(vector: dict[str, Any]) -> tuple[dict[int, bytes], list[ControlFrame]]:
    """Return the frames of a history by position, and its committed floors."""
    frames, control = {}, []
    for each in vector["frames"]:
        if each["kind"] == "mark":
            body = f'{{"created": "{each["created"]}", "offsets": {each["offsets"]}}}'.replace("'", '"')
            control.append(ControlFrame(each["frame_seq"], 1, None, body.encode()))
        else:
            records: list[dict[str, Json]] = [
                {"key": change["key"], "value": change.get("row")} for change in each["changes"]
            ]
            frames[each["frame_seq"]] = frame_of(
                objects(*records),
                shard=int(each["shard"]),
                batch=int(each["batch"]),
                indexes=[change["index"] for change in each["changes"]],
            )
    return frames, control


@pytest.mark.parametrize("vector", vectors("landing"), ids=names("landing"))
def test_a_golden_history_gives_its_rows_and_tombstones_cut_by_cut(vector: dict[str, Any]) -> None:
    """Changes are applied as the engine does; tombstones go in the first cut that begins behind their floor."""
    frames, control = landed(vector)
    table = table_of({"keys": ["id"], "columns": {"id": "int", "v": "string"}})
    rows: dict[int, tuple[str, str]] = {}
    deleted: dict[int, str] = {}
    for after in vector["after"]:
        first, last = after["cut"]
        known = [each for each in control if each.frame_seq <= last]
        landed_now = {at: body for at, body in frames.items() if first <= at <= last}
        changes, errors = changes_of(table, landed_now, read_floors(known, first))
        assert errors == []
        deleted = {key: at for key, at in deleted.items() if not is_forgotten(at, known, first)}
        for change in changes:
            key, sequence = change["key"]["id"], change["sequence"]
            if sequence <= max(rows.get(key, ("",))[0], deleted.get(key, "")):
                continue
            rows.pop(key, None)
            deleted.pop(key, None)
            if change["op"] == "delete":
                deleted[key] = sequence
            else:
                rows[key] = sequence, change["row"]["v"]
        expected_rows = {each["id"]: (text_of(each["_position"]), each["v"]) for each in after["silver"]}
        assert rows == expected_rows
        still = {key: at for key, at in deleted.items() if not is_forgotten(at, known, last + 1)}
        assert still == {each["id"]: text_of(each["sequence"]) for each in after["tombstones"]}
        seen = {f"{each['frame_seq']}:{each['sequence'][-10:].lstrip('0') or '0'}" for each in changes}
        assert seen.isdisjoint(after["skipped"])


def text_of(sequence: list[Any]) -> str:
    shard, batch, index = map(int, sequence)
    return f"{shard:020}-{batch:020}-{index:010}"


def is_forgotten(sequence: str, control: Sequence[ControlFrame], first: int) -> bool:
    """Return whether a tombstone is below the horizon of a cut that begins at a position."""
    condition = HStreamDecoder(feed_of()).tombstone_horizon(control, cut_of(first, first), table_of({**ANY}))
    ranges = [part.split("'")[1::2] for part in condition.split(" OR ")] if condition else []
    return any(low <= sequence <= high for low, high in ranges)


ANY = {"keys": ["id"], "columns": {"id": "int"}}


@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.GZIP])
@pytest.mark.parametrize(("batch", "position", "again"), [(4, 9, True), (5, 9, True), (6, 9, False), (4, 8, False)])
def test_what_a_floor_covers_is_left_out_by_those_who_verify_as_by_the_build(
    batch: int, position: int, again: bool, compression: int
) -> None:
    feed = feed_of(t=table_of(ANY))
    floor = ControlFrame(8, 1, None, b'{"created": "1", "offsets": {"7": "5"}}')
    body = frame_of(objects(b"no JSON"), batch=batch, compression=compression).replace(b"\x1f\x8b", b"no")  # nor gzip
    reader, replay = HStreamReferenceReader(feed.tables["t"], feed.options), HStreamSourceReplay(feed, "t")
    replay.control(floor)
    if floor.frame_seq < position:
        reader.control(floor)
    with nullcontext() if again else pytest.raises(InvalidValue):
        assert list(reader.changes(1, [(position, body)])) == []
    assert (list(replay.landed(position, body)) == []) is again
    assert (changes_of(feed.tables["t"], {position: body}, read_floors([floor])) == ([], [])) is again
