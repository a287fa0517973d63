"""Frames sent by a table server, encoded with our reconstruction of the schema."""

from __future__ import annotations

import numpy as np

from silverfold.connectors.deephaven.protocol import control
from silverfold.connectors.deephaven.protocol.columns.encode import encode_column
from silverfold.connectors.deephaven.protocol.frames import frame
from silverfold.connectors.deephaven.protocol.types import TYPES
from tests.support.deephaven.vectors import builtin_roles

ROLES = builtin_roles()
BUFFER = 65_536

GREETING = control.encode_connection_response(ROLES, BUFFER)


def response(subscription_id: int) -> bytes:
    """A subscribe response: one column of longs."""
    return control.encode_subscribe_response(ROLES, subscription_id, [(0, "n", TYPES["Long"])])


def begin(subscription_id: int) -> bytes:
    return control.encode_begin(ROLES, subscription_id)


def end(subscription_id: int) -> bytes:
    return control.encode_end(ROLES, subscription_id)


def rows(subscription_id: int, first: int = 0, last: int = 1, *, modified: bool = False) -> bytes:
    """Values of the column for the row keys from first to last."""
    (message,) = encode_column(
        ROLES,
        TYPES["Long"],
        np.arange(first, last + 1, dtype=np.int64),
        subscription_id=subscription_id,
        column_id=0,
        modified=modified,
        ranges=np.array([[first, last]], dtype=np.int64),
        limit=BUFFER,
    )
    return message


def unsubscribed(subscription_id: int) -> bytes:
    return control.encode_unsubscribe_response(ROLES, subscription_id)


def refusal(subscription_id: int, code: str, text: str = "no") -> bytes:
    return control.encode_subscription_error(ROLES, subscription_id, code, text)


def update(subscription_id: int) -> list[bytes]:
    """A complete update with one column message."""
    return [begin(subscription_id), rows(subscription_id), end(subscription_id)]


def sent(*bodies: bytes) -> bytes:
    """Length-prefixed messages, as on the wire."""
    return b"".join(map(frame, bodies))
