"""Listeners of a connection: what they are, and how they are added and removed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from silverfold.connectors.tengi.protocol.values import Message

if TYPE_CHECKING:
    from silverfold.connectors.tengi.transports.connection import Connection

_T = TypeVar("_T")


class ConnectionListener:
    """Base of listeners to a connection's events. Methods do nothing by default; they may be coroutine functions."""

    def on_connected(self, connection: Connection) -> Awaitable[None] | None:
        """Called once ``on_connect`` has returned, before the first message."""

    def on_message(self, connection: Connection, message: Message) -> Awaitable[None] | None:
        """Called for each message, after the message listeners."""

    def on_exception(self, connection: Connection, error: Exception) -> Awaitable[None] | None:
        """Called for an unreadable message, for an error of a listener, and when the connection breaks."""

    def on_disconnected(self, connection: Connection) -> Awaitable[None] | None:
        """Called when the peer or the network has ended the connection, not after ``disconnect``.

        Also at a server whose client over HTTP sent no request for ``expire_after``.
        """

    def on_closed(self, connection: Connection) -> Awaitable[None] | None:
        """Called once, as the last event."""


_EVENTS: Final = frozenset(name for name in vars(ConnectionListener) if name.startswith("on_"))

MessageListener: TypeAlias = Callable[["Connection", Message], Awaitable[None] | None]


class Registration:
    """A listener that was added."""

    def __init__(self, added: dict[Registration, Any]) -> None:
        self._added = added

    def remove(self) -> None:
        """Remove the listener. Safe to repeat.

        It is not called any more, not for the event under way either; a call that has begun goes on. Other listeners
        stay, also one that is equal, or the same one where it was added twice.
        """
        self._added.pop(self, None)


class Listeners(Generic[_T]):
    """Listeners of one kind, in the order in which they were added."""

    def __init__(self) -> None:
        self._added: dict[Registration, _T] = {}

    def add(self, listener: _T) -> Registration:
        """Add a listener, for the next event on."""
        registration = Registration(self._added)
        self._added[registration] = listener
        return registration

    def current(self) -> Iterator[_T]:
        """Return those that have been added by this call, without any that is removed before its turn."""
        return (listener for each, listener in list(self._added.items()) if each in self._added)


def check_connection_listener(listener: object) -> None:
    """Raise TypeError for an object with no method of `ConnectionListener`."""
    has_any = hasattr(type(listener), "__getattr__") or not _EVENTS.isdisjoint(dir(listener))
    if isinstance(listener, type) or not has_any:
        raise TypeError(f"a connection listener is an object with one of the methods {', '.join(sorted(_EVENTS))}")


def notify(listener: object, event: str, *arguments: object) -> Awaitable[None] | None:
    """Call a listener's method for an event, if it has one."""
    method: Callable[..., Awaitable[None] | None] | None = getattr(listener, event, None)
    return None if method is None else method(*arguments)
