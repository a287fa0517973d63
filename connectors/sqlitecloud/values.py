"""Gives SQLite's values the type of their silver column.

SQLite is dynamically typed: a column's declared type says what its values are turned into where that is possible, not
what they are (SQLite, "Datatypes In SQLite", section 3.1). Where the settings say nothing, silver has

=====================================  =========  ==================================================================
declared type                          silver     takes
=====================================  =========  ==================================================================
contains INT                           bigint     integers of 64 bits, texts of their digits, reals that are whole
contains CHAR, CLOB or TEXT            string     texts; numbers as their text
contains BLOB                          binary     blobs
contains REAL, FLOA or DOUB            double     numbers; what is too large is infinity
any other, as NUMERIC, BOOLEAN, DATE   string     as above. Nothing is lost: no text there looks like a number
none                                   string     as above; as a key texts only, since 1 and '1' are two keys there
=====================================  =========  ==================================================================

Setting ``types`` may ask besides for boolean (0, 1, true, false) and decimal(precision, scale), which takes numbers and
their texts where no digit is lost. A value that does not fit is an error that tells it, never NULL. Nor does one fit a
key where another key of the source would come to the same value: such as '01' beside '1' as a bigint, or, in a column
without a type that is to be a string, '1' beside 1.
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

from conf.errors import InvalidValue
from connectors.sqlitecloud.control import Description, TableColumn
from connectors.sqlitecloud.messages import SIGNED_64
from connectors.sqlitecloud.options import BlobForm, SqliteCloudOptions, SqliteCloudTable
from connectors.sqlitecloud.payload import Members, json_text

_WHOLE: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)
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
        blob: How notifications spell blobs.
        is_key: It is part of the key.
        is_mixed: Part of the key, and its source may hold both a number and the text of its digits.
        texts_only: Of kind ``string``: numbers do not fit.
        nocase: Texts are put into lower case, as far as they are ASCII.
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
        """Its type in Arrow."""
        if self.kind.startswith("decimal"):
            return pa.decimal128(*self._digits)
        return _ARROW[self.kind]

    def value(self, value: Any, *, sent: bool) -> Any:
        """Return a value as Arrow gives silver's to Python.

        Args:
            sent: It comes from a notification; else it is a cell of a snapshot.

        Raises:
            InvalidValue: ``unfit_value``: it does not fit. What was found is told.
        """
        if value is None:
            return None
        try:
            typed = self._typed(value, sent=sent)
        except (ValueError, ArithmeticError) as error:
            raise self._unfit(value, str(error)) from error
        if typed is None:
            hint = "; set options.blob" if self.kind == "binary" and sent and self.blob == "error" else ""
            raise self._unfit(value, f"it is to be {self.kind}{hint}")
        if self.is_key and not self._names_one(value, typed):
            raise self._unfit(value, f"as {self.kind}, another key would be the same")
        return typed.translate(_LOWER) if self.nocase and self.kind == "string" else typed

    def array(self, values: Sequence[Any], *, sent: bool) -> tuple[pa.Array, dict[int, InvalidValue]]:
        """Return the values as one array, and which of them, by their index, do not fit: those are null in it."""
        is_looked_at = self.nocase or self.is_mixed or (sent and self.kind == "binary")
        if self._quick.issuperset(set(map(type, values))) and not is_looked_at:
            try:
                return pa.array(values, self.arrow), {}
            except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
                pass  # one of them does not fit: each is looked at
        typed, unfit = [], {}
        for index, value in enumerate(values):
            try:
                typed.append(self.value(value, sent=sent))
            except InvalidValue as error:
                unfit[index] = error
                typed.append(None)
        return pa.array(typed, self.arrow), unfit

    @cached_property
    def _quick(self) -> frozenset[type]:
        """Types of which Arrow makes what we would, or refuses."""
        return frozenset({NoneType, *_AS_IS.get(self.kind, ())})

    @property
    def _digits(self) -> tuple[int, int]:
        precision, scale = re.findall("[0-9]+", self.kind)
        return int(precision), int(scale)

    def _typed(self, value: Any, *, sent: bool) -> Any:
        if self.kind == "binary":
            return _of_form(value, self.blob) if sent else value if type(value) is bytes else None
        if self.kind == "string":
            return _spelt(value, self.texts_only)
        if self.kind.startswith("decimal"):
            return _decimal(value, *self._digits)
        return _TYPED[self.kind](value)

    def _names_one(self, value: Any, typed: Any) -> bool:
        """Tell whether no other key of the source comes to the same value."""
        if type(value) is float and self.kind == "string" and self.is_mixed:
            return not value.is_integer()  # 1.0 is the key 1, whose text is another
        if type(value) is not str:
            return self.kind != "double" or typed == value
        if self.kind == "string":
            return not (self.is_mixed and _spells_number(value))
        return self.kind == "binary" or (not self.is_mixed and value == _shortest(typed))

    def _unfit(self, value: Any, why: str) -> InvalidValue:
        kept = json_text(value) if isinstance(value, list | Members) else repr(value)
        return InvalidValue(f"{kept[:_SHOWN]} does not fit: {why}", reason=_UNFIT, element=self.name)


def columns_of(described: Description, table: SqliteCloudTable, options: SqliteCloudOptions) -> tuple[Column, ...]:
    """Return the silver columns of a table, in its order."""
    return tuple(_column(column, described.keys, table, options) for column in described.selected)


def silver_type(declared: str) -> str:
    """Return the type that silver has of a declared one, without settings."""
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


def _whole(value: Any) -> int | None:
    if (type(value) is str and _WHOLE.fullmatch(value)) or (type(value) is float and value.is_integer()):
        value = int(value)
    return value if type(value) is int and value in SIGNED_64 else None


def _real(value: Any) -> float | None:
    if type(value) is not int:
        return value if type(value) is float else None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _spelt(value: Any, texts_only: bool) -> str | None:
    """Return a text, or what is none as one: a number in its shortest spelling, other JSON as it is.

    Raises UnicodeEncodeError, a ValueError, for half of a pair of surrogates, which JSON can escape.
    """
    if type(value) is str:
        spelt = value
    elif texts_only or type(value) not in (int, float, bool, list, dict, Members):
        return None
    elif type(value) in (int, float):
        spelt = _INFINITE.get(value) or repr(value)
    else:
        spelt = json_text(value)
    spelt.encode()
    return spelt


def _spells_number(text: str) -> bool:
    """Tell whether a number would be spelt so, by `_spelt`."""
    try:
        number = int(text) if text.lstrip("-").isdecimal() else float(text)
    except ValueError:
        return False
    return _spelt(number, texts_only=False) == text


def _shortest(number: int | Decimal) -> str:
    """Return the digits of a number: no zero that could be left out."""
    if not number or isinstance(number, int):
        return str(int(number))
    digits = format(number, "f")
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def _truth(value: Any) -> bool | None:
    return bool(value) if type(value) in (bool, int) and value in (0, 1) else None


def _decimal(value: Any, precision: int, scale: int) -> Decimal | None:
    if type(value) in (int, float) or (type(value) is str and _NUMBER.fullmatch(value)):
        exact = Decimal(repr(value) if type(value) is float else value)
        shift = exact.as_tuple().exponent
        if exact.is_finite() and exact.copy_abs() < Decimal(1).scaleb(precision - scale) and isinstance(shift, int):
            digits = Decimal(exact).scaleb(scale, _WIDE)
            return exact.quantize(Decimal(1).scaleb(-scale), context=_WIDE) if digits == int(digits) else None
    return None


def _of_form(value: Any, form: BlobForm) -> bytes | None:
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
"""In the order in which SQLite looks for them."""

_ARROW: Final = {
    "bigint": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
}
_AS_IS: Final = {"bigint": (int,), "double": (int, float), "string": (str,), "binary": (bytes,), "boolean": (bool,)}
_TYPED: Final[dict[str, Callable[[Any], Any]]] = {"bigint": _whole, "double": _real, "boolean": _truth}
_WIDE: Final = Context(prec=200)
_INFINITE: Final = {math.inf: "Infinity", -math.inf: "-Infinity"}
