"""What is strange in column messages is in the client's log."""

from __future__ import annotations

from structlog.testing import capture_logs

from silverfold.connectors.deephaven.client.listener import Listener, Notifier
from tests.support.deephaven.session import BEGIN, BOTH, COLUMN, END, RESPONSE, ROLES, connected, say


def test_bytes_behind_column_messages_are_logged_once_for_each_column() -> None:
    session, notifier = connected(), Notifier(Listener())
    session.subscribe(7, BOTH, "Quotes")
    with capture_logs() as logged:
        for event in say(session, RESPONSE, BEGIN, COLUMN, COLUMN + b"\0", COLUMN + b"\0", END):
            notifier.notify(event, ROLES)
    assert logged == [
        {
            "event": "strange column",
            "log_level": "warning",
            "subscription": 7,
            "column": "Size",
            "kind": "trailing-bytes",
        }
    ]
