"""Records as users write and read them: a JSON object (`HRecord`) or bytes (`RawRecord`), and their ids.

An HRecord travels as a ``google.protobuf.Struct``. Its numbers are IEEE doubles: what these cannot hold is refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self, TypeAlias

from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import ListValue, Struct, Value

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.hstreamdb.protocol.messages import batches

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

EXACT: Final = 1 << 53
"""2^53: a double of this size or more may be another integer, rounded."""
MAX_DEPTH: Final = 30
"""Most levels of nested objects and lists. Parsers of protobuf accept 100 levels, and each of these takes three."""


class RecordId(NamedTuple):
    """Permanent identity of a record; within a shard it is also its order."""

    shard_id: int
    batch_id: int
    batch_index: int

    def __str__(self) -> str:
        return f"{self.shard_id}-{self.batch_id}-{self.batch_index}"

    @classmethod
    def of(cls, found: batches.RecordId) -> Self:
        """Return the id in a message."""
        return cls(found.shard_id, found.batch_id, found.batch_index)

    def to_message(self) -> batches.RecordId:
        """Return the id for a message."""
        return batches.RecordId(shard_id=self.shard_id, batch_id=self.batch_id, batch_index=self.batch_index)


def batch_number(batch_id: int) -> int:
    """Return the number of a batch within an epoch of its shard's log: the low 32 bits. The first is 1."""
    return batch_id & 0xFFFF_FFFF


def batches_between(before: int, last: int) -> int:
    """Count the batches after ``before``, up to ``last``. If the log's epochs differ, count only those of the last."""
    same = before >> 32 == last >> 32
    return max(last - before, 0) if same or before > last else batch_number(last)


def may_miss(after: int, before: int) -> bool:
    """Return whether there may be batches between two. Where an epoch of the log ended, nothing tells."""
    return batches_between(after, before) > 1 or after >> 32 < before >> 32


@dataclass(frozen=True, slots=True)
class HRecord:
    """A record whose payload is a JSON object. Integers come back as int, other numbers as float."""

    fields: Mapping[str, Json]
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def payload(self) -> bytes:
        """The payload as sent. Raises InvalidValue for a value that a Struct cannot hold."""
        return _struct(self.fields, "", 1).SerializeToString()


@dataclass(frozen=True, slots=True)
class RawRecord:
    """A record whose payload is any bytes."""

    payload: bytes
    attributes: Mapping[str, str] = field(default_factory=dict)


Record: TypeAlias = HRecord | RawRecord


def to_record(given: Record | Mapping[str, Json] | bytes) -> Record:
    """Return a record: of an object an HRecord, of bytes a RawRecord."""
    if isinstance(given, HRecord | RawRecord):
        return given
    return RawRecord(given) if isinstance(given, bytes) else HRecord(given)


def encode_record(record: Record, key: str = "") -> batches.HStreamRecord:
    """Return a record's message. The header is always present, as all official producers write it.

    Args:
        key: The partition key; empty for none.

    Raises:
        InvalidValue: A value cannot be sent; ``reason`` and ``element`` say why and where.
    """
    if not isinstance(key, str):  # callers may be untyped, and protobuf takes bytes
        raise InvalidValue(f"a key is a text, no {type(key).__name__}", reason="wrong_type")
    try:
        found = batches.HStreamRecord(payload=record.payload)
        header = found.header  # filled in place: a record takes 1.9 µs beside its payload, and 3.2 if copied
        header.flag = batches.Flag.JSON if isinstance(record, HRecord) else batches.Flag.RAW
        header.key = key
        if record.attributes:
            header.MergeFrom(batches.HStreamRecordHeader(attributes=record.attributes))
    except (UnicodeEncodeError, TypeError) as error:
        detail = f"payloads are bytes, keys and attributes texts of Unicode: {error}"
        raise InvalidValue(detail, reason="wrong_type") from error
    return found


def decode_record(found: batches.HStreamRecord) -> tuple[str, Record]:
    """Return a record's key and the record.

    Raises:
        InvalidValue: It cannot be read; ``reason`` is ``missing_header``, ``unknown_flag`` or ``bad_struct``.
    """
    if not found.HasField("header"):
        raise InvalidValue("a record has no header", reason="missing_header")
    header = found.header
    attributes = dict(header.attributes)
    match header.flag:
        case batches.Flag.RAW:
            return header.key, RawRecord(found.payload, attributes)
        case batches.Flag.JSON:
            return header.key, HRecord(_object(_parse(found.payload)), attributes)
    raise InvalidValue(f"a record has the flag {header.flag}, not 0 or 1", reason="unknown_flag")


def _parse(payload: bytes) -> Struct:
    try:
        return Struct.FromString(payload)
    except DecodeError as error:
        raise InvalidValue("the payload of an HRecord is no Struct", reason="bad_struct") from error


def _struct(fields: Mapping[str, Json], path: str, depth: int) -> Struct:
    if not isinstance(fields, Mapping):
        raise InvalidValue(f"a record is an object or bytes, no {type(fields).__name__}", reason="wrong_type")
    if depth > MAX_DEPTH:
        raise InvalidValue(f"more than {MAX_DEPTH} objects and lists in one another", reason="too_deep", element=path)
    found = Struct()
    for name, value in fields.items():
        if not isinstance(name, str):
            raise InvalidValue(f"a member is called {name!r}, which is no text", reason="wrong_type", element=path)
        try:
            member = found.fields[name]
        except UnicodeEncodeError as error:
            raise _invalid_text(path) from error
        _fill(member, value, f"{path}.{name}" if path else name, depth)
    return found


def _fill(to: Value, value: Json, path: str, depth: int) -> None:
    match value:
        case None:
            to.null_value = 0  # type: ignore[assignment]  # the stub wants the enum's own type, which is an int
        case bool():
            to.bool_value = value
        case int() | float():
            to.number_value = _number(value, path)
        case str():
            try:
                to.string_value = value
            except UnicodeEncodeError as error:
                raise _invalid_text(path) from error
        case Mapping():
            to.struct_value.CopyFrom(_struct(value, path, depth + 1))
        case list() | tuple():
            to.list_value.CopyFrom(_list(value, path, depth + 1))
        case _:
            raise InvalidValue(f"JSON has no {type(value).__name__}", reason="wrong_type", element=path)


def _list(values: Sequence[Json], path: str, depth: int) -> ListValue:
    if depth > MAX_DEPTH:
        raise InvalidValue(f"more than {MAX_DEPTH} objects and lists in one another", reason="too_deep", element=path)
    found = ListValue()
    for number, value in enumerate(values):
        _fill(found.values.add(), value, f"{path}[{number}]", depth)
    return found


def _number(value: float, path: str) -> float:
    if isinstance(value, int) and abs(value) >= EXACT:
        detail = "integers of 2^53 and more change in an HRecord: send a text, or a RawRecord"
        raise InvalidValue(detail, reason="integer_not_exact", element=path)
    if not math.isfinite(value):
        raise InvalidValue(f"JSON has no {value}", reason="not_finite", element=path)
    return float(value)


def _invalid_text(path: str) -> InvalidValue:
    return InvalidValue("a text has half of a surrogate pair", reason="bad_text", element=path)


def _object(found: Struct) -> dict[str, Json]:
    return {name: _value(value) for name, value in found.fields.items()}


def _value(found: Value) -> Json:
    match found.WhichOneof("kind"):
        case "number_value":
            return _exact(found.number_value)
        case "string_value":
            return found.string_value
        case "bool_value":
            return found.bool_value
        case "struct_value":
            return _object(found.struct_value)
        case "list_value":
            return [_value(each) for each in found.list_value.values]
    return None


def _exact(number: float) -> int | float:
    """Return an integer as int, unless it may be a rounded one, or the negative zero."""
    is_integer = number.is_integer() and abs(number) < EXACT and str(number) != "-0.0"
    return int(number) if is_integer else number
