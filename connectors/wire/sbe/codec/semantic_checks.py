"""Checks values that represent a month, a time of day or a time zone (SBE 1.0, sections 2.7 to 2.9).

A composite is recognized by its member names, which the standard reserves for these uses; a time of day by the semantic
type of its field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from connectors.wire.sbe.schema.model import Composite, Enum, Field, Scalar

_TIMES_OF_DAY = frozenset({"utctimeonly", "tztimeonly"})
_UNITS = {"second": 0, "millisecond": 3, "microsecond": 6, "nanosecond": 9}
"""Decimal places of a second, by value of the field attribute ``timeUnit``."""
_DAY = 86_400

Oddity: TypeAlias = tuple[str, str]
"""Reason and detail of a finding."""


def check_composite(composite: Composite, value: Mapping[str, Any], semantic_type: str | None) -> Iterator[Oddity]:
    """Yield reason and detail of each invalid value in a composite. ``semantic_type`` is that of its field."""
    numbers = {member.name: _number(member.encoding, value.get(member.name)) for member in composite.members}
    if {"year", "month"} <= value.keys():
        yield from _check_month(numbers["year"], numbers["month"])
    if {"timezoneHour", "timezoneMinute"} <= value.keys():
        yield from _check_zone(numbers["timezoneHour"], numbers["timezoneMinute"])
    if _is_time_of_day(semantic_type) and {"time", "unit"} <= value.keys():
        yield from _check_time(numbers["time"], numbers["unit"])


def check_time_of_day(field: Field, value: Any) -> Iterator[Oddity]:
    """Yield reason and detail if an integer field for a time of day has an invalid value."""
    if _is_time_of_day(field.semantic_type) and isinstance(field.encoding, Scalar):
        yield from _check_time(_number(field.encoding, value), _UNITS.get(field.time_unit))


def _is_time_of_day(semantic_type: str | None) -> bool:
    return (semantic_type or "").lower() in _TIMES_OF_DAY


def _number(encoding: Any, value: Any) -> int | None:
    """Return the number of a member; None if it is null or not a number."""
    if isinstance(encoding, Enum) and value in encoding.values.values():
        return encoding.raw(value)
    if not isinstance(value, int) or not isinstance(encoding, Scalar) or value == encoding.null:
        return None
    return value


def _check_month(year: int | None, month: int | None) -> Iterator[Oddity]:
    if year is None or month is None:
        yield "month-year", f"no {'year' if year is None else 'month'}"
    elif not 1 <= month <= 12:
        yield "month-year", f"there is no month {month}"


def _check_zone(hour: int | None, minute: int | None) -> Iterator[Oddity]:
    if hour is None or not -12 <= hour <= 14:
        yield "time-zone", f"hour {hour} is not from -12 to 14"
    if minute is None or not 0 <= minute <= 59:
        yield "time-zone", f"minute {minute} is not from 0 to 59"


def _check_time(time: int | None, unit: int | None) -> Iterator[Oddity]:
    if time is not None and unit is not None and unit in _UNITS.values() and not 0 <= time < _DAY * 10**unit:
        yield "time-of-day", f"{time} is not within one day of units of 1e-{unit} s"
