"""Every type in every encoding is read alike: one by one, by columns from both forms of records, by the reference."""

from __future__ import annotations

import json
from typing import Any, Final

import pyarrow as pa
import pytest
from google.protobuf.struct_pb2 import Struct

from silverfold.conf.errors import WireError
from silverfold.connectors.hstreamdb.decoder.changes import read_json
from silverfold.connectors.hstreamdb.decoder.column_changes import ColumnChanges
from silverfold.connectors.hstreamdb.decoder.kinds import KINDS
from silverfold.connectors.hstreamdb.decoder.landed_records import landed_records
from silverfold.connectors.hstreamdb.decoder.layouts import RecordReader
from silverfold.connectors.hstreamdb.decoder.struct_columns import StructColumns
from silverfold.connectors.hstreamdb.decoder.text_columns import TextColumns
from silverfold.connectors.hstreamdb.options import ENCODINGS, Encoding, HStreamTable
from silverfold.connectors.hstreamdb.protocol.frames import parse_frame
from silverfold.connectors.hstreamdb.protocol.messages.batches import Flag
from silverfold.connectors.hstreamdb.reference.reader import HStreamReferenceReader
from silverfold.pipelines.verifying.compare import same
from tests.support.hstreamdb.landed import entry, feed_of, frame_of, table_of

REFUSED: Final = "refused"
DECLARED: Final = {"decimal": "decimal(10, 2)"}
FITTING: Final[dict[tuple[str, Encoding | None], list[Any]]] = {
    ("tinyint", None): [-128, 127],
    ("smallint", None): [-(1 << 15), (1 << 15) - 1],
    ("int", None): [-(1 << 31), (1 << 31) - 1],
    ("bigint", None): [1 - (1 << 53), (1 << 53) - 1],
    ("float", None): [0.1, 1e38, 16_777_217],
    ("double", None): [0.1, 1e300],
    ("boolean", None): [True, False],
    ("boolean", "zero_one"): [True, 0, 1],
    ("decimal", "text_decimal"): ["-1.50", "0"],
    ("decimal", "base64_decimal"): ["AP8=", "/w=="],
    ("date", "iso8601"): ["2024-02-29"],
    ("date", "epoch_days"): [-1, 19_000],
    ("timestamp", "iso8601"): ["2024-01-01T00:00:00.1234567+02:00"],
    ("timestamp", "epoch_millis"): [-1, 1_700_000_000_001],
    ("timestamp", "epoch_micros"): [-1, 1_700_000_000_000_001],
    ("string", None): ["", "é", "null"],
    ("string", "json_text"): ["a", ""],
    ("binary", "base64"): ["AP8=", ""],
}
"""Values that fit, for each of which records of either form are read by columns."""
OTHERS: Final = [
    *[None, True, False, 0, 1, -0.0, 0.5, 2.25, 3.0, 200, -719_163, 2_932_897, 2**31, 2**53, 1e10, 1e39, 1e300, -1e20],
    *["", "1", "x", "1.234", "1e5", "=", "2023-02-30", "2023-02-28", "2024-01-01T00:00:00Z", "2024-01-01 00:00:00"],
    *[[1], {}, {"$numberLong": "12"}, {"$numberLong": "x"}, {"b": 1, "a": [None, "é"]}],
]
EVERY: Final = [(name, encoding) for name, encodings in ENCODINGS.items() for encoding in encodings]


def encoded(value: Any, *, raw: bool) -> bytes:
    if raw:
        return entry(json.dumps({"id": 1, "v": value}).encode(), Flag.RAW)
    struct = Struct()
    struct.update({"id": 1, "v": value})
    return entry(struct.SerializeToString(), Flag.JSON)


def table(name: str, encoding: Encoding | None) -> HStreamTable:
    columns = {"id": "bigint", "v": DECLARED.get(name, name)}
    encodings = {} if encoding is None else {"v": encoding}
    return table_of({"keys": ["id"], "columns": columns, "encodings": encodings, "layout": "row"})


def by_columns(reader: RecordReader, frame: bytes, *, raw: bool) -> Any:
    """Return the value that the reader of many records finds; `REFUSED` if it leaves the record to be read alone."""
    landed = landed_records(5, parse_frame(frame), limit=1 << 20)
    found: ColumnChanges | None
    if raw:
        found = TextColumns(reader).read([each.payload for each in landed.records])
    else:
        found = StructColumns(reader).read([landed])
    return found.cells[1][0].as_py() if found is not None and found.good.all() else REFUSED


def one_by_one(reader: RecordReader, frame: bytes) -> Any:
    (record,) = landed_records(5, parse_frame(frame), limit=1 << 20).records
    try:
        (change,) = reader.changes(read_json(record))
    except WireError:
        return REFUSED
    return pa.array([change.cells["v"]], reader.columns[1].arrow)[0].as_py()


def by_reference(settings: HStreamTable, frame: bytes) -> Any:
    try:
        (change,) = HStreamReferenceReader(settings, feed_of().options).changes(1, [(5, frame)])
    except WireError:
        return REFUSED
    return change.row["v"]


def test_the_decoder_has_every_type_in_every_encoding_and_no_other() -> None:
    assert sorted(map(str, KINDS)) == sorted(map(str, EVERY))


@pytest.mark.parametrize("raw", [True, False], ids=["raw", "hrecord"])
@pytest.mark.parametrize(("name", "encoding"), EVERY)
def test_a_value_is_read_alike_on_every_path(name: str, encoding: Encoding | None, *, raw: bool) -> None:
    settings = table(name, encoding)
    reader = RecordReader(settings)
    for number, value in enumerate([*FITTING[name, encoding], *OTHERS]):
        frame = frame_of([encoded(value, raw=raw)])
        expected, columns = one_by_one(reader, frame), by_columns(reader, frame, raw=raw)
        assert same(by_reference(settings, frame), expected), value
        assert columns == REFUSED or same(columns, expected), value
        if number < len(FITTING[name, encoding]):
            assert REFUSED not in (expected, columns), value
