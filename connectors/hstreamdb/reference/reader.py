"""Reference reader: parses landed batches record by record, to verify silver independently.

It shares the wire codec and the settings with the build. JSON, layouts and types are read anew, by other means: every
number is an exact decimal here.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, localcontext
from typing import Any, Final, NoReturn

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.common.key_span import EVERY_KEY, KeySpan
from silverfold.connectors.frames import ControlFrame
from silverfold.connectors.hstreamdb.options import INTEGERS, HStreamOptions, HStreamTable
from silverfold.connectors.hstreamdb.protocol.frames import KeyedRecord, decode_batch, parse_frame
from silverfold.connectors.hstreamdb.protocol.records import HRecord, Record
from silverfold.connectors.verification import ReferenceChange

_PLACEHOLDER: Final = "__debezium_unavailable_value"
_DAY: Final = timedelta(days=1)
_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DIGITS: Final = 400
"""Most digits of a number that is read."""
_LEVELS: Final = 300
"""Most objects and lists in one another, as JSON text."""


@dataclass
class HStreamReferenceReader:
    """A `connectors.verification.ReferenceReader` of one table's stream."""

    table: HStreamTable
    options: HStreamOptions
    _floors: Mapping[int, int] = field(init=False, default_factory=dict)

    @property
    def keys(self) -> tuple[str, ...]:
        """The configured keys."""
        return self.table.keys

    @property
    def columns(self) -> tuple[str, ...]:
        """The configured columns."""
        return tuple(self.table.columns)

    def control(self, frame: ControlFrame) -> None:
        """Note committed floors: what comes again from below them is left out, since nobody may be able to read it."""
        self._floors = committed_floors(json.loads(frame.body))

    def changes(
        self, epoch: int, frames: Iterable[tuple[int, bytes]], within: KeySpan = EVERY_KEY
    ) -> Iterator[ReferenceChange]:
        """Yield the changes of frames; see `connectors.verification.ReferenceReader.changes`."""
        for position, body in frames:
            received = parse_frame(body)
            if any(0 < each.batch_id <= self._floors.get(each.shard_id, 0) for each in received.record_ids[:1]):
                continue
            for found in decode_batch(received, limit=self.options.max_batch_bytes).records:
                yield from self.record_changes(found, position)

    def record_changes(self, found: KeyedRecord, position: int = 0) -> Iterator[ReferenceChange]:
        """Yield the changes of one record. Raises InvalidValue."""
        if found.error is not None:
            raise found.error
        assert found.record is not None
        shard_id, batch_id, index = found.id
        sequence = "-".join([str(shard_id).zfill(20), str(batch_id).zfill(20), str(index).zfill(10)])
        for op, key, row in self._members_changes(_parse(found.record)):
            yield ReferenceChange(op, position, key, row, sequence=sequence)

    def _members_changes(self, members: Any) -> Iterator[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
        """Yield operation, key and row of the changes in a record's members."""
        layout: str = self.table.layout
        if layout in ("auto", "unwrapped", "envelope") and isinstance(members, Mapping):
            members = members["payload"] if sorted(members) == ["payload", "schema"] else members
        if not isinstance(members, Mapping):
            _refuse("not_object")
        layout = self._detected(members) if layout == "auto" else layout
        if layout == "unwrapped":
            key = self._key(members.get("key"))
            if "value" in members and members["value"] is None:
                yield "delete", key, {}
            else:
                yield "update", *self._keyed(members.get("value"), key)
        elif layout == "envelope":
            yield from self._enveloped(members)
        elif layout == "operation":
            yield from self._named(members)
        else:
            yield "update", *self._keyed(members)

    def _detected(self, members: Mapping[str, Any]) -> str:
        if {"key", "value"} <= set(members) and isinstance(members["key"], Mapping):
            return "unwrapped"
        if members.get("op") in list("cudrtm") and {"before", "after"} & set(members):
            return "envelope"
        return "operation" if self._operation(members) else "row"

    def _enveloped(self, members: Mapping[str, Any]) -> Iterator[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
        op = members.get("op")
        if op not in list("cudrm"):
            _refuse("unsupported_op" if op == "t" else "unknown_op")
        if op == "d":
            yield "delete", self._key(members.get("before")), {}
        elif op != "m":
            key, row = self._keyed(members.get("after"))
            before = members.get("before") if op == "u" else None
            yield from self._left(before, key, row)
            yield "insert" if op == "c" and len(row) == len(self.columns) else "update", key, row

    def _named(self, members: Mapping[str, Any]) -> Iterator[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
        op = self._operation(members) or _refuse("unknown_op")
        if self.table.operation_form == "flat":
            row = {name: value for name, value in members.items() if name != self.table.operation_member}
            members = {"row": row}
        key = self._key(members["key"]) if "key" in members else None
        if op == "delete":
            yield op, self._key(members.get("row")) if key is None else key, {}
            return
        key, cells = self._keyed(members.get("row"), key)
        yield from self._left(members.get("old_key"), key, cells)
        yield op, key, dict.fromkeys(self.columns) | cells if op == "insert" else cells

    def _operation(self, members: Mapping[str, Any]) -> str | None:
        """Return the operation named, in small letters; None if none of the three is. Only ASCII has two cases here."""
        word = members.get(self.table.operation_member)
        found = re.fullmatch("insert|update|delete", word, re.ASCII | re.IGNORECASE) if isinstance(word, str) else None
        return found and found[0].lower()

    def _left(
        self, before: Any, key: tuple[Any, ...], row: Mapping[str, Any]
    ) -> Iterator[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
        """Yield the delete of a row that moves from another key."""
        if isinstance(before, Mapping) and all(before.get(name) is not None for name in self.keys):
            old = self._key(before)
            if old != key and len(row) < len(self.columns):
                _refuse("partial_key_move")
            if old != key:
                yield "delete", old, {}

    def _keyed(self, row: Any, key: tuple[Any, ...] | None = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the key, if none is given that of the row, and the columns sent, the key's included."""
        if not isinstance(row, Mapping):
            _refuse("bad_value")
        sent = {name: value for name, value in row.items() if name in self.columns and value != _PLACEHOLDER}
        typed = {name: self._typed(name, value) for name, value in sent.items()}
        if key is None:
            key = self._key(sent)
        named = dict(zip(self.keys, key, strict=True))
        if not self.table.trust_key and any(typed.get(name, value) != value for name, value in named.items()):
            _refuse("key_mismatch")
        return key, typed | named

    def _key(self, members: Any) -> tuple[Any, ...]:
        if not isinstance(members, Mapping) or not set(self.keys) <= set(members):
            _refuse("missing_key")
        key = tuple(self._typed(name, members[name]) for name in self.keys)
        return _refuse("null_key") if None in key else key

    def _typed(self, name: str, value: Any) -> Any:
        if value is None:
            return None
        kind, encoding = self.table.columns[name], self.table.encoding(name)
        try:
            return _typed(kind.partition("(")[0], encoding, value, kind)
        except (ValueError, ArithmeticError, RecursionError) as error:
            raise InvalidValue(f"column {name} cannot be {kind}", reason="wrong_type", element=name) from error


def committed_floors(content: Mapping[str, Any]) -> Mapping[int, int]:
    """Return, per shard, the batch up to which all had landed before a control frame of this content."""
    return {int(shard_id): int(batch_id) for shard_id, batch_id in content["offsets"].items()}


def _parse(record: Record) -> Any:
    if isinstance(record, HRecord):
        return record.fields
    try:
        found = json.loads(record.payload.decode(), parse_float=_number, parse_constant=_refuse)
        json.dumps(found, ensure_ascii=False, default=str).encode()  # a text with half a surrogate pair is none
    except (ValueError, RecursionError) as error:
        raise InvalidValue("a raw record is no JSON text", reason="bad_json") from error
    return found


def _number(text: str) -> Any:
    try:
        return Decimal(text)
    except ArithmeticError:  # its exponent is beyond all decimals: no column takes it
        return ...


def _typed(kind: str, encoding: str | None, value: Any, declared: str) -> Any:
    found: Any
    match kind, encoding:
        case (("float" | "double"), None):
            found = _double(value, narrow=kind == "float")
        case "boolean", (None | "zero_one"):
            numbers = (0, 1) if encoding and not isinstance(value, float) else ()
            found = value if isinstance(value, bool) else bool(numbers.index(_exact_number(value)))
        case "string", None:
            found = _string(value)
        case "string", "json_text":
            found = _json(value)
        case "binary", "base64":
            found = base64.b64decode(_string(value).encode("ascii"), validate=True)
        case "decimal", ("text_decimal" | "base64_decimal"):
            found = _scaled(value, encoding == "base64_decimal", *map(int, declared[8:-1].split(",")))
        case (("date" | "timestamp"), "iso8601"):
            found = _iso(_string(value), is_date=kind == "date")
        case "date", "epoch_days":
            found = _BEGINNING.date() + _DAY * _whole(value, 64)
        case "timestamp", ("epoch_millis" | "epoch_micros"):
            found = _BEGINNING + timedelta(microseconds=_whole(value, 64) * (1000 if encoding == "epoch_millis" else 1))
        case _:
            found = _whole(value, INTEGERS[kind])  # no other kind is an integer
    return found


def _json(value: Any, level: int = 1) -> str:
    """Return a value as JSON, members sorted, decimals by their digits."""
    if isinstance(value, Mapping | list) and level > _LEVELS:
        _refuse("too_deep")
    if isinstance(value, Mapping):
        return "{" + ",".join([f"{_json(name)}:{_json(value[name], level + 1)}" for name in sorted(value)]) + "}"
    if isinstance(value, list):
        return "[" + ",".join([_json(each, level + 1) for each in value]) + "]"
    if isinstance(value, Decimal):
        return str(value)
    return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_double)


def _exact_number(value: Any) -> Decimal:
    """Return a number exactly; one of a double that may have been rounded is refused."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        _refuse("wrong_type")
    if isinstance(value, float) and not abs(value) < 1 << 53:  # NaN is not less either
        _refuse("integer_not_exact")
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)


def _whole(value: Any, bits: int) -> int:
    if isinstance(value, Mapping):
        digits = value["$numberLong"] if list(value) == ["$numberLong"] else None
        if (
            not isinstance(digits, str)
            or len(digits) > 20
            or not digits.isascii()
            or not digits.removeprefix("-").isdigit()
        ):
            _refuse("wrong_type")
        value = int(digits)
    number = _exact_number(value)
    if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1) or int(number) != number:
        _refuse("value_out_of_range")
    return int(number)


def _double(value: Any, *, narrow: bool = False) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        _refuse("wrong_type")
    number = float(value)
    if math.isinf(number) and not isinstance(value, float):
        _refuse("value_out_of_range")
    (single,) = struct.unpack("<f", struct.pack("<f", number)) if narrow else (number,)
    return float(single)


def _scaled(value: Any, is_encoded: bool, precision: int, scale: int) -> Decimal:
    with localcontext(prec=_DIGITS):
        if is_encoded:
            octets = base64.b64decode(_string(value).encode("ascii"), validate=True)
            if not 1 <= len(octets) <= 32:
                _refuse("wrong_type")
            number = Decimal(int.from_bytes(octets, "big", signed=True)).scaleb(-scale)
        elif isinstance(value, str):
            if not all(
                part.isascii() and 1 <= len(part) <= 80 and part.isdigit()
                for part in value.removeprefix("-").split(".", 1)
            ):
                _refuse("wrong_type")
            number = Decimal(value)
        else:
            number = _exact_number(value)
        exact = number.quantize(Decimal(1).scaleb(-scale))
        if exact != number or abs(exact) >= Decimal(10) ** (precision - scale):
            _refuse("value_out_of_range")
        return exact


def _iso(text: str, *, is_date: bool) -> date | datetime:
    if is_date:
        return date(*_numbers(text, "-", 4, 2, 2))
    day, time = text[:10], text[11:]
    if len(text) < 20 or text[10] not in "T " or not text.isascii():
        _refuse("wrong_type")
    clock, zone = (time[:-1], "+00:00") if time.endswith("Z") else (time[:-6], time[-6:])
    hours_minutes_seconds, point, fraction = clock.partition(".")
    if (point and not (1 <= len(fraction) <= 9 and fraction.isdigit())) or zone[0] not in "+-":
        _refuse("wrong_type")
    offset_hours, offset_minutes = _numbers(zone[1:], ":", 2, 2)
    year, month, day_of_month = _numbers(day, "-", 4, 2, 2)
    hours, minutes, seconds = _numbers(hours_minutes_seconds, ":", 2, 2, 2)
    moment = datetime(year, month, day_of_month, hours, minutes, seconds, tzinfo=UTC)
    if offset_hours > 23 or offset_minutes > 59:
        _refuse("wrong_type")
    offset = timedelta(hours=offset_hours, minutes=offset_minutes)
    micros = timedelta(microseconds=int(f"{fraction:0<6}"[:6]))
    return moment + micros - offset if zone[0] == "+" else moment + micros + offset


def _numbers(text: str, separator: str, *lengths: int) -> list[int]:
    parts = text.split(separator)
    if [len(part) for part in parts] != list(lengths) or not all(part.isascii() and part.isdigit() for part in parts):
        _refuse("wrong_type")
    return [int(part) for part in parts]


def _string(value: Any) -> str:
    return value if isinstance(value, str) else _refuse("wrong_type")


def _refuse(reason: str) -> NoReturn:
    raise InvalidValue("a record cannot be read", reason=reason)
