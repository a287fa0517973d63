"""An in-memory client session, its input messages, and helpers to feed them."""

from __future__ import annotations

from silverfold.connectors.deephaven.protocol import control
from silverfold.connectors.deephaven.protocol.frames import frame
from silverfold.connectors.deephaven.protocol.messages import (
    ConnectionResponse,
    Event,
    SubscribeMode,
)
from silverfold.connectors.deephaven.protocol.roles import Roles
from silverfold.connectors.deephaven.protocol.session import Session
from silverfold.connectors.deephaven.protocol.types import TYPES
from tests.support.deephaven.columns import encoded
from tests.support.deephaven.vectors import VECTORS, builtin_roles

SNAPSHOT, BOTH, UPDATES = SubscribeMode.SNAPSHOT_ONLY, SubscribeMode.SNAPSHOT_WITH_UPDATES, SubscribeMode.UPDATES_ONLY

ROLES = builtin_roles()
GREETING = control.encode_connection_response(ROLES, 65536)
RESPONSE = control.encode_subscribe_response(ROLES, 7, [(3, "Size", TYPES["Int"])])
BEGIN, END = control.encode_begin(ROLES, 7), control.encode_end(ROLES, 7)
(COLUMN,) = encoded(ROLES, "Int", [1, 2])
REMOVED = VECTORS["rows-removed-one-range"].body
UNKNOWN = VECTORS["unknown-template"].body
UNSUBSCRIBED = control.encode_unsubscribe_response(ROLES, 7)


def refusal(code: str, subscription_id: int = 7) -> bytes:
    return control.encode_subscription_error(ROLES, subscription_id, code, "no")


def drain(session: Session) -> list[Event]:
    return list(iter(session.next_event, None))


def connected(roles: Roles = ROLES) -> Session:
    session = Session(roles)
    session.receive(frame(control.encode_connection_response(roles, 65536), header_size=roles.schema.header.size))
    assert isinstance(session.next_event(), ConnectionResponse)
    return session


def subscribed(mode: SubscribeMode = BOTH, *bodies: bytes) -> Session:
    """A session with subscription 7 confirmed, and the events of all further messages consumed."""
    session = connected()
    session.subscribe(7, mode, "Quotes")
    say(session, RESPONSE, *bodies)
    return session


def say(session: Session, *bodies: bytes) -> list[Event]:
    session.receive(b"".join(map(frame, bodies)))
    return drain(session)
