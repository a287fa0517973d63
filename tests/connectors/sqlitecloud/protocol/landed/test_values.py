"""Every value SQLite can hold comes to silver as it is, or is told; both ways of reading agree."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.sqlitecloud.decoder.changes import ChangeReader
from silverfold.connectors.sqlitecloud.options import SqliteCloudOptions, SqliteCloudTable
from silverfold.connectors.sqlitecloud.protocol.landed.payload import Members
from silverfold.connectors.sqlitecloud.protocol.landed.values import Column, columns_of, silver_type
from silverfold.connectors.sqlitecloud.protocol.messages import RawText
from silverfold.connectors.sqlitecloud.reference.reader import SqliteCloudReferenceReader
from silverfold.connectors.sqlitecloud.reference.values import Number, cell_value, column_type, sent_value
from tests.support.sqlitecloud.notices import control, described, framed, rowset, table_text

LARGEST = 2**63 - 1


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        ("INTEGER", "bigint"),
        ("unsigned big int", "bigint"),
        ("CHARINT", "bigint"),
        ("POINT", "bigint"),
        ("VARCHAR(20)", "string"),
        ("TEXT COLLATE NOCASE", "string"),
        ("CLOB", "string"),
        ("BLOB", "binary"),
        ("REAL", "double"),
        ("float", "double"),
        ("DOUBLE PRECISION", "double"),
        ("DECIMAL(10,2)", "string"),
        ("BOOLEAN", "string"),
        ("DATETIME", "string"),
        ("", "string"),
    ],
)
def test_a_declared_type_has_the_silver_type_of_its_affinity(declared: str, kind: str) -> None:
    assert silver_type(declared) == kind
    assert column_type(declared, None) == kind


FITTING: list[tuple[str, Any, Any]] = [
    ("bigint", LARGEST, LARGEST),
    ("bigint", -(2**63), -(2**63)),
    ("bigint", "9007199254740993", 9007199254740993),
    ("bigint", "-5", -5),
    ("bigint", 1.0, 1),
    ("bigint", None, None),
    ("double", 1, 1.0),
    ("double", 0.1, 0.1),
    ("double", 2**53 + 1, 9007199254740992.0),
    ("double", 10**400, math.inf),
    ("double", -(10**400), -math.inf),
    ("double", math.inf, math.inf),
    ("string", "1", "1"),
    ("string", "", ""),
    ("string", 15, "15"),
    ("string", 10**30, "1" + "0" * 30),
    ("string", 0.1, "0.1"),
    ("string", 100.0, "100.0"),
    ("string", 1e22, "1e+22"),
    ("string", math.inf, "Infinity"),
    ("string", -math.inf, "-Infinity"),
    ("boolean", 1, True),
    ("boolean", 0, False),
    ("decimal(5,2)", 999, Decimal("999.00")),
    ("decimal(5,2)", 0.5, Decimal("0.50")),
    ("decimal(5,2)", "-1.25", Decimal("-1.25")),
    ("decimal(38,0)", 10**38 - 1, Decimal(10**38 - 1)),
    ("decimal(2,2)", 0, Decimal("0.00")),
    ("decimal(2,2)", 0.5, Decimal("0.50")),
]
UNFIT: list[tuple[str, Any]] = [
    ("bigint", LARGEST + 1),
    ("bigint", "9223372036854775808"),
    ("bigint", 1.5),
    ("bigint", 1e300),
    ("bigint", math.inf),
    ("bigint", "x"),
    ("bigint", "1.0"),
    ("bigint", ""),
    ("bigint", "٣"),
    ("bigint", b"1"),
    ("double", "1.5"),
    ("double", b"1"),
    ("string", b"text"),
    ("string", RawText(b"\xff")),
    ("string", "\ud800"),
    ("binary", 5),
    ("boolean", 2),
    ("boolean", 1.0),
    ("boolean", "1"),
    ("decimal(5,2)", 1000),
    ("decimal(2,2)", 1),
    ("decimal(5,2)", 0.125),
    ("decimal(5,2)", "0.125"),
    ("decimal(5,2)", math.inf),
    ("decimal(5,2)", "1e2"),
    ("decimal(5,2)", b"1"),
]


@pytest.mark.parametrize(("kind", "value", "expected"), FITTING)
def test_a_value_that_fits_is_of_the_columns_type(kind: str, value: Any, expected: Any) -> None:
    column = Column("c", kind)
    for sent in (True, False):
        array, unfit = column.array([value, None], sent=sent)
        assert (array.type, array.to_pylist(), unfit) == (column.arrow, [expected, None], {})
    found = cell_value("c", kind, value)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(("kind", "value"), UNFIT)
def test_a_value_that_does_not_fit_is_told_and_never_null(kind: str, value: Any) -> None:
    column = Column("c", kind)
    array, unfit = column.array([None, value], sent=False)
    assert (array.to_pylist(), list(unfit)) == ([None, None], [1])
    assert unfit[1].reason == "unfit_value"
    assert unfit[1].element == "c"
    assert repr(value)[:50] in unfit[1].detail
    with pytest.raises(InvalidValue):
        cell_value("c", kind, value)


@pytest.mark.parametrize(
    ("value", "as_string"),
    [
        (True, "true"),
        (False, "false"),
        ([1, "é", None, 1.5], '[1,"é",null,1.5]'),
        (Members([("a", 1), ("a", 2)]), '{"a":1,"a":2}'),
    ],
)
def test_other_json_is_its_text_in_a_column_of_text_and_fits_no_number(value: Any, as_string: str) -> None:
    assert Column("c", "string").value(value, sent=True) == as_string
    for kind in ("bigint", "double", "decimal(5,2)"):
        with pytest.raises(InvalidValue):
            Column("c", kind).value(value, sent=True)


@pytest.mark.parametrize(
    ("form", "sent", "octets"),
    [("base64", "AP8=", b"\x00\xff"), ("hex", "00fF", b"\x00\xff"), ("text", "é", b"\xc3\xa9"), ("hex", "", b"")],
)
def test_a_blob_is_read_in_the_form_that_is_set(form: str, sent: str, octets: bytes) -> None:
    assert Column("c", "binary", form).array([sent, None], sent=True)[0].to_pylist() == [octets, None]
    assert sent_value("c", "binary", sent, form) == octets


@pytest.mark.parametrize(
    ("form", "sent"),
    [
        ("error", "AP8="),
        ("base64", "AP8"),
        ("base64", "A P8="),
        ("hex", "0"),
        ("hex", "0 0"),
        ("hex", "xx"),
        ("text", 5),
        ("text", "\ud800"),
    ],
)
def test_what_is_no_blob_in_the_form_that_is_set_is_told(form: str, sent: Any) -> None:
    with pytest.raises(InvalidValue) as caught:
        Column("c", "binary", form).value(sent, sent=True)
    assert caught.value.reason == "unfit_value"
    with pytest.raises(InvalidValue):
        sent_value("c", "binary", Number(sent) if isinstance(sent, int) else sent, form)


def test_a_blob_of_a_snapshot_needs_no_setting() -> None:
    assert Column("c", "binary").array([b"\x00", None], sent=False)[0].to_pylist() == [b"\x00", None]
    assert cell_value("c", "binary", b"\x00") == b"\x00"


def test_how_blobs_are_spelt_is_said_where_one_is_met() -> None:
    with pytest.raises(InvalidValue, match="set options"):
        Column("c", "binary").value("AP8=", sent=True)


def test_a_key_without_a_type_takes_texts_only_unless_it_is_set_to_text() -> None:
    names = described("t", {"k": "", "v": ""}, ["k"])
    key, value = columns_of(names, SqliteCloudTable(), SqliteCloudOptions())
    assert value.value(1, sent=True) == "1"
    assert key.value("1", sent=True) == "1"
    with pytest.raises(InvalidValue):
        key.value(1, sent=True)
    (as_text, _) = columns_of(names, SqliteCloudTable.model_validate({"types": {"k": "string"}}), SqliteCloudOptions())
    assert as_text.value(1, sent=True) == "1"
    assert as_text.value("one", sent=True) == "one"


KEYS: list[tuple[str, str, list[Any], list[Any]]] = [
    ("TEXT", "bigint", ["1", "-5", "0", "9223372036854775807"], ["01", "-0", "007"]),
    ("TEXT", "decimal(10,2)", ["1.5", "10", "-0.25", "0"], ["1.50", "01.5", "1.0", "-0", "0.00"]),
    ("INTEGER", "double", [1, 2**53, 0.5], [2**53 + 1]),
    ("REAL", "double", [0.1, math.inf], []),
    ("INTEGER", "decimal(20,0)", [1, "9007199254740993", 2.0], []),
    ("", "string", [1, 0.5, "one", "", "1.50", "01"], ["1", "0.5", "-3", "1e+22", "Infinity", 2.0, 1e22]),
    ("", "bigint", [1, 2.0], ["1"]),
    ("BLOB", "string", [1, "one"], ["1"]),
    ("NUMERIC", "string", [1, "1999-01-02"], []),
    ("TEXT", "string", ["1", "01", "0.5"], []),
]


@pytest.mark.parametrize(("declared", "kind", "fitting", "unfit"), KEYS)
def test_what_another_key_would_be_too_fits_no_key_whichever_way_it_is_read(
    declared: str, kind: str, fitting: list[Any], unfit: list[Any]
) -> None:
    table, options = SqliteCloudTable.model_validate({"types": {"k": kind}}), SqliteCloudOptions()
    description = described("t", {"k": declared}, ["k"])
    reader, reference = ChangeReader(description, table, options), SqliteCloudReferenceReader("t", table, options)
    reference.control(control(description))

    def key(at: str, body: bytes) -> Any:
        (row,) = (row for batch in reader.read([1], [at], [body]) for row in batch.to_pylist())
        if row["error"] is not None:
            assert "another key would be the same" in row["error"]["reason"]
            with pytest.raises(InvalidValue):
                list(reference.changes(1, [(1, body)]))
            return None
        assert [change.key for change in reference.changes(1, [(1, body)])] == [tuple(row["key"].values())]
        return row["key"]["k"]

    for value in [*fitting, *unfit]:
        entry = ("INSERT", None, {"k": "@" if value == math.inf else value})
        text = table_text("t", ["k"], [entry], "new").replace('"@"', "9.0e+999")
        found = key("snapshot", rowset(["k"], [[value]])), key("data", framed(text))
        assert [each is not None for each in found] == [value in fitting] * 2, value
        assert found[0] == found[1]


def test_a_column_is_of_the_type_that_is_set() -> None:
    table = SqliteCloudTable.model_validate({"types": {"price": "decimal(10, 2)", "day": "bigint"}})
    found = columns_of(
        described("t", {"id": "INT", "price": "REAL", "day": "DATE"}, ["id"]), table, SqliteCloudOptions()
    )
    assert [column.arrow for column in found] == [pa.int64(), pa.decimal128(10, 2), pa.int64()]


@pytest.mark.parametrize("name", ["int", "decimal(39,0)", "decimal(5,6)", "decimal", "", "string "])
def test_only_types_that_there_are_can_be_set(name: str) -> None:
    with pytest.raises(ValidationError):
        SqliteCloudTable.model_validate({"types": {"c": name}})


ANY = st.one_of(
    st.none(),
    st.integers(-(2**65), 2**65),
    st.floats(allow_nan=False),
    st.text(max_size=4),
    st.decimals(allow_nan=False, allow_infinity=False, places=2).map(str),
    st.integers(-(2**65), 2**65).map(str),
    st.binary(max_size=3),
)
KINDS = st.sampled_from(["bigint", "double", "string", "binary", "boolean", "decimal(5,2)", "decimal(38,10)"])


@given(KINDS, st.lists(ANY, max_size=4))
def test_values_together_one_by_one_and_read_plainly_are_the_same(kind: str, values: list[Any]) -> None:
    array, unfit = Column("c", kind).array(values, sent=False)
    expected: list[Any] = []
    bad = []
    for index, value in enumerate(values):
        try:
            expected.append(cell_value("c", kind, value))
        except InvalidValue:
            expected.append(None)
            bad.append(index)
    assert repr(array.to_pylist()) == repr(expected)
    assert list(unfit) == bad
