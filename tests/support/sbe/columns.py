"""Checks decoded columns against the decoder of single messages."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from silverfold.conf.errors import WireError
from silverfold.connectors.wire.sbe.codec.decode import MessageReader
from silverfold.connectors.wire.sbe.codec.values import SetValue
from silverfold.connectors.wire.sbe.columnar.decode import Columns, arrow_schema, decode_columns
from silverfold.connectors.wire.sbe.columnar.options import ColumnOptions
from silverfold.connectors.wire.sbe.schema.model import Body, Composite, Encoding, Enum, Primitive, Scalar, Schema
from silverfold.connectors.wire.sbe.schema.text import codec


class NaN:
    """A NaN that equals itself."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NaN)

    def __hash__(self) -> int:
        return 0


def assert_columns_as_single(schema: Schema, bodies: Sequence[bytes], options: ColumnOptions | None = None) -> Columns:
    """Assert that every message is in the columns, or among the errors, exactly as when decoded alone."""
    options = options or ColumnOptions()
    columns = decode_columns(schema, bodies, options=options)
    rows: dict[str, list[tuple[int, Any]]] = {}
    errors = []
    reader = MessageReader(
        schema, text=options.text, strict=options.strict, max_empty_entries=options.max_empty_entries
    )
    for index, body in enumerate(bodies):
        try:
            decoded = reader.read(body)
        except WireError as error:
            errors.append((index, error.error_class, error.reason, error.element, error.offset, str(error)))
        else:
            row = row_of(decoded.message, decoded.values, options)
            rows.setdefault(decoded.message.name, []).append((index, row))
    assert [tuple(error.values()) for error in columns.errors.to_pylist()] == errors
    assert list(columns.rows) == [name for name in columns.rows if name in rows]
    assert set(columns.rows) == set(rows)
    for name, expected in rows.items():
        origin, table = columns.rows[name]
        table.validate(full=True)
        assert table.schema == arrow_schema(schema, name, options)
        assert origin.tolist() == [number for number, _ in expected]
        for row, (_, wanted) in zip(table.to_pylist(), expected, strict=True):
            assert comparable(row) == comparable(wanted), (row, wanted)
    return columns


def row_of(body: Body, values: Mapping[str, Any], options: ColumnOptions) -> dict[str, Any]:
    """Return the row of the decoded values, with None for absent ones."""
    row = {field.name: _column(field.encoding, values.get(field.name), options) for field in body.fields}
    for group in body.groups:
        entries = values.get(group.name)
        row[group.name] = None if entries is None else [row_of(group, entry, options) for entry in entries]
    return row | {data.name: _text(values.get(data.name), data.charset, options) for data in body.data}


def _column(encoding: Encoding, value: Any, options: ColumnOptions) -> Any:
    match encoding, value:
        case Composite(), dict():
            return {
                member.name: _column(member.encoding, value.get(member.name), options) for member in encoding.members
            }
        case _, SetValue():
            return value.names if options.sets == "names" else value.raw
        case Enum(), int():
            return str(value)
        case Scalar(primitive=Primitive.FLOAT), float():  # a constant may be more precise than four bytes
            return struct.unpack("<f", struct.pack("<f", value))[0]
        case _, str() if type(encoding).__name__ in {"Scalar", "Array"}:
            return _text(
                value, getattr(encoding, "charset", None) or "ascii", options, getattr(encoding, "constant", 0)
            )
    return value


def _text(value: Any, charset: str | None, options: ColumnOptions, constant: Any = None) -> Any:
    if isinstance(value, str) and options.text == "bytes" and not constant:
        return value.encode(codec(charset or "ascii") or "ascii")
    return value


def comparable(value: Any) -> Any:
    """Return the values with NaN equal to itself and -0.0 distinct from 0.0."""
    match value:
        case dict():
            return {name: comparable(element) for name, element in value.items()}
        case list():
            return [comparable(element) for element in value]
        case float() if math.isnan(value):
            return NaN()
        case float():
            return value.hex()
    return value
