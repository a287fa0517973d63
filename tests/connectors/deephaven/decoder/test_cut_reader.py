"""Landed frames of a cut read into columns and removals: every way a frame can be bad, and what the good ones say."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from silverfold.conf.errors import InvalidValue, UnknownTemplate
from silverfold.connectors.base import Undecodable
from silverfold.connectors.deephaven.decoder import cut_reader
from silverfold.connectors.deephaven.decoder.blocks import ADDED, MODIFIED, REMOVED, WideRange
from silverfold.connectors.deephaven.decoder.cut_reader import (
    ColumnCells,
    CutReader,
    LandedFrame,
    Removals,
    read_context,
)
from silverfold.connectors.deephaven.decoder.silver_types import SilverColumn, silver_columns
from silverfold.connectors.deephaven.options import DeephavenOptions, DeephavenTable
from silverfold.connectors.deephaven.protocol import control
from silverfold.connectors.deephaven.protocol.binding import bind
from silverfold.connectors.deephaven.protocol.columns.encode import encode_column, encode_removed
from silverfold.connectors.deephaven.protocol.messages import ColumnInfo
from silverfold.connectors.deephaven.protocol.roles import Roles
from silverfold.connectors.deephaven.protocol.types import TYPES
from silverfold.connectors.deephaven.reference import ReferenceValues
from silverfold.connectors.frames import ControlFrame
from silverfold.connectors.wire.sbe.schema.load import with_byte_order
from tests.support.deephaven.landed_history import ranges_of
from tests.support.deephaven.vectors import VECTORS, builtin_roles

ROLES = builtin_roles()
BIG_ENDIAN = bind(with_byte_order(ROLES.schema, ">"))
COLUMNS = {"Sym": "String", "Qty": "Long", "Side": "Char", "Price": "Decimal", "At": "DateTime"}
TABLE = DeephavenTable(source="Quotes", decimals={"Price": 2})
TRILLION = 10**12


def controls(roles: Roles, epoch: int, first: int) -> list[ControlFrame]:
    infos = [(index, name, TYPES[type_name]) for index, (name, type_name) in enumerate(COLUMNS.items())]
    response = control.encode_subscribe_response(roles, 1, infos)
    return [
        ControlFrame(first, epoch, None, control.encode_connection_response(roles, 65_536)),
        ControlFrame(first + 1, epoch, "quotes", response),
    ]


CONTEXT = read_context([*controls(ROLES, 1, 0), *controls(BIG_ENDIAN, 2, 50)], ROLES)


def reader(*, begins: tuple[int, ...] = (10, 20), lists_ranges: bool = False) -> CutReader:
    subscription = CONTEXT.latest("quotes", 1, before=1000)
    assert subscription is not None
    columns = silver_columns(subscription.columns, DeephavenOptions(), TABLE)
    return CutReader(CONTEXT, begins, columns, lists_ranges=lists_ranges)


def read(*bodies: bytes, epoch: int = 1, lists_ranges: bool = False) -> list[Any]:
    """Read bodies that landed at positions 11, 12, …"""
    frames = [LandedFrame(11 + at, epoch, body) for at, body in enumerate(bodies)]
    return list(reader(lists_ranges=lists_ranges).read(frames))


def column(
    name: str,
    values: Sequence[Any],
    *,
    modified: bool = False,
    subscription_id: int = 1,
    column_id: int | None = None,
    type_name: str | None = None,
    roles: Roles = ROLES,
) -> bytes:
    """Return one message that sends values for rows 5, 6, …"""
    (body,) = encode_column(
        roles,
        TYPES[type_name or COLUMNS[name]],
        values,
        subscription_id=subscription_id,
        column_id=list(COLUMNS).index(name) if column_id is None else column_id,
        modified=modified,
        ranges=ranges_of(range(5, 5 + len(values))),
        limit=65_536,
    )
    return body


def removal(*ranges: tuple[int, int]) -> bytes:
    array = np.array(ranges, np.int64).reshape(-1, 2)
    (body,) = encode_removed(ROLES, subscription_id=1, ranges=array, limit=65_536)
    return body


GOOD = column("Qty", [1, 2])

BAD = {
    "ranges and values differ in number": (VECTORS["bad-range-count"].body, "INVALID_VALUE", "range-count"),
    "a range ends before it begins": (VECTORS["bad-range-order"].body, "INVALID_VALUE", "range-order"),
    "a flag is neither true nor false": (VECTORS["bad-simple-bool"].body, "INVALID_VALUE", "simple-bool"),
    "text that is not UTF-8": (VECTORS["bad-utf8"].body, "INVALID_VALUE", "charset"),
    "a text longer than allowed": (VECTORS["string-length-over-max"].body, "INVALID_VALUE", ""),
    "more entries than bytes": (VECTORS["count-beyond-frame"].body, "INVALID_VALUE", ""),
    "a root block cut off": (VECTORS["truncated-block"].body, "TRUNCATED_MESSAGE", ""),
    "a text cut off": (VECTORS["truncated-vardata"].body, "TRUNCATED_MESSAGE", ""),
    "a column cut off": (GOOD[:-3], "INVALID_VALUE", "13 bytes left"),
    "a header cut off": (GOOD[:5], "TRUNCATED_MESSAGE", ""),
    "no bytes at all": (b"", "TRUNCATED_MESSAGE", ""),
    "another schema": (VECTORS["wrong-schema-id"].body, "INVALID_VALUE", "schema"),
    "a template the schema lacks": (VECTORS["unknown-template"].body, "UNKNOWN_TEMPLATE", ""),
    "a message that is no part of an update": (control.encode_connection_response(ROLES, 9), "UNKNOWN_TEMPLATE", ""),
    "a column id nobody announced": (column("Qty", [1], column_id=9), "REMOTE_PROTOCOL_ERROR", "no column id 9"),
    "a type other than announced": (column("Qty", [1], type_name="Int"), "REMOTE_PROTOCOL_ERROR", "came as Int"),
    "a subscription without response": (column("Qty", [1], subscription_id=7), "INVALID_VALUE", "subscription 7"),
    "half of a surrogate pair": (column("Side", [0xD800]), "INVALID_VALUE", "surrogate"),
    "a decimal with more digits after the point": (
        column("Price", [Decimal("1.005")]),
        "INVALID_VALUE",
        "decimal-scale",
    ),
    "a decimal with too many digits": (column("Price", [Decimal("9" * 37)]), "INVALID_VALUE", "decimal-scale"),
    "a decimal of absurd scale": (column("Price", [Decimal("1E+2000000000")]), "INVALID_VALUE", "decimal-scale"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_frame_is_named_and_the_good_ones_beside_it_are_read(what: str):
    body, error_class, reason = BAD[what]

    before, bad, after = read(GOOD, body, GOOD)

    assert isinstance(bad, Undecodable)
    assert (bad.position, bad.error_class) == (12, error_class)
    assert reason in bad.reason
    assert [type(before), type(after)] == [ColumnCells, ColumnCells]


def test_a_frame_at_which_the_decoder_fails_is_named_and_the_good_ones_beside_it_are_read(monkeypatch):
    decode = cut_reader.decode_column
    bodies = iter([False, True, False])

    def failing(*arguments, **options):
        return {}["Qty"] if next(bodies) else decode(*arguments, **options)

    monkeypatch.setattr(cut_reader, "decode_column", failing)
    before, bad, after = read(GOOD, GOOD, GOOD)

    assert bad == Undecodable(12, "DECODER_FAILED", "KeyError in the decoder")
    assert [type(before), type(after)] == [ColumnCells, ColumnCells]


def test_frames_of_an_epoch_that_never_began_are_bad():
    (bad,) = read(GOOD, epoch=7)

    assert bad == Undecodable(11, "INVALID_VALUE", "no-context: epoch 7 has no connection response")


def test_a_column_message_names_rows_values_update_and_phase():
    added, modified = read(column("Qty", [1, None]), column("Qty", [3], modified=True))

    assert (added.change.column, added.change.update, added.change.phase, added.change.position) == (1, 0, ADDED, 11)
    assert added.change.keys.tolist() == [5, 6]
    assert added.change.values.to_pylist() == [1, None]
    assert (modified.change.phase, modified.change.position) == (MODIFIED, 12)


def test_a_frame_belongs_to_the_last_update_that_began_before_it():
    frames = [LandedFrame(position, 1, GOOD) for position in (10, 19, 20, 35)]

    updates = [found.change.update for found in reader().read(frames) if isinstance(found, ColumnCells)]

    assert updates == [0, 0, 1, 1]


def test_narrow_ranges_are_listed_and_wide_ones_stay_ranges():
    (found,) = read(removal((3, 5), (100, 100 + 4096), (TRILLION, 2 * TRILLION), (9, 9)))

    assert isinstance(found, Removals)
    assert (found.narrow.phase, found.narrow.keys.tolist()) == (REMOVED, [3, 4, 5, 9])
    assert found.wide == (WideRange(0, 11, 100, 4196), WideRange(0, 11, TRILLION, 2 * TRILLION))


def test_a_range_of_as_many_keys_as_may_be_listed_is_listed():
    (found,) = read(removal((100, 100 + 4095)))

    assert (len(found.narrow.keys), found.wide) == (4096, ())


def test_the_widest_range_there_is_stays_a_range():
    (found,) = read(removal((-(2**63), 2**63 - 1)))

    assert (len(found.narrow.keys), found.wide) == (0, (WideRange(0, 11, -(2**63), 2**63 - 1),))


def test_a_frame_that_removes_very_many_keys_keeps_its_ranges():
    ranges = [(at * 10_000, at * 10_000 + 4095) for at in range(300)]

    (found,) = read(removal(*ranges))

    assert (len(found.narrow.keys), len(found.wide)) == (0, 300)
    assert found.wide[299] == WideRange(0, 11, 2_990_000, 2_994_095)


def test_a_log_keeps_every_range():
    (found,) = read(removal((3, 5), (9, 9)), lists_ranges=True)

    assert (len(found.narrow.keys), found.wide) == (0, (WideRange(0, 11, 3, 5), WideRange(0, 11, 9, 9)))


def test_begin_and_end_carry_no_rows():
    assert read(control.encode_begin(ROLES, 1), control.encode_end(ROLES, 1)) == []


def test_each_epoch_is_read_in_its_own_byte_order():
    (found,) = read(column("Qty", [258], roles=BIG_ENDIAN), epoch=2)

    assert found.change.values.to_pylist() == [258]


def test_date_times_become_microseconds_and_those_that_lost_something_are_counted():
    (found,) = read(column("At", [1_000, 1_001, None, -1]))

    assert found.change.values.cast(pa.int64()).to_pylist() == [1, 1, None, -1]
    assert found.truncated == 2


def test_decimals_that_fit_take_the_scale_of_the_setting():
    sent = [Decimal("1.5"), Decimal("-0.10"), Decimal("12E+1"), Decimal("1.500"), None]

    (found,) = read(column("Price", sent))

    assert [str(value) for value in found.change.values.to_pylist()] == ["1.50", "-0.10", "120.00", "1.50", "None"]


@pytest.mark.parametrize("scale", [0, 2, 28, 38])
def test_a_decimal_is_what_was_sent_or_an_error_in_both_readers(scale: int):
    arrow = SilverColumn(ColumnInfo(0, 0, "Price", TYPES["Decimal"]), pa.decimal128(38, scale))
    reference = ReferenceValues(DeephavenOptions(), DeephavenTable(source="Quotes", decimals={"Price": scale}))
    digits = [1, 9, 99, *(10**n + step for n in (10, 37, 38, 39, 75, 76, 450) for step in (-1, 0, 1))]
    for number, exponent in product([0, *digits, *(-each for each in digits)], (0, -2, -28, -38, -39, 2, 20)):
        sent = Decimal(f"{number}E{exponent}")
        scaled = Fraction(number) * Fraction(10) ** (exponent + scale)
        fits = scaled.denominator == 1 and abs(scaled) < 10**38
        for convert in (
            lambda text: arrow.convert(pa.array([text]))[0].to_pylist(),
            lambda text: reference.convert(arrow.info, pa.array([text])),
        ):
            if fits:
                assert convert(str(sent)) == [sent]
                continue
            with pytest.raises(InvalidValue) as caught:
                convert(str(sent))
            assert caught.value.reason == "decimal-scale"
            assert str(sent)[:80] in str(caught.value)


def test_the_newest_response_before_the_end_of_the_cut_says_what_the_columns_are():
    again = control.encode_subscribe_response(ROLES, 2, [(0, "Other", TYPES["Long"])])
    context = read_context([*controls(ROLES, 1, 0), ControlFrame(30, 1, "quotes", again)], ROLES)

    found = [context.latest("quotes", 1, before=before) for before in (1, 2, 30, 31)]

    names = [None if subscription is None else subscription.columns[-1].name for subscription in found]
    assert names == [None, "At", "At", "Other"]


def test_a_column_whose_message_the_schema_lacks_cannot_be_in_a_table():
    with pytest.raises(UnknownTemplate, match="column Odd is sent as template 999"):
        silver_columns([ColumnInfo(0, 999, "Odd", None)], DeephavenOptions(), TABLE)
