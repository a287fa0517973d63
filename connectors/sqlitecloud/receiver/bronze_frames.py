"""The frames that an epoch lands. Bodies are unaltered.

==========================  ==========================================================================================
data, ``whole``             a notification; ``stream`` is the table's name, or ``notify:`` plus the channel's
control                     before each snapshot attempt: the table's columns and key (`control.Description`)
snapshot, ``inside``        a frame of the SELECT's result, its end included; ``begin`` for the first one of the epoch
                            without a fence, whose window starts where the table was listened to
``snapshot begin``          ``begin``: from here on notifications overlay the snapshot requested now
``nullable key``            with the description: key columns in which SQLite allows NULL, as it does in most keys;
                            rows with a NULL key are not notified, so only a snapshot can contain them
``other key``               with the description: the configured key, which is not the table's primary key; a table
                            without one is never notified (SQLite's session extension): only snapshots show changes
``snapshot complete``       ``end``, at the end of the window: with its overlay, the snapshot equals the table
``snapshot void``           why it does not; another attempt follows, at once or after ``next_in`` seconds
``fence low``               our message before the SELECT has come back; with a fence a snapshot begins here
``fence high``              our message after the SELECT has come back
``logged in``               the session's uuid, host and database
``listening``               the tables and channels listened to; from here on nothing is missed
``snapshot due``            why a table is read again
``stream suspended``        snapshots of the table broke two connections in a row: none is tried for some seconds
``no schema version``       the server does not report schema changes: a recreated table shows only at a snapshot
``table left out``          why a table of the database is not read
``unknown stream``          once per epoch for each: a notified table that is not yet captured
``no channel``              a warning to the table of a channel: the channel is a table of the database
``bad notification``        landed in its table's stream, but cannot be decoded; the table is read again
``bad frame``               not a frame, or a notification of no known table: its beginning, in base64; the latter also
                            lands in every table's stream, for it may belong to any
``no canary``               the server refuses the channel used to check that notifications still arrive
==========================  ==========================================================================================

Marks are logged once they have landed. The secret of PAUTH never lands.
"""

from __future__ import annotations

from collections.abc import Sequence

from silverfold.conf.errors import SilverfoldError, SourceRefused, WireError
from silverfold.connectors.common.bad_input import MOST_COPIED, bad_input
from silverfold.connectors.frames import Boundary, Frame, Kind, mark
from silverfold.connectors.sqlitecloud.protocol.landed.control import Description
from silverfold.connectors.sqlitecloud.protocol.messages import BadFrame, Notification


def notification_frame(stream: str, notification: Notification) -> Frame:
    """Return the frame of a notification: an update of its own."""
    return Frame(notification.frame, Kind.DATA, Boundary.WHOLE, stream)


def begin_frames(described: Description) -> list[Frame]:
    """Return the frames that restart an attempt: only frames landed after them overlay it."""
    begin = mark("snapshot begin", stream=described.table)._replace(boundary=Boundary.BEGIN)
    return [*description_frames(described), begin]


def description_frames(described: Description) -> list[Frame]:
    """Return the frames that describe a table: its columns and key, and which rows may go unnotified."""
    frames = [Frame(described.to_json(), Kind.CONTROL, stream=described.table)]
    if columns := described.nullable_keys:
        frames.append(mark("nullable key", stream=described.table, level="warning", columns=columns))
    if not described.has_primary_key:
        frames.append(mark("other key", stream=described.table, level="warning", columns=list(described.keys)))
    return frames


def snapshot_frame(stream: str, frame: bytes, *, begins: bool) -> Frame:
    """Return a frame of snapshot rows."""
    return Frame(frame, Kind.SNAPSHOT, Boundary.BEGIN if begins else Boundary.INSIDE, stream)


def complete(stream: str) -> Frame:
    """Return the frame that completes a snapshot."""
    return mark("snapshot complete", stream=stream)._replace(boundary=Boundary.END)


def void(stream: str, reason: str, *, attempts: int, wait: float) -> Frame:
    """Return the mark of a failed snapshot attempt."""
    return mark(
        "snapshot void", stream=stream, level="warning", reason=reason, attempts=attempts, next_in=round(wait, 3)
    )


def suspended(stream: str, seconds: float) -> Frame:
    """Return the mark of a table that is not read for some seconds."""
    return mark("stream suspended", stream=stream, level="warning", seconds=round(seconds, 3))


def left_out(stream: str, refused: SourceRefused) -> Frame:
    """Return the mark of a table that is not captured until the schema changes or it is notified."""
    return mark("table left out", stream=stream, level="warning", reason=f"{refused.code}: {refused.text}")


def bad_notification(stream: str, error: WireError) -> Frame:
    """Return the mark of a landed notification that cannot be decoded."""
    return mark("bad notification", stream=stream, level="warning", error_class=error.error_class, reason=str(error))


def unreadable_frame(stream: str, notification: Notification) -> Frame:
    """Return the start of an unattributable notification as a frame of a table, which blocks that table there."""
    return Frame(notification.frame[:MOST_COPIED], Kind.DATA, Boundary.WHOLE, stream)


def bad_frames(frames: Sequence[BadFrame]) -> list[Frame]:
    """Return the marks of the unreadable input that ended the session."""
    return [bad_frame(bad.frame, bad.error) for bad in frames]


def bad_frame(octets: bytes, error: SilverfoldError) -> Frame:
    """Return the mark of input that cannot be parsed or attributed."""
    return bad_input("bad frame", octets, error, level="warning", size=len(octets))
