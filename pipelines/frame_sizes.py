"""How many bytes landed frames have, as far as files tell: what bounds a cut by bytes.

Bronze's small columns do not have the size of a body, but each file's footer has that of all its bodies together: a
frame counts as the mean of its file.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from pyarrow.parquet import FileMetaData

from pipelines.bronze_table import SCHEMA

_BODY = SCHEMA.get_field_index("body")


@dataclass
class FrameSizes:
    """The mean size of the frames of each file that was seen.

    Args:
        means: By the smallest position of a file.
    """

    means: dict[int, float] = field(default_factory=dict)

    def see(self, first: int, footer: FileMetaData) -> None:
        """Take in a file, whose smallest position is given."""
        groups = map(footer.row_group, range(footer.num_row_groups))
        size = sum(group.column(_BODY).total_uncompressed_size for group in groups)
        self.means[first] = size / max(footer.num_rows, 1)

    def of(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return about how many bytes the frame at each position has; 0 of one whose file was not seen."""
        firsts = np.array(sorted(self.means), np.int64)
        means = np.array([0.0, *(self.means[first] for first in firsts.tolist())])
        found: npt.NDArray[np.float64] = means[np.searchsorted(firsts, positions, side="right")]
        return found
