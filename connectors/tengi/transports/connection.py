"""The API of client and server over a link, with the names of tengi's own Java API.

One task reads. Another calls the listeners, one after another, message by message. A listener is a function or a
coroutine function. While it runs, up to `queues.MAX_UNDELIVERED` messages are read ahead; then the peer has to wait.
One that blocks the event loop may take no longer over HTTP than the server's ``expire_after``.

Listeners, and ``on_connect``, may await all methods of their connection, its client and its server:

===========================  =====================================================================================
``write_object``, `answer`   wait for room in the queue
``request``                  waits for the answer, and reads up to `queues.MAX_AHEAD` bytes of messages before it
``wait_closed``              waits for the end, and reads ahead likewise; not until all listeners know of it
``disconnect``               as outside of a listener
``abort``, ``stop``          return once all other tasks have ended; the listener itself continues, as the last one
===========================  =====================================================================================

All of this also holds in tasks that a listener awaits, with one exception: if a task of ``on_connect`` stops the
server, ``on_connect`` is cancelled. A listener of an end that itself ends connections is not waited for: two of them
could wait for each other for ever.

An error of a listener becomes the event ``on_exception``. So does a CancelledError that the listener got from what it
awaited. Neither affects other listeners or the connection. Only KeyboardInterrupt and SystemExit end the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import Any, Final, TypeAlias

from structlog.typing import FilteringBoundLogger

from silverfold.conf.errors import LocalProtocolError, SilverfoldError, SourceUnavailable
from silverfold.connectors.tengi.protocol.events import BadFrame, Closed, MessageReceived, Transport
from silverfold.connectors.tengi.protocol.values import Identifier, Message
from silverfold.connectors.tengi.transports.link import Link, cancel_and_wait
from silverfold.connectors.tengi.transports.listeners import (
    Listeners,
    MessageListener,
    Registration,
    check_connection_listener,
    notify,
)
from silverfold.connectors.tengi.transports.queues import Inbox

_CALLS: Final[ContextVar[frozenset[asyncio.Event]]] = ContextVar("_CALLS", default=frozenset())
"""End events of the listeners' calls that the running code is part of. It must not wait for them."""
_ENDS: Final[ContextVar[frozenset[asyncio.Event]]] = ContextVar("_ENDS", default=frozenset())
"""End events of the connections whose ``on_closed`` or ``on_disconnected`` is running."""

_MAX_UNANSWERED: Final = 1_000
"""Most requests without an answer that are remembered."""

OnConnect: TypeAlias = Callable[["Connection"], Awaitable[None] | None]


class Connection:
    """A connection of a client or a server. Made by `client.Client` and `server.Server`."""

    def __init__(self, link: Link, log: FilteringBoundLogger) -> None:
        self._link = link
        self._log = log.bind(connection=str(link.connection_id), transport=link.transport.value)
        self._message_listeners = Listeners[MessageListener]()
        self._connection_listeners = Listeners[object]()
        self._requests: dict[Identifier, asyncio.Future[Message]] = {}
        self._unanswered: dict[Identifier, None] = {}  # the oldest first
        self._received = Inbox()
        self._calls: set[asyncio.Event] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._is_leaving = False
        self._end: Closed | None = None
        self._ended, self._closed = asyncio.Event(), asyncio.Event()
        self._awaited_end = asyncio.Event()  # all listeners know, or the one that runs is ending connections itself
        self._finishing: asyncio.Task[None] | None = None

    @property
    def id(self) -> Identifier:
        """The connection's id, which the server made."""
        return self._link.connection_id

    @property
    def transport(self) -> Transport:
        """The transport that carries the packets."""
        return self._link.transport

    @property
    def peer_address(self) -> str:
        """Host and port of the peer."""
        return self._link.peer_address

    @property
    def handshake(self) -> Mapping[str, Any]:
        """Values of the peer's handshake."""
        return self._link.handshake

    @property
    def is_closed(self) -> bool:
        """Whether the connection has ended, and all listeners know."""
        return self._closed.is_set()

    @property
    def has_ended(self) -> bool:
        """Whether the connection has ended. Its listeners may not know yet."""
        return self._ended.is_set()

    @property
    def is_in_listener(self) -> bool:
        """Whether the running code is part of a listener of the connection, or of its ``on_connect``."""
        return not self._calls.isdisjoint(_CALLS.get())

    def add_message_listener(self, listener: MessageListener) -> Registration:
        """Call ``listener(connection, message)`` for each message that is no answer to a `request`.

        A listener that is added while a message is delivered gets the next one.

        Raises TypeError for what cannot be called.
        """
        if not callable(listener):
            raise TypeError(f"a message listener is a function, no {type(listener).__name__}")
        return self._message_listeners.add(listener)

    def add_connection_listener(self, listener: object) -> Registration:
        """Call the listener's methods for the connection's events: those of `ConnectionListener` that it has.

        A listener that is added during an event gets the next one.

        Raises TypeError for what has none of them.
        """
        check_connection_listener(listener)
        return self._connection_listeners.add(listener)

    async def write_object(self, value: object) -> Message:
        """Queue an object, waiting for room, and return its message. A `Message` is sent with its own id.

        Raises:
            InvalidValue: The value, such as None, is no object of tengi's.
            OversizedMessage: The peer would not accept its packet.
            SourceUnavailable: The connection has ended.
        """
        message = value if isinstance(value, Message) else Message.create(value)
        await self._link.send(message)
        return message

    async def request(self, value: object, *, timeout: float = 30.0) -> Message:
        """Send an object and return the answer: the message with the same id. Listeners do not get it.

        Nor do they get one that comes later, which is dropped: to a peer, an answer to it would be a new request. The
        last 1,000 requests that were sent and had no answer are remembered for that. A connection's listeners are
        called one after the other: of two that ask each other's peer, each waits for the other until the time-out.

        Raises:
            TimeoutError: No answer came in time.
            SourceUnavailable: The connection ended before the answer.
            LocalProtocolError: A request with the same id is open.
            WireError: The answer cannot be read, such as for a type that only the peer knows. If not even its end is
                found, listeners get the error, too (``on_exception``): it costs more than the answer.
            Exception: As `write_object`.
        """
        if self._ended.is_set():
            raise SourceUnavailable("the connection has ended")
        message = value if isinstance(value, Message) else Message.create(value)
        if message.id in self._requests:
            raise LocalProtocolError(f"the request {message.id} waits for its answer already")
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        is_sent = False
        self._requests[message.id] = answer
        try:
            with self._received.reading_ahead():
                async with asyncio.timeout(timeout):
                    await self.write_object(message)
                    is_sent = True
                    return await answer
        except TimeoutError:
            raise TimeoutError(f"no answer to {message.id} within {timeout:g} s") from None
        finally:
            del self._requests[message.id]
            if is_sent and (not answer.done() or answer.cancelled()):
                self._remember_unanswered(message.id)

    def _remember_unanswered(self, request: Identifier) -> None:
        self._unanswered[request] = None
        if len(self._unanswered) > _MAX_UNANSWERED:
            del self._unanswered[next(iter(self._unanswered))]

    async def answer(self, request: Message, value: object) -> Message:
        """Send an object with the id of a request. Raises as `write_object`."""
        return await self.write_object(Message(request.id, value))

    def offer_encoded(self, message: bytes) -> bool:
        """Queue an encoded message if there is room at once; return whether it was queued. For broadcasts.

        Raises:
            OversizedMessage: The peer would not accept its packet.
            SourceUnavailable: The connection has ended, or is about to.
        """
        return self._link.offer_encoded(message)

    async def disconnect(self) -> None:
        """Send what is queued, and end the connection. Listeners learn of it soon after. Safe to repeat.

        Returns once the peer has ended it as well, or after ``close_timeout``. Bytes that still arrive are dropped.
        """
        self._is_leaving = True
        await self._link.close()

    async def abort(self) -> None:
        """End the connection at once, drop undelivered messages, and wait until the listeners know of the end."""
        self._is_leaving = True
        for end in _ENDS.get():
            end.set()
        await self._link.abort()
        tasks, self._tasks = self._tasks, []
        await cancel_and_wait(*(tasks[:1] if self.is_in_listener else tasks))
        await self._finish()

    async def wait_closed(self) -> None:
        """Wait until the connection has ended and all listeners know. In a listener, wait for the end alone."""
        if not self.is_in_listener:
            await self._closed.wait()
            return
        with self._received.reading_ahead():
            await self._ended.wait()

    async def start(self, on_connect: OnConnect | None) -> None:
        """Start reading, call ``on_connect``, then start calling listeners. Client or server call this once."""
        self._tasks.append(asyncio.create_task(self._read()))
        if on_connect is not None:
            await self._call(on_connect, self)
        if self._finishing is None:
            self._tasks.append(asyncio.create_task(self._deliver()))

    async def _read(self) -> None:
        failure: Exception | None = None
        try:
            failure = await self._read_all()
        except Exception as error:  # a bug: it must not leave a connection that nobody reads
            self._log.exception("reading_failed")
            failure = error
        finally:
            self._fail_requests()
        if failure is not None:
            await self._received.put(failure)
        await self._received.put(None)

    async def _read_all(self) -> Exception | None:
        """Read to the end. Return the error that ended the connection; None if we ended it, or listeners have it."""
        last: Exception | None = None
        try:
            while not isinstance(event := await self._link.next_event(), Closed):
                last = await self._take(event)
            self._end = event
        except SilverfoldError as error:
            if error is not last and not self._is_leaving:
                return error
        return None

    async def _take(self, event: MessageReceived | BadFrame) -> Exception | None:
        """Hand an event to its request, or to the listeners. Return its error, if any."""
        is_bad = isinstance(event, BadFrame)
        item: Message | Exception
        try:
            item = event.error if isinstance(event, BadFrame) else event.message
        except SilverfoldError as error:
            item = error
        request = None if event.message_id is None else self._requests.get(event.message_id)
        if request is not None and not request.done():
            if isinstance(item, Message):
                request.set_result(item)
            else:
                request.set_exception(item)
            if not is_bad:
                return None
        elif not is_bad and event.message_id in self._unanswered:
            self._log.info("late_answer", id=str(event.message_id))
            return None
        await self._received.put(item, len(event.raw))
        return None if isinstance(item, Message) else item

    def _fail_requests(self) -> None:
        self._ended.set()
        for request in self._requests.values():
            if not request.done():
                request.set_exception(SourceUnavailable("the connection ended before the answer"))

    async def _deliver(self) -> None:
        await self._fire("on_connected")
        while self._finishing is None and (item := await self._received.get()) is not None:
            if isinstance(item, Message):
                await self._deliver_message(item)
            else:
                await self._report(item)
        await self._finish()

    async def _deliver_message(self, message: Message) -> None:
        connection_listeners = self._connection_listeners.current()
        for listener in self._message_listeners.current():
            await self._guarded(listener, self, message)
        for each in connection_listeners:
            await self._guarded(notify, each, "on_message", self, message)

    async def _finish(self) -> None:
        """Tell the listeners of the end, once, in a task of its own that nobody cancels."""
        if self._finishing is None:
            self._finishing = asyncio.create_task(self._fire_end())
        await self._awaited_end.wait()

    async def _fire_end(self) -> None:
        _ENDS.set(_pending(_ENDS) | {self._awaited_end})
        self._fail_requests()  # its reader may have been cancelled before it began
        await self._link.close()
        if not self._is_leaving:
            await self._fire("on_disconnected")
        await self._fire("on_closed")
        self._closed.set()
        self._awaited_end.set()
        is_ours = self._is_leaving or (self._end is not None and self._end.is_ours)
        self._log.debug("connection_closed", by="us" if is_ours else "peer", reason=self._end and self._end.reason)

    async def _fire(self, event: str, *arguments: object) -> None:
        for listener in self._connection_listeners.current():
            await self._guarded(notify, listener, event, self, *arguments)

    async def _guarded(self, function: Callable[..., Awaitable[None] | None], *arguments: object) -> None:
        """Call a listener; its error is an event, and costs the others nothing. That the peer has left is no fault."""
        try:
            await self._call(function, *arguments)
        except Exception as error:
            if not (isinstance(error, SourceUnavailable) and (self.has_ended or self._link.has_ended)):
                self._log.exception("listener_failed")
            await self._report(error)

    async def _report(self, error: Exception) -> None:
        self._log.info("connection_error", reason=str(error))
        for listener in self._connection_listeners.current():
            with contextlib.suppress(Exception):  # reporting an error of on_exception would call on_exception again
                await self._call(notify, listener, "on_exception", self, error)

    async def _call(self, function: Callable[..., Awaitable[None] | None], *arguments: object) -> None:
        """Call a user's function. Raise its error, as an Exception, unless our task is cancelled or its loop over."""
        call, calls, task = asyncio.Event(), _pending(_CALLS), asyncio.current_task()
        _CALLS.set(calls | {call})
        self._calls.add(call)
        try:
            result = function(*arguments)
            if inspect.isawaitable(result):
                await result
        except (Exception, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            if task is None or task.cancelling() or not task.get_loop().is_running():
                raise
            is_cancel = isinstance(error, asyncio.CancelledError)
            reason = "what a listener awaited was cancelled" if is_cancel else f"a listener raised {error!r}"
            raise RuntimeError(reason) from error
        finally:
            call.set()
            self._calls.discard(call)
            _CALLS.set(calls)


async def end_all(connections: Iterable[Connection]) -> None:
    """Send what connections have queued, and end them, all at once: each may take ``close_timeout``.

    If cancelled, end them without waiting for that.
    """
    ending = list(connections)
    try:
        await asyncio.gather(*(each.disconnect() for each in ending))
    finally:
        await asyncio.gather(*(each.abort() for each in ending))  # in this task: it may be a listener's


def _pending(ends: ContextVar[frozenset[asyncio.Event]]) -> frozenset[asyncio.Event]:
    """Return the events that are not set. A connection made in a listener inherits them, and outlives the call."""
    return frozenset(end for end in ends.get() if not end.is_set())
