"""Errors in applying a cut to a silver table."""

from __future__ import annotations

from silverfold.conf.errors.base import SilverfoldError


class ApplyError(SilverfoldError):
    """A cut could not be applied. The silver table is unchanged.

    Args:
        since: Position from which on the error occurs within the cut: any cut that ends after it fails too. None if
            unknown.
    """

    error_class = "APPLY_ERROR"

    def __init__(self, detail: str, *, table: str, since: int | None = None) -> None:
        self.detail, self.table, self.since = detail, table, since
        super().__init__(f"{table}: {detail}")


class DuplicateKey(ApplyError):
    """Two rows of the source have the same configured key."""

    error_class = "DUPLICATE_KEY"


class NullKey(ApplyError):
    """A row of the source has a NULL in its configured key."""

    error_class = "NULL_KEY"


class UnusableKey(ApplyError):
    """The values of a key's type cannot identify rows. Set other ``keys``."""

    error_class = "UNUSABLE_KEY"


class Unexplained(ApplyError):
    """A change updates or deletes a missing row, or inserts an existing one, which the table's settings disallow."""

    error_class = "UNEXPLAINED"


class ExpectationFailed(ApplyError):
    """A row fails a rule whose action is ``fail``, or a rule cannot be evaluated on the row."""

    error_class = "EXPECTATION_FAILED"


class UnusableExpectation(ApplyError):
    """A rule cannot be evaluated: its condition names a missing column, or is not boolean."""

    error_class = "UNUSABLE_EXPECTATION"


class SchemaDrift(ApplyError):
    """The source's columns changed in a way the table cannot follow."""

    error_class = "SCHEMA_DRIFT"


class SnapshotNeeded(ApplyError):
    """The source has a new column and sends partial updates: only a snapshot has the values of older rows.

    Let the receiver reconnect. The table continues with the snapshot it receives.
    """

    error_class = "SNAPSHOT_NEEDED"

    def __init__(self, *, column: str, table: str) -> None:
        self.column = column
        super().__init__(
            f"the source has a new column {column}: a snapshot must tell what older rows have", table=table
        )


class RebuildNeeded(ApplyError):
    """The table or a side table was built with other settings than the current ones; only bronze has the missing data.

    Args:
        undo: An alternative to the rebuild.
    """

    error_class = "REBUILD_NEEDED"

    def __init__(self, reason: str, *, feed: str, table: str, undo: str = "") -> None:
        rebuild = f"run silverfold rebuild {feed} {table}"
        super().__init__(f"{reason}: {f'{undo}, or ' if undo else ''}{rebuild}", table=table)


class Overtaken(ApplyError):
    """Another process wrote the table meanwhile. Retry the uncommitted work from the table's current version."""

    error_class = "OVERTAKEN"
    retryable = True


class PositionNotRecorded(ApplyError):
    """The commit did not move the position in the table's log."""

    error_class = "POSITION_NOT_RECORDED"


class UndecodableFrame(ApplyError):
    """A landed frame cannot be decoded; the table stops before its update.

    Args:
        position: frame_seq of the frame.
        cause_class: ``error_class`` of the decoding error.
    """

    error_class = "UNDECODABLE_FRAME"
    others: tuple[UndecodableFrame, ...] = ()

    def __init__(self, *, table: str, position: int, cause_class: str, reason: str) -> None:
        self.position, self.cause_class, self.reason = position, cause_class, reason
        super().__init__(f"frame {position} cannot be decoded: {cause_class}: {reason}", table=table)
