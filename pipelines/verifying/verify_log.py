"""The feed's list of verifications: what `silverfold verify` found of each table, in ``_silverfold/<feed>/verified``.

Only verdicts and counts are recorded, never keys or cells. Losing the list loses what reports show of the past.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from silverfold.pipelines.storage import ledger

if TYPE_CHECKING:
    from silverfold.pipelines.places import Places
    from silverfold.pipelines.verifying.verify import Verification

SCHEMA: Final = pa.schema(
    [
        ("at", pa.timestamp("us", "UTC")),
        ("against", pa.string()),
        ("table", pa.string()),
        ("verdict", pa.string()),
        ("reason", pa.string()),
        ("position", pa.int64()),
        ("delta_version", pa.int64()),
        ("found_rows", pa.int64()),
        ("missing_rows", pa.int64()),
        ("extra_rows", pa.int64()),
        ("different_cells", pa.int64()),
    ]
)


@dataclass(frozen=True, kw_only=True)
class Verified:
    """What one run of verify found of one table; see `pipelines.verifying.verify.TableVerification`.

    Args:
        at: When the run began.
        against: ``bronze`` or ``source``.
        table: Its name, or that of its history.
    """

    at: datetime
    against: str
    table: str
    verdict: str
    reason: str | None
    position: int | None
    delta_version: int | None
    found_rows: int | None
    missing_rows: int | None
    extra_rows: int | None
    different_cells: int | None


def record(places: Places, found: Verification) -> None:
    """Add a verification to the list. Raises StoreUnavailable."""
    of_table = [name for name in SCHEMA.names if name not in ("at", "against")]
    rows = [
        Verified(at=found.at, against=found.against, **{name: getattr(each, name) for name in of_table})
        for each in found.tables
    ]
    ledger.append(places.verified(found.feed), SCHEMA, [asdict(row) for row in rows])


def last_verified(places: Places, feed: str) -> Sequence[Verified]:
    """Return the last verification of each table against bronze, and against the source, by name.

    Raises StoreUnavailable.
    """
    rows = ledger.read(places.verified(feed), SCHEMA).sort_by("at").to_pylist()
    newest = {(row["table"], row["against"]): Verified(**row) for row in rows}
    return [newest[key] for key in sorted(newest)]
