"""Parses date-times in the texts of row filters to nanoseconds since 1970."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from silverfold.conf.errors import InvalidValue

_MOMENT: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:T(\d\d:\d\d(?::\d\d)?)(?:\.(\d{1,9}))?)?"
    r"(?:Z|([+-])(\d\d):?(\d\d)| ?([A-Za-z][A-Za-z0-9_+/-]*))"
)
_ZONES: Final = {
    "AL": "America/Anchorage",
    "AT": "Canada/Atlantic",
    "BT": "America/Sao_Paulo",
    "CE": "Europe/Berlin",
    "CH": "Europe/Zurich",
    "CT": "America/Chicago",
    "ET": "America/New_York",
    "HI": "Pacific/Honolulu",
    "HK": "Asia/Hong_Kong",
    "IN": "Asia/Kolkata",
    "JP": "Asia/Tokyo",
    "KR": "Asia/Seoul",
    "LON": "Europe/London",
    "MN": "America/Chicago",
    "MOS": "Europe/Moscow",
    "MT": "America/Denver",
    "NF": "Canada/Newfoundland",
    "NL": "Europe/Amsterdam",
    "NY": "America/New_York",
    "PT": "America/Los_Angeles",
    "SG": "Asia/Singapore",
    "SHG": "Asia/Shanghai",
    "SYD": "Australia/Sydney",
    "TW": "Asia/Taipei",
    "UTC": "UTC",
}
"""Deephaven's own short names of time zones."""


def nanoseconds(text: str, position: int) -> int:
    """Return the nanoseconds since 1970 of a text such as ``2017-08-25T13:30:00.5Z`` or ``2017-08-25T09:30 NY``.

    An ambiguous local time is the earlier one; a skipped local time is moved later by the gap.

    Raises:
        InvalidValue: ``filter-type``: not a date-time.
    """
    match = _MOMENT.fullmatch(text)
    try:
        if match is None:
            raise ValueError("expected such as 2017-08-25T13:30:00.5Z, or with +02:00 or a time zone behind")
        zone = _zone(match[4], match[5], match[6], match[7])
        moment = datetime.fromisoformat(f"{match[1]}T{match[2] or '00:00'}").replace(tzinfo=zone)
        seconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
    except (ValueError, OverflowError) as error:
        raise InvalidValue(f"not a date-time: {error}", offset=position, reason="filter-type") from error
    return seconds * 10**9 + int((match[3] or "").ljust(9, "0"))


def _zone(sign: str | None, hours: str | None, minutes: str | None, name: str | None) -> tzinfo:
    if name is not None:
        try:
            return ZoneInfo(_ZONES.get(name, name))
        except (ZoneInfoNotFoundError, OSError):
            raise ValueError(f"no time zone {name}") from None
    if sign is None:
        return UTC
    offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    return timezone(-offset if sign == "-" else offset)
