"""Values of one column in many HRecords at once, with numpy. A value that does not fit marks its record as odd.

Each function returns an array with null where the member is absent or null, or its record is odd.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from silverfold.connectors.common.change_rows import Bools
from silverfold.connectors.hstreamdb.decoder.struct_members import (
    ABSENT,
    BOOLEAN,
    NULL,
    NUMBER,
    TEXT,
    Members,
    StructBuffer,
)
from silverfold.connectors.hstreamdb.decoder.values import FIRST_MICROS, LAST_MICROS, NOT_SENT
from silverfold.connectors.hstreamdb.protocol.records import EXACT

_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""The years 1 to 9999."""
Doubles: TypeAlias = npt.NDArray[np.float64]


def integers(buffer: StructBuffer, found: Members, *, least: int, most: int) -> pa.Array:
    """Return integers of a range, as int64."""
    numbers = _numbers(buffer, found)
    is_number = found.kind == NUMBER
    with np.errstate(invalid="ignore"):  # a signalling NaN, which is unlike itself as any other
        is_whole = np.floor(numbers) == numbers
    fits = (numbers >= max(least, 1 - EXACT)) & (numbers <= min(most, EXACT - 1)) & is_whole
    _only(buffer, found, is_number & fits)
    return pa.array(np.where(fits, numbers, 0).astype(np.int64), mask=~is_number)


def epoch_days(buffer: StructBuffer, found: Members) -> pa.Array:
    """Return days since 1970, as int32."""
    return integers(buffer, found, least=_FIRST_DAY, most=_LAST_DAY).cast(pa.int32())


def epoch_millis(buffer: StructBuffer, found: Members) -> pa.Array:
    """Return microseconds since 1970 for milliseconds, as int64."""
    return pc.multiply(integers(buffer, found, least=FIRST_MICROS // 1000, most=LAST_MICROS // 1000), 1000)


def epoch_micros(buffer: StructBuffer, found: Members) -> pa.Array:
    """Return microseconds since 1970, as int64."""
    return integers(buffer, found, least=FIRST_MICROS, most=LAST_MICROS)


def doubles(buffer: StructBuffer, found: Members) -> pa.Array:
    """Return any numbers."""
    is_number = found.kind == NUMBER
    _only(buffer, found, is_number)
    return pa.array(_numbers(buffer, found), mask=~is_number)


def floats(buffer: StructBuffer, found: Members) -> pa.Array:
    """Return numbers as float32. One that only this makes infinite does not fit."""
    numbers = _numbers(buffer, found)
    is_number = found.kind == NUMBER
    with np.errstate(over="ignore"):
        narrowed = numbers.astype(np.float32)
    _only(buffer, found, is_number & (np.isinf(narrowed) == np.isinf(numbers)))
    return pa.array(narrowed, mask=~is_number)


def booleans(buffer: StructBuffer, found: Members, *, has_numbers: bool = False) -> pa.Array:
    """Return booleans.

    Args:
        has_numbers: Whether 0 and 1 are booleans too. The negative zero is not.
    """
    is_boolean = found.kind == BOOLEAN
    values = is_boolean & (buffer.at(np.where(is_boolean, found.start, 0)) == 1)
    if has_numbers:
        numbers = _numbers(buffer, found)
        is_one = (found.kind == NUMBER) & (numbers == 1)
        is_zero = (found.kind == NUMBER) & (numbers == 0) & ~np.signbit(numbers)
        values, is_boolean = values | is_one, is_boolean | is_one | is_zero
    _only(buffer, found, is_boolean)
    return pa.array(values, mask=~is_boolean)


def texts(buffer: StructBuffer, found: Members) -> pa.Array:
    """Return texts. `NOT_SENT` marks its record as odd. Raises pyarrow.ArrowInvalid if one is not UTF-8."""
    read = buffer.texts(found.start, found.end, found.kind == TEXT)
    buffer.odd |= np.asarray(pc.fill_null(pc.equal(read, NOT_SENT), False))
    _only(buffer, found, found.kind == TEXT)
    return read


def _numbers(buffer: StructBuffer, found: Members) -> Doubles:
    return np.where(found.kind == NUMBER, buffer.doubles(np.where(found.kind == NUMBER, found.start, 0)), 0.0)


def _only(buffer: StructBuffer, found: Members, good: Bools) -> None:
    """Mark records as odd whose value is there, not null, and not good."""
    buffer.odd |= (found.kind != ABSENT) & (found.kind != NULL) & ~good
