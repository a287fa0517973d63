"""Compares the interpretation of the same bytes: nulls, constants, charsets, ranges."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from silverfold.connectors.wire.sbe.compare.layouts import charset, charset_name, same, shape
from silverfold.connectors.wire.sbe.compare.ledger import Ledger, Location
from silverfold.connectors.wire.sbe.compare.texts import encoding_text, range_text
from silverfold.connectors.wire.sbe.schema.model import Array, Enum, Field, Member, Presence, Primitive, Scalar
from silverfold.connectors.wire.sbe.schema.primitives import has_limits

_ASCII, _UTF_8 = "ascii", "utf-8"


class Nullable(NamedTuple):
    """Whether an element may be null, in each schema."""

    old: bool
    new: bool


def compare_values(
    ledger: Ledger, location: Location, old: Scalar | Array, new: Scalar | Array, nullable: Nullable
) -> None:
    """Compare numbers or texts of the same shape."""
    old_scalar, new_scalar = _scalar(old), _scalar(new)
    _compare_nulls(ledger, location, old, new, nullable)
    if charset(old) != charset(new):
        ledger.add(f"R34{charset_case(charset(old), charset(new))}", location, old=charset(old), new=charset(new))
    if not (isinstance(old, Array) and old_scalar.primitive in {Primitive.CHAR, Primitive.UINT8}):
        _compare_ranges(ledger, location, old_scalar, new_scalar)


def _compare_nulls(
    ledger: Ledger, location: Location, old: Scalar | Array, new: Scalar | Array, nullable: Nullable
) -> None:
    """Compare null values. A null that only one side has matters if the other side may have it as a value."""
    before, after = _scalar(old).null, _scalar(new).null
    if all(nullable):
        if not same(before, after):
            ledger.add("R31", location, old=before, new=after)
    elif nullable.new and _may_have(old, after):
        ledger.add(f"R31/added{_nan_case(after)}", location, old=f"value {after}", new=f"null value {after}")
    elif nullable.old and _may_have(new, before):
        ledger.add(f"R31/removed{_nan_case(before)}", location, old=f"null value {before}", new=f"value {before}")


def _may_have(encoding: Scalar | Array, number: float) -> bool:
    """Return whether a number is a value of an element that is not nullable.

    Bytes may have any value, and floats without limits may be infinite or NaN, as the codec has it.
    """
    scalar = _scalar(encoding)
    if isinstance(encoding, Array) and scalar.primitive is Primitive.UINT8:
        return True
    return scalar.minimum <= number <= scalar.maximum or not (math.isfinite(number) or has_limits(scalar))


def _nan_case(null: float) -> Literal["", "-nan"]:
    """Return the case of a rule about nulls: NaN is the null of most floats, and a value of few."""
    return "-nan" if math.isnan(null) else ""


def charset_case(old: str, new: str) -> Literal["", "/widened", "/narrowed"]:
    """Return the case of a charset rule that a change falls under."""
    if (charset_name(old), charset_name(new)) == (_ASCII, _UTF_8):
        return "/widened"
    return "/narrowed" if (charset_name(old), charset_name(new)) == (_UTF_8, _ASCII) else ""


class Limits(NamedTuple):
    """Inclusive limits of values."""

    minimum: int | float
    maximum: int | float


def is_narrowed(old: Limits, new: Limits) -> bool:
    """Return whether a value within the old limits may be outside of the new ones."""
    return new.minimum > old.minimum or new.maximum < old.maximum


def _compare_ranges(ledger: Ledger, location: Location, old: Scalar, new: Scalar) -> None:
    limits, others = Limits(old.minimum, old.maximum), Limits(new.minimum, new.maximum)
    if is_narrowed(limits, others):
        ledger.add("R35", location, old=range_text(*limits), new=range_text(*others))
    if is_narrowed(others, limits):
        ledger.add("R36", location, old=range_text(*limits), new=range_text(*others))


def compare_presence(ledger: Ledger, location: Location, old: Presence, new: Presence, nullable: Nullable) -> None:
    """Compare whether a value with bytes may be null.

    Args:
        nullable: By its own presence or another one: of a composite and its first member, either is enough.
    """
    if old is not new and nullable.old is not nullable.new:
        ledger.add("R29" if new is Presence.OPTIONAL else "R30", location, old=old.value, new=new.value)


def compare_constants(ledger: Ledger, location: Location, old: Field | Member, new: Field | Member) -> None:
    """Compare two constants of the same name. An enum constant counts as its number; its name may have another one."""
    if not same(_constant(old), _constant(new)) or _is_another_name(old, new):
        ledger.add("R32", location, old=old.constant, new=new.constant)
    elif not same(old.constant, new.constant):
        ledger.add("R85", location, old=old.constant, new=new.constant)
    elif shape(old.encoding) != shape(new.encoding):
        ledger.add("R41/constant", location, old=encoding_text(old.encoding), new=encoding_text(new.encoding))


def _is_another_name(old: Field | Member, new: Field | Member) -> bool:
    """Return whether the name of the new enum constant stood for another number."""
    return (
        isinstance(old.encoding, Enum) and old.constant != new.constant and new.constant in old.encoding.values.values()
    )


def _constant(part: Field | Member) -> tuple[str, int | float | str | None]:
    encoding, value = part.encoding, part.constant
    if isinstance(encoding, Enum) and isinstance(value, str):
        return "enum", encoding.raw(value)
    return type(value).__name__, value


def _scalar(encoding: Scalar | Array) -> Scalar:
    return encoding.element if isinstance(encoding, Array) else encoding
