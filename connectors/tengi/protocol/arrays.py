"""Arrays of numbers as fields: one number after another, big endian, without their count. Their types write it."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from silverfold.conf.errors import InvalidValue

_N = TypeVar("_N", bound=np.generic)
Numbers: TypeAlias = npt.NDArray[_N]
"""An array of one dimension."""
AnyNumbers: TypeAlias = npt.NDArray[np.number[Any]] | Sequence[float]
"""What can be written: for a sequence numpy takes eight times as long as struct, which takes long for an array."""

_CODES: Final[Mapping[type[np.generic], str]] = {
    np.int16: "h",
    np.int32: "i",
    np.int64: "q",
    np.float32: "f",
    np.float64: "d",
}
"""Codes of struct, which checks what it packs."""


def encode_numbers(values: AnyNumbers, kind: type[np.number[Any]]) -> bytes:
    """Return numbers as bytes. Raises InvalidValue, ``out_of_range``: one does not fit the kind, or is no number."""
    try:
        if isinstance(values, np.ndarray):
            return _encode_array(values, np.dtype(kind).newbyteorder(">"))
        return struct.pack(f">{len(values)}{_CODES[kind]}", *values)
    except (struct.error, ValueError, TypeError, ArithmeticError) as error:
        raise InvalidValue(f"an array for {np.dtype(kind)}: {error}", reason="out_of_range") from error


def _encode_array(array: npt.NDArray[Any], wanted: np.dtype[Any]) -> bytes:
    if array.ndim != 1 or array.dtype.kind not in ("iu" if wanted.kind == "i" else "iuf"):
        raise ValueError(f"{array.ndim} dimensions of {array.dtype}")
    if wanted.kind == "i" and array.size and not np.can_cast(array.dtype, wanted):
        least, most, limits = int(array.min()), int(array.max()), np.iinfo(wanted)
        if least < limits.min or most > limits.max:
            raise ValueError(f"values from {least} to {most}")
    with np.errstate(over="raise"):
        return array.astype(wanted).tobytes()


def decode_numbers(octets: bytes, kind: type[_N]) -> Numbers[_N]:
    """Return the numbers of bytes, in a new array of the machine's own byte order."""
    return np.frombuffer(octets, np.dtype(kind).newbyteorder(">")).astype(kind)
