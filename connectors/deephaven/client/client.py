"""A stand-alone client of a table server: connects, subscribes, and reports events to a listener.

::

    listener = TableListener()
    with TableClient("127.0.0.1", 7777, listener) as client:
        client.subscribe(1, SubscribeMode.SNAPSHOT_ONLY, "Quotes")
        listener.expect_updates(1)
        print(listener.rows(1))

One thread reads the socket and calls the listener. A server drops a client that reads too slowly, so a listener must
not block. Requests may be made from any thread, including from the listener's calls.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Sequence

from silverfold.conf.errors import ProtocolError, SilverfoldError, SourceUnavailable, WireError
from silverfold.connectors.common.closeable import Closeable
from silverfold.connectors.deephaven.client.listener import Listener, Notifier
from silverfold.connectors.deephaven.protocol.handshake import Expected
from silverfold.connectors.deephaven.protocol.messages import (
    BadFrame,
    ConnectionResponse,
    Event,
    SubscribeMode,
    UpdateVoided,
)
from silverfold.connectors.deephaven.protocol.roles import Roles
from silverfold.connectors.deephaven.protocol.schemas import load_roles
from silverfold.connectors.deephaven.protocol.session import Session

_READ = 1 << 18
_OWN = threading.local()
"""``client`` is the client whose thread this is."""


class TableClient(Closeable):
    """A connection to a table server. Connects on creation; closes on leaving its ``with`` block.

    Args:
        host: Name or address of the server.
        port: Its TCP port.
        listener: Called with events, from the client's own thread. An exception from it ends the connection.
        roles: Roles of the server's schema; by default of our reconstruction.
        expected: What is known about the server; by default everything is taken from its first frame.
        timeout: Seconds to wait for the connection, and for the server's first frame before the first request.

    Raises:
        SourceUnavailable: The server cannot be reached.
    """

    def __init__(
        self,
        host: str,
        port: int,
        listener: Listener,
        *,
        roles: Roles | None = None,
        expected: Expected | None = None,
        timeout: float = 10.0,
    ) -> None:
        self._notifier = Notifier(listener)
        self._session = Session(roles or load_roles(), expected=expected)
        self._state = threading.Lock()
        self._sending = threading.Lock()
        self._greeted = threading.Event()
        self._awaited_end = threading.Event()  # the thread has ended, or its listener now waits for another's
        self._closing = False
        self._ended = False
        self._end_reason = "the server closed the connection"
        self._timeout = timeout
        try:
            self._socket = socket.create_connection((host, port), timeout)
        except (OSError, UnicodeError) as error:  # UnicodeError for a host name that cannot be encoded
            raise SourceUnavailable(f"{host}:{port}: {error}") from error
        self._socket.settimeout(None)
        self._thread = threading.Thread(target=self._run, name=f"table-client-{host}:{port}", daemon=True)
        self._thread.start()

    def subscribe(
        self, subscription_id: int, mode: SubscribeMode | str, name: str, columns: Sequence[str] = (), filter: str = ""
    ) -> None:
        """Subscribe to a table. No columns: all of them; an empty filter: all rows. The listener gets the answer.

        Raises:
            ValueError: There is no such mode.
            LocalProtocolError: The id was used before on this connection.
            SourceUnavailable: The server's first frame does not arrive, the request cannot be sent, or the connection
                is over.
        """
        self._send(lambda: self._session.subscribe(subscription_id, SubscribeMode(mode), name, columns, filter))

    def unsubscribe(self, subscription_id: int) -> None:
        """End a subscription. Updates may still arrive until the listener is called with its end.

        Raises the same errors as `subscribe`; LocalProtocolError also for an id that was never subscribed.
        """
        self._send(lambda: self._session.unsubscribe(subscription_id))

    def add_listener(self, listener: Listener) -> None:
        """Add a listener. It gets the subscriptions that are confirmed from now on, and the end of the connection.

        An earlier one is not told to it, for its rows do not come again: subscribe to the table anew, by another id.

        Raises:
            LocalProtocolError: The listener was added before.
        """
        self._notifier.add(listener)

    def is_alive(self) -> bool:
        """Return whether the connection is alive."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Close the connection and wait for the thread, unless called by the listener itself. Safe to repeat.

        A listener does not wait for another client's that closes clients as well: they may close each other's.
        The listener hears no more, unless an update is open: that is void, and the connection is over.
        """
        self._closing = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        own: TableClient | None = getattr(_OWN, "client", None)
        if own is None:
            self._thread.join()
        else:
            own._awaited_end.set()
            self._awaited_end.wait()

    def _send(self, request: Callable[[], bytes]) -> None:
        if not self._greeted.wait(self._timeout):
            raise SourceUnavailable(f"the server sent nothing within {self._timeout} s")
        if self._ended:
            raise SourceUnavailable("the connection is over")
        with self._sending:
            with self._state:
                data = request()
            try:
                self._socket.sendall(data)
            except OSError as error:
                raise SourceUnavailable(f"the request cannot be sent: {error}") from error

    def _run(self) -> None:
        _OWN.client = self
        error: SilverfoldError | None = SourceUnavailable("a listener raised an error, which ends the connection")
        try:
            error = self._receive()
        finally:
            self._end()
            self._socket.close()
            try:
                if error is not None:
                    self._notifier.connection_lost(error)
            finally:
                self._awaited_end.set()

    def _end(self) -> None:
        """Make requests fail at once, before the listeners learn of the end: they may make some."""
        self._ended = True
        self._greeted.set()

    def _receive(self) -> SilverfoldError | None:
        """Report events until the connection ends; return the reason, or None if nothing is left to report."""
        try:
            while chunk := self._read():
                with self._state:
                    self._session.receive(chunk)
                if not self._report_events():
                    return None
                if self._closing:
                    break
            if self._closing:
                return self._report_voided()
            with self._state:
                self._session.receive_eof()
            return SourceUnavailable(self._end_reason) if self._report_events() else None
        except (WireError, ProtocolError) as error:
            return None if self._closing else error

    def _report_voided(self) -> SilverfoldError | None:
        """Report the updates voided by our own close; return an error to report, None if no update was open.

        A listener may hold resources from the beginning of an update that it releases at its end.
        """
        with self._state:
            self._session.close()
        voided = [event for event in self._remaining_events() if isinstance(event, UpdateVoided)]
        for event in voided:
            self._notifier.notify(event, self._session.roles)
        return SourceUnavailable("the connection was closed here, inside an update") if voided else None

    def _remaining_events(self) -> Iterator[Event]:
        while True:
            with self._state:
                event = self._session.next_event()
            if event is None or isinstance(event, BadFrame):
                return
            yield event

    def _read(self) -> bytes:
        try:
            return self._socket.recv(_READ)
        except OSError as error:
            self._end_reason = f"the connection broke: {error}"
            return b""

    def _report_events(self) -> bool:
        """Report all available events to the listener, until it closes; return False after the final one."""
        while not self._closing:
            with self._state:
                event = self._session.next_event()
            if event is None:
                return True
            if isinstance(event, ConnectionResponse):
                self._greeted.set()
            if isinstance(event, BadFrame):
                self._end()
            self._notifier.notify(event, self._session.roles)
            if isinstance(event, BadFrame):
                return False
        return True
