"""Approximate sizes of landed frames, for limiting a cut by bytes.

Bronze's small columns lack the size of a body, but each file's footer has the total size of its bodies. A frame counts
as the mean of its file.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from pyarrow.parquet import FileMetaData

from silverfold.pipelines.landing.bronze_table import SCHEMA

_BODY = SCHEMA.get_field_index("body")


@dataclass
class FrameSizes:
    """The mean frame size of each file seen.

    Args:
        means: Mean size in bytes by the smallest position of a file.
    """

    means: dict[int, float] = field(default_factory=dict)

    def add_file(self, first: int, footer: FileMetaData) -> None:
        """Record a file from its smallest position and its footer."""
        groups = map(footer.row_group, range(footer.num_row_groups))
        size = sum(group.column(_BODY).total_uncompressed_size for group in groups)
        self.means[first] = size / max(footer.num_rows, 1)

    def of(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return the approximate number of bytes of the frame at each position; 0 if its file was not seen."""
        firsts = np.array(sorted(self.means), np.int64)
        means = np.array([0.0, *(self.means[first] for first in firsts.tolist())])
        found: npt.NDArray[np.float64] = means[np.searchsorted(firsts, positions, side="right")]
        return found
