"""Reads structural composites (header, dimensions, lengths) of many messages at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from connectors.wire.sbe.columnar.byte_arrays import Longs, Octets, gather, stride_of
from connectors.wire.sbe.schema.model import ByteOrder, Role
from connectors.wire.sbe.schema.primitives import TRAITS

_LAST = (1 << 63) - 1


class RoleColumns:
    """Reads members of a structural composite of ``size`` bytes.

    Args:
        roles: The members to read, by name.
    """

    def __init__(self, roles: Mapping[str, Role], size: int, order: ByteOrder) -> None:
        self.size = size
        self._constants = {name: role.constant for name, role in roles.items() if role.constant is not None}
        wire = {name: role for name, role in roles.items() if role.constant is None}
        self._dtype = np.dtype(
            {
                "names": list(wire),
                "formats": [order + TRAITS[role.primitive].code for role in wire.values()],
                "offsets": [role.offset for role in wire.values()],
                "itemsize": size,
            }
        )

    def read(self, octets: Octets, start: Longs) -> dict[str, Longs]:
        """Return each member of the composites at ``start``; numbers above int64 are clamped to its maximum."""
        columns = {name: np.full(len(start), value, np.int64) for name, value in self._constants.items()}
        if self._dtype.names:
            fields = self._fields(octets, start)
            for name in self._dtype.names:
                columns[name] = _longs(fields[name])
        return columns

    def _fields(self, octets: Octets, start: Longs) -> npt.NDArray[Any]:
        stride = stride_of(start)
        if stride:
            return np.ndarray((len(start),), self._dtype, octets, int(start[0]), (stride,))
        return gather(octets, start, self.size).reshape(-1).view(self._dtype)


def _longs(values: npt.NDArray[Any]) -> Longs:
    if values.dtype.kind == "u" and values.dtype.itemsize == 8:
        values = np.minimum(values, np.uint64(_LAST))
    return values.astype(np.int64)
