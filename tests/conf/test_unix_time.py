"""Times and the numbers that stand for them, exact to the microsecond, before 1970 too."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone

import pytest

from silverfold.conf.unix_time import now_micros, timestamp_micros, unix_micros, unix_millis


@pytest.mark.parametrize(
    ("moment", "micros", "millis"),
    [
        (datetime(1970, 1, 1, tzinfo=UTC), 0, 0),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), -1, -1),
        (datetime(2023, 11, 14, 22, 13, 20, 1_999, tzinfo=UTC), 1_700_000_000_001_999, 1_700_000_000_001),
        (datetime(1, 1, 1, tzinfo=UTC), -62_135_596_800_000_000, -62_135_596_800_000),
        (datetime.max.replace(tzinfo=UTC), 253_402_300_799_999_999, 253_402_300_799_999),  # a float would round it up
    ],
)
def test_a_time_and_its_number_stand_for_each_other(moment: datetime, micros: int, millis: int):
    assert (unix_micros(moment), unix_millis(moment)) == (micros, millis)
    assert timestamp_micros(micros) == moment
    assert timestamp_micros(micros).tzinfo is UTC


def test_a_time_in_any_zone_has_one_number():
    assert unix_micros(datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))) == 0


def test_a_number_beyond_the_last_year_has_no_time():
    with pytest.raises(OverflowError):
        timestamp_micros(253_402_300_800_000_000)


def test_now_is_between_two_looks_at_the_clock():
    before = time.time_ns() // 1000
    assert before <= now_micros() <= time.time_ns() // 1000
