"""Arrays of numbers as fields: one number after another, big endian, without their count. Their types write it."""

from __future__ import annotations

from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from silverfold.conf.errors import InvalidValue

_N = TypeVar("_N", bound=np.generic)
Numbers: TypeAlias = npt.NDArray[_N]
"""An array of one dimension."""

_WHOLE: Final = "iu"
_ANY: Final = "iuf"


def encode_numbers(values: npt.ArrayLike, kind: type[np.number[Any]]) -> bytes:
    """Return numbers as bytes. Raises InvalidValue, ``out_of_range``, unless each fits the kind without a cast.

    Args:
        values: A numpy array, at the speed of memory, or a sequence of numbers, at that of `struct`.
    """
    wanted = np.dtype(kind).newbyteorder(">")
    try:
        given = np.asarray(values)
        if given.ndim == 1 and not given.size:
            return b""
        if given.ndim != 1 or given.dtype.kind not in (_WHOLE if wanted.kind == "i" else _ANY):
            raise ValueError(f"not one dimension of numbers, but {given.ndim} of {given.dtype}")
        if wanted.kind == "i" and not np.can_cast(given.dtype, wanted):
            _check_range(given, np.iinfo(kind))
        with np.errstate(over="raise"):
            return given.astype(wanted).tobytes()
    except (ValueError, TypeError, ArithmeticError) as error:
        raise InvalidValue(f"an array for {np.dtype(kind)}: {error}", reason="out_of_range") from error


def decode_numbers(octets: bytes, kind: type[_N]) -> Numbers[_N]:
    """Return the numbers of bytes, in a new array of the machine's own byte order."""
    return np.frombuffer(octets, np.dtype(kind).newbyteorder(">")).astype(kind)


def _check_range(given: npt.NDArray[Any], limits: np.iinfo[Any]) -> None:
    least, most = int(given.min()), int(given.max())
    if least < limits.min or most > limits.max:
        raise ValueError(f"values from {least} to {most}")
