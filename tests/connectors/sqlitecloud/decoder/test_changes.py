"""Landed frames become changes which, applied in order, make the source's table; the plain reader agrees."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from silverfold.conf.errors import WireError
from silverfold.connectors.sqlitecloud.decoder.changes import ChangeReader
from silverfold.connectors.sqlitecloud.decoder.channel_messages import MESSAGES
from silverfold.connectors.sqlitecloud.options import SqliteCloudOptions, SqliteCloudTable
from silverfold.connectors.sqlitecloud.protocol.landed.control import Description, TableColumn
from silverfold.connectors.sqlitecloud.reference.reader import SqliteCloudReferenceReader
from silverfold.pipelines.verifying.table_fold import TableFold
from tests.support.change_model import Change, State, after
from tests.support.sqlitecloud.notices import control, described, framed, rowset, table_text, vectors

CAPTURES = [pytest.param(vector, id=vector["id"]) for vector in vectors("captures") if vector["verdict"] == "ok"]
FOO = described("foo", {"id": "INTEGER", "a": "TEXT", "b": "TEXT"}, ["id"])
Landed = tuple[int, str, bytes]


def reader(
    description: Description = FOO, snapshot_end: int | None = None, table: dict[str, Any] | None = None, **options: Any
) -> ChangeReader:
    settings = SqliteCloudTable.model_validate(table or {})
    return ChangeReader(description, settings, SqliteCloudOptions.model_validate(options), snapshot_end)


def rows_of(of: ChangeReader, *frames: Landed) -> list[dict[str, Any]]:
    batches = of.read(*([frame[at] for frame in frames] for at in range(3)))
    return [row for batch in batches for row in batch.to_pylist()]


def notification(*entries: tuple[str, list[Any] | None, dict[str, Any]], keys: Sequence[str] = ("id",)) -> bytes:
    return framed(table_text("foo", keys, entries, "new"))


def data(position: int, *entries: tuple[str, list[Any] | None, dict[str, Any]]) -> Landed:
    return position, "data", notification(*entries)


def changes_of(rows: Sequence[dict[str, Any]]) -> list[Change]:
    """Return change rows as the model has them: rows of the snapshot first, then in their order."""
    in_order = sorted(rows, key=lambda row: (row["op"] != "snapshot", row["frame_seq"], row["ordinal"]))
    assert all(row["error"] is None for row in in_order)
    return [
        Change(
            row["frame_seq"],
            row["op"],
            tuple(row["key"].values()),
            {name: value for name, value in (row["row"] or {}).items() if name in (row["present"] or row["row"])},
            row["old_key"] and tuple(row["old_key"].values()),
        )
        for row in in_order
    ]


def landed(vector: dict[str, Any]) -> tuple[list[Landed], int]:
    """Return the frames of the last epoch of a capture, and where its snapshot settles."""
    frames: list[Landed] = []
    snapshot_end = -1
    for position, event in enumerate(vector["events"]):
        if "lost" in event:
            frames = []
        elif "snapshot" in event:
            frames.append((position, "snapshot", rowset(vector["columns"], event["snapshot"])))
        elif "data" in event:
            frames.append((position, "data", framed(json.dumps(event["data"]))))
        else:
            snapshot_end = position
    return frames, snapshot_end


def in_runs(frames: Sequence[Landed], size: int) -> list[Sequence[Landed]]:
    return [frames[start : start + size] for start in range(0, len(frames), size)]


@pytest.mark.parametrize("vector", CAPTURES)
@pytest.mark.parametrize("size", [1, 2, 100])
def test_a_capture_ends_as_the_source_however_it_is_cut_into_runs(vector: dict[str, Any], size: int) -> None:
    frames, snapshot_end = landed(vector)
    types = dict.fromkeys(vector["columns"], "string") | dict.fromkeys(vector["keys"], "bigint")
    description = described("foo", dict.fromkeys(vector["columns"], ""), vector["keys"])
    changing = reader(description, snapshot_end, {"types": types})
    replacing = [frame for frame in frames if frame[0] <= snapshot_end]
    later = [frame for frame in frames if frame[0] > snapshot_end]
    replayed = [row for run in in_runs(replacing, size) for row in rows_of(changing, *run)]
    state = after({}, changes_of(replayed), columns=vector["columns"])
    if "at_high_fence" in vector:
        assert rows_in(state) == vector["at_high_fence"]
    for run in in_runs(later, size):
        state = after(state, changes_of(rows_of(changing, *run)), columns=vector["columns"])
    assert rows_in(state) == vector["at_end"]
    assert rows_in(after({}, changes_of(rows_of(changing, *frames)), columns=vector["columns"])) == vector["at_end"]


def rows_in(state: State) -> list[list[Any]]:
    return sorted([list(cells.values()) for cells in state.values()], key=repr)


@pytest.mark.parametrize("vector", CAPTURES)
def test_the_plain_reader_ends_there_too(vector: dict[str, Any]) -> None:
    frames, _ = landed(vector)
    types = dict.fromkeys(vector["columns"], "string") | dict.fromkeys(vector["keys"], "bigint")
    reference = SqliteCloudReferenceReader(
        "foo", SqliteCloudTable.model_validate({"types": types}), SqliteCloudOptions()
    )
    reference.control(control(described("foo", dict.fromkeys(vector["columns"], ""), vector["keys"])))
    fold = TableFold(reference.keys)
    for position, kind, body in sorted(frames, key=lambda frame: frame[1] == "data"):
        fold.apply(reference.changes(1, [(position, body)]), reference.columns, snapshot=kind == "snapshot")
    assert sorted([[row[name] for name in reference.columns] for row in fold.all_rows()], key=repr) == vector["at_end"]


@pytest.mark.parametrize("old", [[None], ["x"], [7]])
def test_what_an_insert_carries_as_an_old_key_is_passed_by(old: list[Any]) -> None:
    frame = (0, "data", notification(("INSERT", old, {"id": 15, "a": "x", "b": "y"})))
    (change,) = changes_of(rows_of(reader(), frame))
    reference = SqliteCloudReferenceReader("foo", SqliteCloudTable.model_validate({}), SqliteCloudOptions())
    reference.control(control(FOO))
    (expected,) = reference.changes(1, [(0, frame[2])])
    assert (change.op, change.key, change.old_key) == (expected.op, expected.key, expected.old_key)
    assert expected.old_key is None


def test_a_full_row_that_moves_in_the_overlay_is_there_even_if_the_old_one_is_not() -> None:
    moved = {"id": 15, "a": "x", "b": "y"}
    frames = [(0, "data", notification(("UPDATE", [20], moved))), (1, "snapshot", rowset(FOO.names, []))]
    changes = changes_of(rows_of(reader(snapshot_end=2), *frames))
    assert after({}, changes, columns=FOO.names) == {(15,): moved}
    later = changes_of(rows_of(reader(snapshot_end=-1), *frames))
    assert [change.op for change in later] == ["update"]


def test_rows_that_change_places_in_one_notification_do_so() -> None:
    both = (("UPDATE", [1], {"id": 2, "a": "p", "b": "q"}), ("UPDATE", [2], {"id": 1, "a": "r", "b": "s"}))
    frames = [(0, "snapshot", rowset(FOO.names, [[1, "p", "q"], [2, "r", "s"]])), (1, "data", notification(*both))]
    expected = [[1, "r", "s"], [2, "p", "q"]]
    assert rows_in(after({}, changes_of(rows_of(reader(snapshot_end=2), *frames)), columns=FOO.names)) == expected


def test_an_update_has_the_columns_it_carries_and_its_key() -> None:
    (row,) = rows_of(reader(), data(7, ("UPDATE", ["3"], {"a": None})))
    assert row == {
        "frame_seq": 7,
        "ordinal": 0,
        "op": "update",
        "key": {"id": 3},
        "old_key": None,
        "row": {"id": 3, "a": None, "b": None},
        "present": ["id", "a"],
        "error": None,
    }


def test_by_setting_what_an_update_does_not_carry_is_null() -> None:
    (row,) = rows_of(reader(update_columns="full"), data(0, ("UPDATE", None, {"id": 3, "a": "x"})))
    assert (row["row"], row["present"]) == ({"id": 3, "a": "x", "b": None}, None)


def test_by_setting_an_insert_carries_every_column() -> None:
    lacking = data(0, ("INSERT", None, {"id": 3, "b": "x"}))
    (row,) = rows_of(reader(), lacking)
    assert (row["row"], row["present"]) == ({"id": 3, "a": None, "b": "x"}, None)
    (refused,) = rows_of(reader(insert_absent="error"), lacking)
    assert refused["error"]["reason"] == "absent_column: an INSERT lacks a"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (notification(("INSERT", None, {"id": 1, "c": 2})), "unknown_column: column 'c' was not there"),
        (
            notification(("INSERT", None, {"id": 1, "a": 2}), keys=("a",)),
            "other_keys: the key is a, in the snapshot it was id",
        ),
        (framed('{"channel":"foo","type":"MESSAGE"}'), "unknown_kind: "),
        (framed("{"), "invalid_json: "),
        (framed("[]"), "not_an_object: "),
        (notification(("INSERT", None, {"id": 1})).replace(b'"channel"', b'"channal"'), "no_channel: "),
        (notification(("INSERT", None, {"id": 1}))[:-9], "bad_frame at byte 0: "),
        (b"#5 {}", "bad_frame at byte 0: "),
        (b":5 ", "bad_frame at byte 0: "),
        (b"", "bad_frame at byte 0: "),
        (notification(("INSERT", None, {"id": 2**63})), "unfit_value in id: 9223372036854775808 does not fit"),
    ],
)
def test_a_notification_that_cannot_be_read_is_one_error_and_no_change(body: bytes, reason: str) -> None:
    rows = rows_of(reader(), (0, "data", notification(("INSERT", None, {"id": 1}))), (1, "data", body))
    assert {row["frame_seq"]: row["op"] for row in rows} == {0: "insert", 1: None}
    (error,) = [row["error"] for row in rows if row["error"]]
    assert error["error_class"] == "INVALID_VALUE"
    assert error["reason"].startswith(reason)
    reference = SqliteCloudReferenceReader("foo", SqliteCloudTable(), SqliteCloudOptions())
    reference.control(control(FOO))
    with pytest.raises(WireError):
        list(reference.changes(1, [(1, body)]))


def test_a_value_that_does_not_fit_spoils_its_whole_notification_and_no_other() -> None:
    rows = rows_of(
        reader(described("foo", {"id": "INTEGER", "n": "INT"}, ["id"])),
        data(0, ("INSERT", None, {"id": 1, "n": 5})),
        data(1, ("INSERT", None, {"id": 2, "n": 6}), ("INSERT", None, {"id": 3, "n": "six"})),
        data(2, ("INSERT", None, {"id": 4, "n": "7"})),
    )
    assert [(row["frame_seq"], row["row"]) for row in rows if row["error"] is None] == [
        (0, {"id": 1, "n": 5}),
        (2, {"id": 4, "n": 7}),
    ]
    assert [(row["frame_seq"], row["error"]["reason"]) for row in rows if row["error"]] == [
        (1, "unfit_value in n: 'six' does not fit: it is to be bigint")
    ]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (rowset(["id", "a"], [[1, "x"]]), "other_columns: "),
        (rowset(["id", "b", "a"], [[1, "x", "y"]]), "other_columns: "),
        (b"/15 2:1 1 2 :1 +1 x", "other_columns: "),
        (rowset(FOO.names, [["x", None, None]]), "unfit_value in id: 'x' does not fit"),
        (rowset(FOO.names, [[1, b"\x00", None]]), r"unfit_value in a: b'\x00' does not fit"),
        (framed("{}"), "bad_frame at byte 0: "),
    ],
)
def test_a_frame_of_a_snapshot_that_is_not_as_described_is_one_error(body: bytes, reason: str) -> None:
    (row,) = rows_of(reader(), (4, "snapshot", body))
    assert (row["frame_seq"], row["op"]) == (4, None)
    assert row["error"]["reason"].startswith(reason)


def test_chunks_after_the_first_have_the_columns_that_were_described() -> None:
    frames = [(0, b"/24 1:1 1 2 +2 id+1 a:1 +1 x"), (1, b"/15 2:1 1 2 :2 +1 y"), (2, b"/6 0 0 0 ")]
    pair = described("foo", {"id": "INTEGER", "a": "TEXT"}, ["id"])
    rows = rows_of(reader(pair), *((position, "snapshot", body) for position, body in frames))
    assert [(row["frame_seq"], row["op"], row["key"], row["row"]) for row in rows] == [
        (0, "snapshot", {"id": 1}, {"id": 1, "a": "x"}),
        (1, "snapshot", {"id": 2}, {"id": 2, "a": "y"}),
    ]


def test_keys_of_a_nocase_table_are_in_lower_case() -> None:
    names = described("foo", {"k": "TEXT", "v": "TEXT"}, ["k"])
    rows = rows_of(
        reader(names, table={"key_collation": "nocase"}),
        (0, "snapshot", rowset(["k", "v"], [["AÉ", "V"]])),
        (1, "data", notification(("UPDATE", ["A"], {"k": "a", "v": "V"}), ("DELETE", ["B"], {}), keys=("k",))),
    )
    assert [(row["key"], row["old_key"], row["row"]) for row in rows] == [
        ({"k": "aÉ"}, None, {"k": "aÉ", "v": "V"}),
        ({"k": "a"}, None, {"k": "a", "v": "V"}),
        ({"k": "b"}, None, None),
    ]


def test_a_generated_column_is_no_column_of_the_table_whoever_tells_it() -> None:
    made = Description("foo", (*FOO.columns, TableColumn("c", "TEXT", hidden=3)), ("id",))
    (row,) = rows_of(reader(made), data(0, ("UPDATE", None, {"id": 1, "c": "x"})))
    assert (row["row"], row["present"]) == ({"id": 1, "a": None, "b": None}, ["id"])


def test_messages_are_rows_and_what_is_none_is_an_error() -> None:
    message = framed('{"sender":0,"channel":"c","type":"MESSAGE","payload":"x"}')
    found = pa.Table.from_batches(list(MESSAGES.changes([3, 4, 5], [message, notification(), b"!5 {}\0"]))).to_pylist()
    assert [(row["frame_seq"], row["ordinal"], row["op"], row["row"]) for row in found] == [
        (3, 0, "insert", {"sender": "0", "payload": "x"}),
        (4, None, None, None),
        (5, None, None, None),
    ]
    assert [row["error"] and row["error"]["reason"].split(":")[0] for row in found] == [
        None,
        "unknown_kind",
        "bad_frame at byte 0",
    ]


IDS = st.integers(0, 3)
TEXTS = st.sampled_from([None, "x", "y", 1, 2.0, 0.1, True])


@st.composite
def histories(draw: st.DrawFn) -> list[list[tuple[str, list[Any] | None, dict[str, Any]]]]:
    """Draw notifications that any source might send, sense or none."""

    def entry() -> tuple[str, list[Any] | None, dict[str, Any]]:
        op = draw(st.sampled_from(["INSERT", "UPDATE", "UPDATE", "DELETE"]))
        if op == "DELETE":
            return op, [draw(IDS)], {}
        columns = draw(st.dictionaries(st.sampled_from(["a", "b"]), TEXTS))
        return op, [draw(IDS)] if op == "UPDATE" and draw(st.booleans()) else None, {"id": draw(IDS), **columns}

    return [[entry() for _ in range(draw(st.integers(0, 3)))] for _ in range(draw(st.integers(0, 5)))]


@given(histories(), st.sampled_from(["old", "new"]), st.sampled_from(["partial", "full"]))
def test_both_ways_of_reading_come_to_one_table(
    history: list[list[tuple[str, list[Any] | None, dict[str, Any]]]], dialect: str, update_columns: str
) -> None:
    snapshot = (0, "snapshot", rowset(FOO.names, [[0, "p", 5], [1, None, 1.5], [2, "r", "s"]]))
    frames = [
        (at, "data", framed(table_text("foo", ["id"], entries, dialect))) for at, entries in enumerate(history, 1)
    ]
    changing = reader(snapshot_end=len(frames) + 1, update_columns=update_columns)
    state = after({}, changes_of(rows_of(changing, snapshot, *frames)), columns=FOO.names)
    options = SqliteCloudOptions.model_validate({"update_columns": update_columns})
    reference = SqliteCloudReferenceReader("foo", SqliteCloudTable(), options)
    reference.control(control(FOO))
    fold = TableFold(reference.keys)
    for position, _, body in (snapshot, *frames):
        fold.apply(reference.changes(1, [(position, body)]), reference.columns)
    assert {(row["id"],): row for row in fold.all_rows()} == {
        key: {name: cells[name] for name in FOO.names} for key, cells in state.items()
    }
