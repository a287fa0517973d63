"""Conversion of SQLite's values to the types of their silver columns.

SQLite is dynamically typed: a column's declared type determines a preferred conversion, not the type of its values
(SQLite, "Datatypes In SQLite", section 3.1). Without settings, silver has

=====================================  =========  ==================================================================
declared type                          silver     accepts
=====================================  =========  ==================================================================
contains INT                           bigint     64-bit integers, texts of their digits, integral reals
contains CHAR, CLOB or TEXT            string     texts; numbers as their text
contains BLOB                          binary     blobs
contains REAL, FLOA or DOUB            double     numbers; those too large become infinity
any other, as NUMERIC, BOOLEAN, DATE   string     as above. Lossless: no text in such a column looks like a number
none                                   string     as above; in a key texts only, since 1 and '1' are different keys
=====================================  =========  ==================================================================

The setting ``types`` also allows boolean (0, 1, true, false) and decimal(precision, scale), which accepts numbers and
their texts if no digit is lost. A value that does not fit is an error that shows it, never NULL. Nor does a key value
fit if another key of the source would become equal: such as '01' beside '1' as a bigint, or, in an untyped column
configured as string, '1' beside 1.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import cached_property
from types import NoneType
from typing import Any, Final

import pyarrow as pa

from silverfold.conf.errors import InvalidValue
from silverfold.connectors.sqlitecloud.options import BlobForm, SqliteCloudOptions, SqliteCloudTable
from silverfold.connectors.sqlitecloud.protocol.landed.control import Description, TableColumn
from silverfold.connectors.sqlitecloud.protocol.landed.payload import Members, json_text
from silverfold.connectors.sqlitecloud.protocol.messages import SIGNED_64

_INTEGER: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_NUMBER: Final = re.compile(r"-?[0-9]{1,80}(\.[0-9]{1,80})?", re.ASCII)
_HEX: Final = re.compile(r"(?:[0-9a-fA-F]{2})*")
_LOWER: Final = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_SHOWN: Final = 200
_UNFIT: Final = "unfit_value"


@dataclass(frozen=True)
class Column:
    """A column of a silver table. Picklable.

    Args:
        kind: A name of `options.TypeName`.
        blob: The encoding of blobs in notifications.
        is_key: Whether it is part of the key.
        is_mixed: Whether it is part of the key, and its source may hold both a number and the text of its digits.
        texts_only: For kind ``string``: numbers do not fit.
        nocase: ASCII letters in texts are lower-cased.
    """

    name: str
    kind: str
    blob: BlobForm = "error"
    is_key: bool = False
    is_mixed: bool = False
    texts_only: bool = False
    nocase: bool = False

    @cached_property
    def arrow(self) -> pa.DataType:
        """Its Arrow type."""
        if self.kind.startswith("decimal"):
            return pa.decimal128(*self._digits)
        return _ARROW[self.kind]

    def value(self, value: Any, *, sent: bool) -> Any:
        """Convert a value to the Python form of Arrow's silver value.

        Args:
            sent: The value comes from a notification; otherwise it is a cell of a snapshot.

        Raises:
            InvalidValue: ``unfit_value``: it does not fit. The message shows the value.
        """
        if value is None:
            return None
        try:
            typed = self._typed(value, sent=sent)
        except (ValueError, ArithmeticError) as error:
            raise self._unfit_error(value, str(error)) from error
        if typed is None:
            hint = "; set options.blob" if self.kind == "binary" and sent and self.blob == "error" else ""
            raise self._unfit_error(value, f"it is to be {self.kind}{hint}")
        if self.is_key and not self._is_unique(value, typed):
            raise self._unfit_error(value, f"as {self.kind}, another key would be the same")
        return typed.translate(_LOWER) if self.nocase and self.kind == "string" else typed

    def array(self, values: Sequence[Any], *, sent: bool) -> tuple[pa.Array, dict[int, InvalidValue]]:
        """Return the values as one array, null where one does not fit, and the errors of those by index."""
        needs_check = self.nocase or self.is_mixed or (sent and self.kind == "binary")
        if self._exact_types.issuperset(set(map(type, values))) and not needs_check:
            try:
                return pa.array(values, self.arrow), {}
            except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
                pass  # one of them does not fit: check each
        typed, errors = [], {}
        for index, value in enumerate(values):
            try:
                typed.append(self.value(value, sent=sent))
            except InvalidValue as error:
                errors[index] = error
                typed.append(None)
        return pa.array(typed, self.arrow), errors

    @cached_property
    def _exact_types(self) -> frozenset[type]:
        """Python types that Arrow converts as `value` does, or rejects."""
        return frozenset({NoneType, *_AS_IS.get(self.kind, ())})

    @property
    def _digits(self) -> tuple[int, int]:
        precision, scale = re.findall("[0-9]+", self.kind)
        return int(precision), int(scale)

    def _typed(self, value: Any, *, sent: bool) -> Any:
        if self.kind == "binary":
            return _decode_blob(value, self.blob) if sent else value if type(value) is bytes else None
        if self.kind == "string":
            return _as_text(value, self.texts_only)
        if self.kind.startswith("decimal"):
            return _decimal(value, *self._digits)
        return _TYPED[self.kind](value)

    def _is_unique(self, value: Any, typed: Any) -> bool:
        """Return whether no other key of the source has the same converted value."""
        if type(value) is float and self.kind == "string" and self.is_mixed:
            return not value.is_integer()  # 1.0 is the key 1, whose text differs
        if type(value) is not str:
            return self.kind != "double" or typed == value
        if self.kind == "string":
            return not (self.is_mixed and _is_number_text(value))
        return self.kind == "binary" or (not self.is_mixed and value == _shortest_digits(typed))

    def _unfit_error(self, value: Any, why: str) -> InvalidValue:
        shown = json_text(value) if isinstance(value, list | Members) else repr(value)
        return InvalidValue(f"{shown[:_SHOWN]} does not fit: {why}", reason=_UNFIT, element=self.name)


def columns_of(described: Description, table: SqliteCloudTable, options: SqliteCloudOptions) -> tuple[Column, ...]:
    """Return the silver columns of a table, in order."""
    return tuple(_column(column, described.keys, table, options) for column in described.selected)


def silver_type(declared: str) -> str:
    """Return the default silver type of a declared type."""
    upper = declared.upper()
    return next((kind for words, kind in _AFFINITIES if any(word in upper for word in words)), "string")


def _column(column: TableColumn, keys: Sequence[str], table: SqliteCloudTable, options: SqliteCloudOptions) -> Column:
    is_key, wanted = column.name in keys, table.types.get(column.name)
    declared = silver_type(column.type)
    return Column(
        column.name,
        wanted or declared,
        options.blob,
        is_key=is_key,
        is_mixed=is_key and wanted is not None and (declared == "binary" or not column.type),
        texts_only=is_key and not column.type and wanted is None,
        nocase=is_key and table.key_collation == "nocase",
    )


def _integer(value: Any) -> int | None:
    if (type(value) is str and _INTEGER.fullmatch(value)) or (type(value) is float and value.is_integer()):
        value = int(value)
    return value if type(value) is int and value in SIGNED_64 else None


def _real(value: Any) -> float | None:
    if type(value) is not int:
        return value if type(value) is float else None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _as_text(value: Any, texts_only: bool) -> str | None:
    """Return a text unchanged; numbers in their shortest form, other JSON as compact text.

    Raise UnicodeEncodeError, a ValueError, for unpaired surrogates, which JSON can escape.
    """
    if type(value) is str:
        text = value
    elif texts_only or type(value) not in (int, float, bool, list, dict, Members):
        return None
    elif type(value) in (int, float):
        text = _INFINITE.get(value) or repr(value)
    else:
        text = json_text(value)
    text.encode()
    return text


def _is_number_text(text: str) -> bool:
    """Return whether a text equals the text of some number, as `_as_text` converts it."""
    try:
        number = int(text) if text.lstrip("-").isdecimal() else float(text)
    except ValueError:
        return False
    return _as_text(number, texts_only=False) == text


def _shortest_digits(number: int | Decimal) -> str:
    """Return the digits of a number without redundant zeros."""
    if not number or isinstance(number, int):
        return str(int(number))
    digits = format(number, "f")
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def _boolean(value: Any) -> bool | None:
    return bool(value) if type(value) in (bool, int) and value in (0, 1) else None


def _decimal(value: Any, precision: int, scale: int) -> Decimal | None:
    if type(value) in (int, float) or (type(value) is str and _NUMBER.fullmatch(value)):
        exact = Decimal(repr(value) if type(value) is float else value)
        shift = exact.as_tuple().exponent
        if exact.is_finite() and exact.copy_abs() < Decimal(1).scaleb(precision - scale) and isinstance(shift, int):
            digits = Decimal(exact).scaleb(scale, _WIDE)
            return exact.quantize(Decimal(1).scaleb(-scale), context=_WIDE) if digits == int(digits) else None
    return None


def _decode_blob(value: Any, form: BlobForm) -> bytes | None:
    if type(value) is not str or form == "error":
        return None
    if form == "text":
        return value.encode()
    if form == "hex":
        return bytes.fromhex(value) if _HEX.fullmatch(value) else None
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error:
        return None


_AFFINITIES: Final = (
    (("INT",), "bigint"),
    (("CHAR", "CLOB", "TEXT"), "string"),
    (("BLOB",), "binary"),
    (("REAL", "FLOA", "DOUB"), "double"),
)
"""In the order in which SQLite tests them."""

_ARROW: Final = {
    "bigint": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
}
_AS_IS: Final = {"bigint": (int,), "double": (int, float), "string": (str,), "binary": (bytes,), "boolean": (bool,)}
_TYPED: Final[dict[str, Callable[[Any], Any]]] = {"bigint": _integer, "double": _real, "boolean": _boolean}
_WIDE: Final = Context(prec=200)
_INFINITE: Final = {math.inf: "Infinity", -math.inf: "-Infinity"}
