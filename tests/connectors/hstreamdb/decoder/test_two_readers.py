"""Any records are decoded as the reference reader reads them, many at once or one by one, or refused by both."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from typing import Any

import pytest
from google.protobuf.struct_pb2 import Struct
from hypothesis import given
from hypothesis import strategies as st

from silverfold.conf.errors import WireError
from silverfold.connectors.hstreamdb.decoder.values import NOT_SENT
from silverfold.connectors.hstreamdb.protocol.messages.batches import CompressionType, Flag
from silverfold.connectors.hstreamdb.reference.reader import HStreamReferenceReader
from silverfold.pipelines.verifying.compare import same
from tests.support.hstreamdb.landed import changes_of, entry, feed_of, frame_of, table_of
from tests.support.mutations import mutated

COLUMNS = {
    "id": "bigint",
    "a_longer_name": "int",
    "tiny": "tinyint",
    "real": "double",
    "single": "float",
    "yes": "boolean",
    "bit": "boolean",
    "text": "string",
    "doc": "string",
    "amount": "decimal(10, 2)",
    "bytes": "binary",
    "day": "date",
    "moment": "timestamp",
    "millis": "timestamp",
    "iso": "timestamp",
}
ENCODINGS = {
    "bit": "zero_one",
    "doc": "json_text",
    "day": "epoch_days",
    "moment": "epoch_micros",
    "millis": "epoch_millis",
}
USUAL = {
    "id": st.integers(0, 9),
    "a_longer_name": st.integers(-9, 9),
    "tiny": st.integers(-128, 127),
    "real": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "single": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "yes": st.booleans(),
    "bit": st.sampled_from([0, 1, True, False]),
    "text": st.text(max_size=12) | st.just("e" * 28),
    "doc": st.dictionaries(st.text(max_size=3), st.integers(0, 5), max_size=2) | st.text(max_size=3),
    "amount": st.integers(-99, 99) | st.sampled_from(["1.50", "-0.01", 2.25]),
    "bytes": st.sampled_from(["AP8=", "", "YQ=="]),
    "day": st.integers(-1000, 30_000),
    "moment": st.integers(0, 1 << 50),
    "millis": st.integers(0, 1 << 40),
    "iso": st.sampled_from(["2023-11-14T22:13:20.5+02:00", "2023-11-14 22:13:20Z"]),
}
NUMBERS = [-0.0, 0.5, 3.0, 200, 2**31, -719_163, 3_000_000, 1e300, -1e20, 2**53, -(2**53), 2**53 - 1]
TEXTS = [NOT_SENT, "", "1", "x", "é", "2023-02-30", "1e5", "=", "1.234"]
ODD = st.sampled_from([None, True, *NUMBERS, *TEXTS, [1], {}, {"$numberLong": "12"}, {"$numberLong": "x"}])


@st.composite
def rows(draw: st.DrawFn) -> dict[str, Any]:
    """Return a row: of usual values, with perhaps some missing, some odd, and members that are not declared."""
    row = {name: draw(value) for name, value in USUAL.items()}
    for name in draw(st.lists(st.sampled_from(sorted(COLUMNS)), max_size=2)):
        row.pop(name, None)
    if draw(st.booleans()):
        row[draw(st.sampled_from([*COLUMNS, "other", "ö", "op"]))] = draw(ODD)
    return row


@st.composite
def records(draw: st.DrawFn) -> Any:
    row = draw(rows())
    key = {"id": row.get("id", 1)}
    wrapped = [{"key": key, "value": row}] * 6 + [{"key": key, "value": None}] * 2
    rare = [
        {"key": {"id": 3}, "value": row},
        {"key": key, "value": "x"},
        {"key": {}, "value": row},
        {"key": key, "value": row, "text": "x"},
        {"key": "k", **row},
        {"schema": {}, "payload": {"key": key, "value": row}},
        {"op": "c", "before": None, "after": row, "source": {"ts_ms": 1_700_000_000_000}},
        {"op": "u", "before": {"id": 4}, "after": row},
        {"op": "update", "old_key": {"id": 5}, "row": row},
        {"op": "INSERT", "key": key, "row": row},
        {"op": "x", **row},
    ]
    return draw(st.sampled_from([*wrapped, *[row] * 5, *rare]))


def encoded(record: Any, *, raw: bool, key: str) -> bytes:
    if raw:
        return entry(json.dumps(record, ensure_ascii=False).encode(), Flag.RAW, key)
    struct = Struct()
    struct.update(record)
    return entry(struct.SerializeToString(), Flag.JSON, key)


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    raw = draw(st.sampled_from([[True], [False], [True, False]]))
    key = draw(st.sampled_from(["", "k", "ключ"]))
    entries = [
        encoded(record, raw=draw(st.sampled_from(raw)), key=key)
        for record in draw(st.lists(records(), min_size=1, max_size=8))
    ]
    indexes = sorted(draw(st.sets(st.integers(0, 300), min_size=len(entries), max_size=len(entries))))
    return frame_of(entries, indexes=indexes, compression=draw(st.sampled_from(CompressionType)))


def table(layout: str = "auto", **more: Any) -> Any:
    return table_of({"keys": ["id"], "columns": COLUMNS, "encodings": ENCODINGS, "layout": layout, **more})


def check(settings: Any, frame: bytes) -> None:
    """Both readers find the same changes; or the reference fails, and the decoder has an error."""
    changes, errors = changes_of(settings, {5: frame})
    reader = HStreamReferenceReader(settings, feed_of().options)
    try:
        expected = list(reader.changes(1, [(5, frame)]))
    except WireError:
        assert errors
        return
    assert errors == []
    order = [(each.sequence, each.op != "delete") for each in expected]
    changes.sort(key=lambda each: (each["sequence"], each["op"] != "delete"))
    assert [(each["sequence"], each["op"] != "delete") for each in changes] == sorted(order)
    for found, change in zip(changes, expected, strict=True):
        assert found["op"] == change.op
        assert tuple(found["key"].values()) == change.key
        is_whole = found["present"] is None or change.op == "insert"
        names = list(settings.columns) if is_whole else found["present"]
        row = {} if found["op"] == "delete" else {name: in_utc(found["row"][name]) for name in names}
        assert same({0: row}, {0: dict(change.row)})


def in_utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value


@pytest.mark.parametrize("layout", ["auto", "unwrapped", "row", "envelope", "operation"])
@given(data=st.data())
def test_any_records_are_read_alike(layout: str, data: st.DataObject) -> None:
    check(table(layout, trust_key=data.draw(st.booleans())), data.draw(frames()))


@given(data=st.data())
def test_any_bytes_are_read_alike(data: st.DataObject) -> None:
    check(table(), data.draw(mutated([data.draw(frames())])))


@pytest.mark.parametrize("layout", ["auto", "operation"])
@pytest.mark.parametrize("word", ["Insert", "\u0131nsert", "IN\u017fERT", "insert "])
def test_an_operation_is_named_in_any_letter_case_of_ascii_alone(word: str, layout: str) -> None:
    settings = table(layout, operation_form="flat")
    frame = frame_of([encoded({"op": word, "id": 1}, raw=True, key="")])
    check(settings, frame)
    changes, errors = changes_of(settings, {5: frame})
    expected = ["insert"] if word == "Insert" else ["update"] if layout == "auto" else []
    assert ([each["op"] for each in changes], bool(errors)) == (expected, not expected)


@pytest.mark.parametrize(
    ("doc", "expected"),
    [
        ("12345678901234567.89", "12345678901234567.89"),
        ("9007199254740993.0", "9007199254740993.0"),
        ('{"b": [1e-400, -0.0], "a": 1.10}', '{"a":1.10,"b":[1E-400,-0.0]}'),
        (
            '{"n": 123456789012345678901234567890, "t": "\\"1.50\\""}',
            '{"n":123456789012345678901234567890,"t":"\\"1.50\\""}',
        ),
        ("1e9999999999999999999", None),
    ],
)
@pytest.mark.parametrize("beside", [{"id": 2}, {"op": "INSERT", "row": {"id": 2}}], ids=["by columns", "one by one"])
def test_numbers_in_json_text_have_the_digits_that_were_sent(doc: str, expected: str | None, beside: Any) -> None:
    entries = [entry(b'{"id": 1, "doc": %s}' % doc.encode()), encoded(beside, raw=True, key="")]
    check(table(), frame_of(entries))
    changes, errors = changes_of(table(), {5: frame_of(entries)})
    assert [each["row"]["doc"] for each in changes if each["key"]["id"] == 1] == ([expected] if expected else [])
    assert bool(errors) == (expected is None)


@pytest.mark.parametrize("names", [["key", "value", "op", "payload"], ["payload", "op", "value", "key"]])
@pytest.mark.parametrize("layout", ["auto", "unwrapped", "row"])
@pytest.mark.parametrize("raw", [True, False])
def test_columns_may_be_called_as_the_members_of_layouts_are(names: list[str], layout: str, *, raw: bool) -> None:
    settings = table_of({"keys": ["op"], "columns": dict.fromkeys(names, "string"), "layout": layout})
    row = {name: name[0] for name in names}
    records = [{"key": {"op": "o"}, "value": row}, {"key": {"op": "x"}, "value": None}, row]
    for record in records:
        check(settings, frame_of([encoded(record, raw=raw, key="")]))
    check(settings, frame_of([encoded(record, raw=raw, key="") for record in records[:2]]))


@pytest.mark.parametrize("zone", ["+05:70", "+00:99", "-00:60", "-24:00", "+23:59"])
def test_a_zone_has_at_most_59_minutes(zone: str) -> None:
    frame = frame_of([encoded({"id": 1, "iso": f"2024-01-01T00:00:00{zone}"}, raw=True, key="")])
    check(table(), frame)
    assert bool(changes_of(table(), {5: frame})[1]) == (zone != "+23:59")


@pytest.mark.parametrize("zero", ["0e999999999", "-0.0e-999999999"])
def test_zero_is_zero_whatever_its_exponent(zero: str) -> None:
    frame = frame_of([entry(b'{"id": 1, "tiny": %s, "amount": %s, "day": %s}' % ((zero.encode(),) * 3))])
    check(table(), frame)
    (change,) = changes_of(table(), {5: frame})[0]
    assert (change["row"]["tiny"], change["row"]["amount"], change["row"]["day"]) == (0, 0, date(1970, 1, 1))
