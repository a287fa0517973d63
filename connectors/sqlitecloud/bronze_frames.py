"""What lands of an epoch, frame by frame; bodies as they came.

==========================  ==========================================================================================
data, ``whole``             a notification; ``stream`` is the table's name, or ``notify:`` and the channel's
control                     before each attempt at a snapshot: the table's columns and key (`control.Description`)
snapshot, ``inside``        a frame of the SELECT's answer, its end included; ``begin`` for the first one of the epoch
                            without a fence, whose window goes back to where the table was listened to
``snapshot begin``          ``begin``: from here on notifications overlay the snapshot that is asked for now
``nullable key``            with the description: columns of the key in which SQLite allows NULL, as it does in most
                            keys; it notifies nothing of such rows, so that only a snapshot can have them
``other key``               with the description: the key of the settings, which is not the table's primary key; nothing
                            is notified of a table that has none (SQLite's session extension): only a snapshot tells
``snapshot complete``       ``end``, at the end of the window: with what overlays it, the snapshot is the table
``snapshot void``           why it is not; another attempt follows, at once or after ``next_in`` seconds
``fence low``               our word before the SELECT has come back; with a fence a snapshot begins here
``fence high``              our word behind the SELECT has come back
``logged in``               the session's uuid, and where
``listening``               to what; from here on nothing is missed
``snapshot due``            why a table is read again
``no schema version``       the server does not say when the schema changes: what is made anew shows at a snapshot only
``table left out``          why a table of the database is not read
``unknown stream``          once for each in an epoch: nothing is known of it but what is notified
``bad notification``        it lands in its table's stream, which is read again: it cannot be decoded
``bad frame``               what is no frame, or no notification of anything: its beginning, in base64; the latter lands
                            in every table's stream as well, for it may be of any
``no canary``               the server refuses the channel that tells whether notifications still come
==========================  ==========================================================================================

Marks are logged when they have landed. The secret of PAUTH never lands.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Final

from conf.errors import SilverfoldError, SourceRefused, WireError
from connectors.base import Boundary, Frame, Kind, mark
from connectors.sqlitecloud.control import Description
from connectors.sqlitecloud.messages import BadFrame, Notification

_KEPT: Final = 1 << 16
"""Bytes of a bad frame of which a mark keeps a copy."""


def notified(stream: str, notification: Notification) -> Frame:
    """Return the frame of a notification: an update of its own."""
    return Frame(notification.frame, Kind.DATA, Boundary.WHOLE, stream)


def begun(described: Description) -> list[Frame]:
    """Return the frames by which an attempt starts over: only what lands from here on overlays it."""
    begin = mark("snapshot begin", stream=described.table)._replace(boundary=Boundary.BEGIN)
    return [*told(described), begin]


def told(described: Description) -> list[Frame]:
    """Return the frames that tell a table's columns and key, and of which rows nothing may be notified."""
    frames = [Frame(described.to_json(), Kind.CONTROL, stream=described.table)]
    if columns := described.nullable_keys:
        frames.append(mark("nullable key", stream=described.table, level="warning", columns=columns))
    if not described.has_primary_key:
        frames.append(mark("other key", stream=described.table, level="warning", columns=list(described.keys)))
    return frames


def selected(stream: str, frame: bytes, *, begins: bool) -> Frame:
    """Return a frame of a snapshot's rows."""
    return Frame(frame, Kind.SNAPSHOT, Boundary.BEGIN if begins else Boundary.INSIDE, stream)


def complete(stream: str) -> Frame:
    """Return the frame that ends a snapshot, which is whole."""
    return mark("snapshot complete", stream=stream)._replace(boundary=Boundary.END)


def void(stream: str, reason: str, *, attempts: int, wait: float) -> Frame:
    """Return the mark of a snapshot that does not come to what the table is."""
    return mark(
        "snapshot void", stream=stream, level="warning", reason=reason, attempts=attempts, next_in=round(wait, 3)
    )


def left_out(stream: str, refused: SourceRefused) -> Frame:
    """Return the mark of a table that takes no part until the schema changes, or it is notified."""
    return mark("table left out", stream=stream, level="warning", reason=f"{refused.code}: {refused.text}")


def bad_notification(stream: str, error: WireError) -> Frame:
    """Return the mark of a notification that lands, and cannot be decoded."""
    return mark("bad notification", stream=stream, level="warning", error_class=error.error_class, reason=str(error))


def unreadable(stream: str, notification: Notification) -> Frame:
    """Return the beginning of a notification of nobody knows what, as one of a table's: it holds the table there."""
    return Frame(notification.frame[:_KEPT], Kind.DATA, Boundary.WHOLE, stream)


def bad_frames(frames: Sequence[BadFrame]) -> list[Frame]:
    """Return the marks of what ended the session, because it could not be read."""
    return [bad_frame(bad.frame, bad.error) for bad in frames]


def bad_frame(octets: bytes, error: SilverfoldError) -> Frame:
    """Return the mark of what cannot be read, or is of nothing."""
    body = b64encode(octets[:_KEPT]).decode("ascii")
    why = str(error)
    return mark("bad frame", level="warning", error_class=error.error_class, reason=why, size=len(octets), body=body)
