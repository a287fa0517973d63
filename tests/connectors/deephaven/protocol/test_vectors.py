"""Golden vectors of single messages: decoded, encoded back, whole, in parts and with bytes after them."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest

from silverfold.conf.errors import OversizedMessage, SilverfoldError, TruncatedMessage, WireError
from silverfold.connectors.deephaven.protocol import control
from silverfold.connectors.deephaven.protocol.columns.decode import decode_column, decode_removed, read_column
from silverfold.connectors.deephaven.protocol.columns.encode import encode_column, encode_removed
from silverfold.connectors.deephaven.protocol.columns.values import Decimals, Fixed, Lists
from silverfold.connectors.deephaven.protocol.frames import FrameCutter, PrefixCounts, frame
from silverfold.connectors.deephaven.protocol.messages import TableSubscribe, TableUnsubscribe
from silverfold.connectors.deephaven.protocol.types import TYPES
from tests.support.deephaven.vectors import VECTORS, Vector, builtin_roles, column_vectors, of_kind

MESSAGES = of_kind("message")
COLUMNS = column_vectors()
REMOVALS = [vector for vector in MESSAGES if vector.expect["message"] == "RowsRemoved"]
ERRORS = of_kind("error")
FRAMING_ERRORS = {"short-frame", "frame-over-buffer-size"}


def names(vectors: list[Vector]) -> list[str]:
    return [vector.name for vector in vectors]


def drain(cutter: FrameCutter) -> list[bytes]:
    return list(iter(cutter.next_body, None))


def normalized(values: list[Any]) -> list[Any]:
    """NaN as the vectors write it."""
    if isinstance(values, list):
        return [normalized(value) for value in values]
    return "NaN" if isinstance(values, float) and math.isnan(values) else values


def raw_values(vector: Vector) -> list[Any]:
    """Chars as code units, decimals as unscaled and scale: the vectors' form."""
    raw = read_column(builtin_roles(), vector.body).values
    if isinstance(raw, Decimals):
        pairs = zip(raw.unscaled(), raw.scales.tolist(), strict=True)
        return [None if unscaled is None else {"unscaled": unscaled, "scale": scale} for unscaled, scale in pairs]
    if isinstance(raw, Fixed) and raw.type.name == "Char":
        return [None if unit == 0xFFFE else unit for unit in raw.values.tolist()]
    if isinstance(raw, Lists) and raw.type.name == "CharArray":
        assert isinstance(raw.elements, Fixed)
        units = [None if unit == 0xFFFE else unit for unit in raw.elements.values.tolist()]
        return [[units.pop(0) for _ in range(count)] for count in raw.counts.tolist()]
    return normalized(decode_column(builtin_roles(), vector.body).values.to_pylist())


def encodable(vector: Vector) -> list[Any]:
    """The vectors' values as `encode_column` takes them."""
    values = vector.expect["values"]
    if vector.expect["message"] == "DecimalColumnData":
        return [None if v is None else Decimal(v["unscaled"]).scaleb(-v["scale"]) for v in values]

    def number(value: Any) -> Any:
        if isinstance(value, list):
            return [number(element) for element in value]
        return math.nan if value == "NaN" else value

    return [number(value) for value in values]


@pytest.mark.parametrize("vector", COLUMNS, ids=names(COLUMNS))
def test_a_column_message_gives_its_rows_and_values(vector: Vector) -> None:
    expect = vector.expect

    column = decode_column(builtin_roles(), vector.body)

    assert (column.subscription_id, column.column_id) == (
        expect["decoded"]["subscriptionId"],
        expect["decoded"]["columnId"],
    )
    assert column.type.message == expect["message"]
    assert column.modified is expect["modified"]
    assert column.row_keys.tolist() == expect["rows"]
    assert column.ranges.tolist() == [[r["startIndex"], r["endIndex"]] for r in expect["decoded"]["ranges"]]
    assert column.warnings == ()
    wanted = [sorted(v) if v else v for v in expect["values"]] if "StringSet" in expect["message"] else expect["values"]
    assert raw_values(vector) == wanted


@pytest.mark.parametrize("vector", COLUMNS, ids=names(COLUMNS))
def test_column_values_are_sound_arrow_arrays_of_the_type_of_the_column(vector: Vector) -> None:
    column = decode_column(builtin_roles(), vector.body)

    column.values.validate(full=True)
    assert column.values.type == column.type.arrow


def test_decimals_keep_their_digits_and_scale_as_text() -> None:
    column = decode_column(builtin_roles(), VECTORS["decimal-column-edges"].body)

    assert column.values.to_pylist() == ["0", "1.2E+4", "12.8", "-12.8", None, "1844674407.3709551616"]


def test_chars_are_text_of_one_code_unit() -> None:
    column = decode_column(builtin_roles(), VECTORS["char-column"].body)

    assert column.values.to_pylist() == ["A", None, "\uffff"]


@pytest.mark.parametrize(
    "vector", [v for v in COLUMNS if "newer" not in v.name and v.expect["rows"]], ids=lambda v: v.name
)
def test_a_column_is_encoded_to_the_bytes_it_was_decoded_from(vector: Vector) -> None:
    column = decode_column(builtin_roles(), vector.body)

    bodies = encode_column(
        builtin_roles(),
        TYPES[vector.expect["message"].removesuffix("ColumnData")],
        encodable(vector),
        subscription_id=vector.expect["decoded"]["subscriptionId"],
        column_id=vector.expect["decoded"]["columnId"],
        modified=vector.expect["modified"],
        ranges=column.ranges,
        limit=65536,
    )

    assert [body.hex() for body in bodies] == [vector.body.hex()]


@pytest.mark.parametrize("vector", REMOVALS, ids=names(REMOVALS))
def test_removed_rows_stay_ranges_and_are_encoded_to_the_same_bytes(vector: Vector) -> None:
    removed = decode_removed(builtin_roles(), vector.body)

    assert removed.subscription_id == 7
    assert [key for first, last in removed.ranges.tolist() for key in range(first, last + 1)] == vector.expect["rows"]
    assert list(encode_removed(builtin_roles(), subscription_id=7, ranges=removed.ranges, limit=65536)) == [vector.body]


def test_control_messages_are_encoded_to_the_bytes_of_their_vectors() -> None:
    roles = builtin_roles()
    subscribe = VECTORS["table-subscribe-two-columns-filter"].body
    request = control.decode_request(roles, subscribe)
    assert isinstance(request, TableSubscribe)

    written = {
        "connection-response": control.encode_connection_response(roles, 65536),
        "table-subscribe-two-columns-filter": control.encode_subscribe(
            roles,
            request.subscription_id,
            request.mode,
            request.table,
            columns=request.columns,
            row_filter=request.filter,
        ),
        "table-subscribe-response": control.encode_subscribe_response(
            roles, 7, [(0, "Sym", TYPES["String"]), (1, "Bid", TYPES["Double"])]
        ),
        "table-unsubscribe": control.encode_unsubscribe(roles, 7),
        "table-unsubscribe-response": control.encode_unsubscribe_response(roles, 7),
        "table-subscription-error": control.encode_subscription_error(roles, 9, "UNKNOWN_TABLE", "no table named Nope"),
        "begin-table-update": control.encode_begin(roles, 7),
        "end-table-update": control.encode_end(roles, 7),
    }

    assert {name: frame(body) for name, body in written.items()} == {name: VECTORS[name].octets for name in written}


def test_requests_are_read_as_their_vectors_say() -> None:
    roles = builtin_roles()

    everything = control.decode_request(roles, VECTORS["table-subscribe-all-columns"].body)
    some = control.decode_request(roles, VECTORS["table-subscribe-two-columns-filter"].body)
    end = control.decode_request(roles, VECTORS["table-unsubscribe"].body)

    assert everything[1:] == (7, "snapshot_with_updates", "Quotes", (), "")
    assert some[1:] == (8, "updates_only", "Quotes", ("Sym", "Bid"), "Sym=`AAPL`")
    assert end == TableUnsubscribe(VECTORS["table-unsubscribe"].body, 7)


def test_responses_are_read_as_their_vectors_say() -> None:
    roles = builtin_roles()

    response = control.decode_subscribe_response(roles, VECTORS["table-subscribe-response"].body)
    refusal = control.decode_subscription_error(roles, VECTORS["table-subscription-error"].body)

    assert response.subscription_id == 7
    assert response.columns == ((0, 100, "Sym", TYPES["String"]), (1, 104, "Bid", TYPES["Double"]))
    assert refusal[1:] == (9, "UNKNOWN_TABLE", "no table named Nope")


@pytest.mark.parametrize("size", [1, 3, 7, 1 << 20])
def test_frames_do_not_depend_on_where_chunks_end(size: int) -> None:
    stream = b"".join(vector.octets for vector in MESSAGES)
    cutter = FrameCutter(header_size=8, counts=PrefixCounts.MESSAGE, largest=65540)
    bodies = []

    for start in range(0, len(stream), size):
        cutter.receive(stream[start : start + size])
        bodies += drain(cutter)

    assert bodies == [vector.body for vector in MESSAGES]


@pytest.mark.parametrize("vector", COLUMNS, ids=names(COLUMNS))
def test_bytes_after_a_column_message_are_a_warning_unless_the_sender_is_newer(vector: Vector) -> None:
    column = decode_column(builtin_roles(), vector.body + b"\0\0")

    assert column.row_keys.tolist() == vector.expect["rows"]
    assert column.warnings == (() if "newer" in vector.name else ("trailing-bytes",))


@pytest.mark.parametrize("vector", COLUMNS, ids=names(COLUMNS))
def test_a_column_message_cut_anywhere_is_an_error_of_ours(vector: Vector) -> None:
    for end in range(len(vector.body)):
        with pytest.raises(WireError) as caught:
            decode_column(builtin_roles(), vector.body[:end])
        assert caught.value.error_class in {"TRUNCATED_MESSAGE", "INVALID_VALUE"}


@pytest.mark.parametrize("vector", [v for v in ERRORS if v.name not in FRAMING_ERRORS], ids=lambda v: v.name)
def test_a_broken_column_message_has_the_named_error(vector: Vector) -> None:
    with pytest.raises(SilverfoldError) as caught:
        decode_column(builtin_roles(), vector.body)

    assert type(caught.value).__name__ == vector.expect["error"]
    assert getattr(caught.value, "reason", None) == vector.expect["reason"]


def test_a_frame_over_the_buffer_size_is_refused_from_its_length_alone() -> None:
    cutter = FrameCutter(header_size=8, counts=PrefixCounts.MESSAGE, largest=65536 + 4)
    cutter.receive(VECTORS["frame-over-buffer-size"].octets[:4])

    with pytest.raises(OversizedMessage) as caught:
        cutter.next_body()

    assert caught.value.reason == "frame-too-large"


def test_a_frame_below_the_header_is_refused() -> None:
    cutter = FrameCutter(header_size=8, counts=PrefixCounts.MESSAGE, largest=65540)
    cutter.receive(VECTORS["short-frame"].octets)

    with pytest.raises(TruncatedMessage) as caught:
        cutter.next_body()

    assert caught.value.reason == "short-frame"
