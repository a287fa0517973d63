"""Join the small files of tables that delta-rs writes: bronze and the ledgers.

Two compactions of the same files must not both commit: every row would be there twice. delta-rs (1.6.6) does not
prevent this. Its optimize drops the transactions and the retries it is given, and accepts that files it removes were
removed before, if the other commit only moved rows. It does fail on a change of the table's metadata. So each rewrite
*claims* the table first, by setting a table property to a new value:

- of two concurrent claims, the second conflicts with the first;
- a later claim makes the commit of an earlier claimant fail, however long that one slept;
- a rewrite that committed before the claim is seen by the claimant, who plans from the claim's own version.

An append that was prepared before a claim conflicts with it once: `pipelines.landing.writer` and
`pipelines.storage.ledger` retry.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, PostCommitHookProperties, WriterProperties
from deltalake.exceptions import CommitFailedError

from silverfold.pipelines.places import Place
from silverfold.pipelines.store import naming_the_store, open_table

NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""Checkpoints and clean-up cost more than a commit: `join_files` does both, separately from the commits."""

_CLAIM = "silverfold.rewrite"


def claim(table: DeltaTable, properties: Mapping[str, str] | None = None) -> None:
    """Make the commits of all earlier claimants fail. Rewrite files with this same object.

    Args:
        properties: Table properties to set in the same commit.

    Raises:
        CommitFailedError: Another process claims it at this moment.
    """
    token = uuid.uuid4().hex
    table.alter.set_table_properties(
        {**(properties or {}), _CLAIM: token}, raise_if_not_exists=False, post_commithook_properties=NO_HOOKS
    )
    if table.metadata().configuration[_CLAIM] != token:  # a later claim was read with ours
        raise CommitFailedError("the table was claimed again")


def join_files(place: Place, *, target_size: int, writer_properties: WriterProperties | None = None) -> int:
    """Join small files, write a checkpoint and drop log files past their retention; return the number of files joined.

    Rows and order do not change. Safe alongside appends and other compactions. A compaction that loses a race joins
    nothing, and leaves it for the next time.

    Args:
        target_size: Bytes of the files to make; files of this size are left alone.

    Raises:
        StoreUnavailable: It did not work this time. The table is unchanged.
    """
    table = open_table(place)
    if table is None:
        return 0
    with naming_the_store(place):
        joined = _join(table, target_size, writer_properties)
        table.create_checkpoint()
        table.cleanup_metadata()
    return joined


def _join(table: DeltaTable, target_size: int, writer_properties: WriterProperties | None) -> int:
    if _small_files(table, target_size) < 2:
        return 0
    try:
        claim(table)
        done = table.optimize.compact(
            target_size=target_size,
            max_concurrent_tasks=1,
            writer_properties=writer_properties,
            post_commithook_properties=NO_HOOKS,
        )
    except CommitFailedError:
        return 0
    return int(done["numFilesRemoved"])


def _small_files(table: DeltaTable, target_size: int) -> int:
    # not pa.table(): it loads pandas, which takes longer than all other imports of a receiver
    sizes = pa.RecordBatchReader.from_stream(table.get_add_actions()).read_all()["size_bytes"]
    return pc.sum(pc.less(sizes, target_size)).as_py() or 0
