"""Times of messages as timestamps: their units, and those that no timestamp can hold."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from silverfold.conf.errors import ConfigError
from silverfold.connectors.wire.sbe.codec.encode import encode
from tests.support.sbe.basics import message_of
from tests.support.sbe.changes import assert_as_reference, changes
from tests.support.sbe.feed import table

LEGS = message_of(
    '<field name="id" id="1" type="uint8"/><group name="legs" id="2">'
    '<field name="at" id="3" type="uint64" semanticType="UTCTimestamp" presence="optional"/>'
    '<field name="due" id="4" type="stamp"/></group>',
    '<composite name="stamp"><type name="moment" primitiveType="uint8"/>'
    '<composite name="when" semanticType="UTCTimestamp">'
    '<type name="time" primitiveType="int64"/><type name="unit" primitiveType="uint8" presence="constant">3</type>'
    "</composite></composite>",
)


@pytest.mark.parametrize("settings", [{"group": "legs"}, {"keys": ["id"]}, {"keys": ["id"], "groups": "omit"}])
def test_a_time_that_no_timestamp_can_hold_is_an_error_of_its_message(settings):
    def message(at: int | None, due: int) -> bytes:
        legs = [
            {"at": 0, "due": {"moment": 1, "when": {"time": 0}}},
            {"at": at, "due": {"moment": 1, "when": {"time": due}}},
        ]
        return encode(LEGS, "M", {"id": 1, "legs": legs}, tolerant=True)

    bodies = [message(2**64 - 2, 253_402_300_799_999), message(None, 253_402_300_800_000), message(5, -(2**63))]
    made = table(template="M", timestamps=True, **settings)

    errors = {change["frame_seq"]: change["error"] for change in changes(LEGS, "M", made, bodies)}

    assert errors[10] is None
    assert errors[11]["reason"] == (
        "time-range in M.legs[1].due.when: 253402300800000 is a time that a timestamp cannot hold"
    )
    assert errors[12]["reason"].startswith("time-range in M.legs[1].due.when: -9223372036854775808 is a time")
    assert_as_reference(LEGS, "M", made, bodies)


@pytest.mark.parametrize("unit", ["second", "millisecond", "microsecond", "nanosecond"])
def test_times_without_a_unit_in_the_schema_are_in_that_of_the_settings(unit):
    schema = message_of(
        '<field name="at" id="1" type="int64" semanticType="UTCTimestamp"/>'
        '<field name="stated" id="2" type="int64" semanticType="UTCTimestamp" timeUnit="millisecond"/>'
    )
    second = {"second": 1, "millisecond": 10**3, "microsecond": 10**6, "nanosecond": 10**9}[unit]
    body = encode(schema, "M", {"at": 1_700_000_000 * second, "stated": 1_700_000_000_000})
    made = table(template="M", timestamps=True, time_unit=unit)

    (found,) = changes(schema, "M", made, [body])

    moment = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert found["row"] == {"at": moment, "stated": moment}
    assert_as_reference(schema, "M", made, [body])


def test_a_unit_without_timestamps_is_refused():
    with pytest.raises(ConfigError, match="time_unit only with timestamps = true"):
        table(template="M", time_unit="second")
