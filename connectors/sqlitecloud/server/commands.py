"""Execution of the server's own commands: login, client keys, listening, channels, lists and self-tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import partial
from typing import Final

from silverfold.conf.errors import SourceRefused
from silverfold.connectors.sqlitecloud.protocol.commands import Command
from silverfold.connectors.sqlitecloud.protocol.encode import OK, encode_text, encode_ticket, encode_value
from silverfold.connectors.sqlitecloud.protocol.statements import ALL
from silverfold.connectors.sqlitecloud.server.error_codes import AUTH, COMMAND, GENERIC, NOT_FOUND
from silverfold.connectors.sqlitecloud.server.listings import LISTINGS
from silverfold.connectors.sqlitecloud.server.pubsub.broker import Topic
from silverfold.connectors.sqlitecloud.server.results import ClientKeys, table_frame
from silverfold.connectors.sqlitecloud.server.selftest import selftest_frames
from silverfold.connectors.sqlitecloud.server.state import ServedSession
from silverfold.connectors.sqlitecloud.server.transfers import TRANSFERS

_BEFORE_AUTH: Final = ("AUTH", "PAUTH", "SET CLIENT KEY")
_KEYS: Final = tuple(field.name for field in fields(ClientKeys))
_CHANNEL: Final = ("chname",)


def execute(session: ServedSession, command: Command) -> Iterator[bytes]:
    """Yield the frames of the reply to a command.

    Raises:
        SourceRefused: The server refuses the command.
        apsw.Error: SQLite refuses it.
    """
    if not session.admitted and not command.name.startswith(_BEFORE_AUTH):
        raise SourceRefused(code=AUTH, text="Authentication required.")
    yield from _ANSWERS[command.name](session, command)


def _auth(session: ServedSession, command: Command) -> Iterator[bytes]:
    credentials = session.served.credentials
    user = command.operands.get("user")
    if credentials is not None and not credentials.authenticate(user=user, secret=command["secret"]):
        raise SourceRefused(code=AUTH, text="Authentication failed.")
    session.admitted = True
    yield OK


def _pauth(session: ServedSession, command: Command) -> Iterator[bytes]:
    raise SourceRefused(code=AUTH, text="PAUTH failed.")


def _use(session: ServedSession, command: Command) -> Iterator[bytes]:
    session.use(command["database"])
    yield OK


def _set_key(session: ServedSession, command: Command) -> Iterator[bytes]:
    name, value = _known_key(session, command).lower(), command["value"]
    if name not in _KEYS:
        raise SourceRefused(code=GENERIC, text=f"Client key {command['key']} is read-only.")
    if not (value.isascii() and value.isdigit() and len(value) < 19):
        raise SourceRefused(code=COMMAND, text=f"{value} is not a number that {command['key']} can be.")
    number = int(value) if name != "compression" or session.served.options.compression else 0
    session.keys = replace(session.keys, **{name: number})
    yield OK


def _get_key(session: ServedSession, command: Command) -> Iterator[bytes]:
    value = _client_keys(session)[_known_key(session, command)]
    yield encode_value(value, zero_terminated=bool(session.keys.zerotext))


def _remove_key(session: ServedSession, command: Command) -> Iterator[bytes]:
    """Turn a key off. Those that are read-only stay as they are, without an error."""
    name = _known_key(session, command).lower()
    if name in _KEYS:
        session.keys = replace(session.keys, **{name: 0})
    yield OK


def _list_keys(session: ServedSession, command: Command) -> Iterator[bytes]:
    yield table_frame(("key", "value"), sorted(_client_keys(session).items()), session.keys)


def _client_keys(session: ServedSession) -> dict[str, str]:
    """Return all keys of a session. The values are texts, numbers too."""
    keys = {"UUID": session.uuid, "ID": str(session.number), "IP": session.ip}
    return keys | {name.upper(): str(getattr(session.keys, name)) for name in _KEYS}


def _known_key(session: ServedSession, command: Command) -> str:
    """Return the key that a command names, in upper case. Raise SourceRefused if there is none."""
    if command["key"].upper() not in _client_keys(session):
        raise SourceRefused(code=NOT_FOUND, text=f"Client key {command['key']} not found.")
    return command["key"].upper()


def _listen(session: ServedSession, topic: Topic) -> Iterator[bytes]:
    session.at_commit(lambda: session.served.listeners.listen(session, topic))
    again = session.offered and session.served.options.repeated_listen == "ok"
    session.offered = True
    yield OK if again else encode_ticket(session.ticket)


def _listen_channel(session: ServedSession, command: Command) -> Iterator[bytes]:
    name = command["channel"]
    yield from _listen(session, _addressed_table(session, name) or _channel(session, name))


def _listen_table(session: ServedSession, command: Command) -> Iterator[bytes]:
    topic = _table(session, command)
    if session.served.databases.find(topic.database) is None:
        raise SourceRefused(code=NOT_FOUND, text=f"Database {topic.database} not found.")
    yield from _listen(session, topic)


def _unlisten(session: ServedSession, work: Callable[[], None]) -> Iterator[bytes]:
    work()
    session.at_commit(work)  # also cancels LISTENs of the open transaction
    yield OK


def _unlisten_channel(session: ServedSession, command: Command) -> Iterator[bytes]:
    name, listeners = command["channel"], session.served.listeners
    table = Topic(name.lower(), session.used, is_table=True)
    tables = [table] if session.served.options.has_channels_of_tables else []
    topics = [] if name == ALL else [_channel(session, name), *tables]
    yield from _unlisten(session, partial(listeners.unlisten, session, *topics))


def _unlisten_table(session: ServedSession, command: Command) -> Iterator[bytes]:
    topic, listeners = _table(session, command), session.served.listeners
    if topic.name == ALL:
        yield from _unlisten(session, partial(listeners.unlisten_tables, session, topic.database))
    else:
        yield from _unlisten(session, partial(listeners.unlisten, session, topic))


def _table(session: ServedSession, command: Command) -> Topic:
    database = command.operands.get("database")
    return Topic(command["table"].lower(), session.database_name if database is None else database, is_table=True)


def _channel(session: ServedSession, name: str) -> Topic:
    return Topic(name, session.used if session.served.options.has_channels_of_tables else None)


def _addressed_table(session: ServedSession, channel: str) -> Topic | None:
    """Return the topic of the table, or of all tables, that a channel name addresses; None if it addresses none."""
    if not session.served.options.has_channels_of_tables:
        return None
    if channel == ALL:
        return Topic(ALL, session.database_name, is_table=True)
    if session.used is None:
        return None
    is_table = session.transactions.has_table(channel)
    return Topic(channel.lower(), session.used, is_table=True) if is_table else None


def _notify(session: ServedSession, command: Command) -> Iterator[bytes]:
    options, payload = session.served.options, command.operands.get("payload")
    channel = _channel(session, command["channel"])
    with session.in_order():
        session.served.listeners.publish_message(options, session.sender, channel, payload)
    yield OK


def _create_channel(session: ServedSession, command: Command, *, if_missing: bool = False) -> Iterator[bytes]:
    if not session.served.listeners.create(_channel(session, command["channel"])) and not if_missing:
        text = f"Cannot create channel {command['channel']} because it already exists."
        raise SourceRefused(code=GENERIC, text=text)
    yield OK


def _remove_channel(session: ServedSession, command: Command) -> Iterator[bytes]:
    if not session.served.listeners.remove(_channel(session, command["channel"])):
        text = f"Cannot remove channel {command['channel']} because it does not exist."
        raise SourceRefused(code=GENERIC, text=text)
    yield OK


def _list_channels(session: ServedSession, command: Command) -> Iterator[bytes]:
    database = _channel(session, "").database
    yield table_frame(_CHANNEL, [(name,) for name in session.served.listeners.channels(database)], session.keys)


def _list_listened_tables(session: ServedSession, command: Command) -> Iterator[bytes]:
    found = session.served.listeners.registrations
    tables = {each for _, each in found if each.is_table and each.database == session.database_name}
    names = sorted(each.name for each in tables)
    yield table_frame(_CHANNEL, [(name,) for name in names], session.keys)


def _list_connections(session: ServedSession, command: Command) -> Iterator[bytes]:
    found = [(uuid, topic.database, topic.name) for uuid, topic in session.served.listeners.registrations]
    yield table_frame(("client_uuid", "dbname", "chname"), found, session.keys)


def _pubsub_only(session: ServedSession, command: Command) -> Iterator[bytes]:
    session.pubsub_only = True
    yield OK


def _ping(session: ServedSession, command: Command) -> Iterator[bytes]:
    yield encode_text("PONG")


def _test(session: ServedSession, command: Command, *, compressed: bool = False) -> Iterator[bytes]:
    yield from selftest_frames(command["what"], session.keys, compressed=compressed)


_ANSWERS: Final[dict[str, Callable[[ServedSession, Command], Iterator[bytes]]]] = {
    **dict.fromkeys(("AUTH APIKEY", "AUTH TOKEN", "AUTH USER PASSWORD", "AUTH USER HASH"), _auth),
    "CREATE CHANNEL": _create_channel,
    "CREATE CHANNEL IF NOT EXISTS": partial(_create_channel, if_missing=True),
    "GET CLIENT KEY": _get_key,
    "LIST CHANNELS": _list_channels,
    "LIST CLIENT KEYS": _list_keys,
    "LIST PUBSUB CONNECTIONS": _list_connections,
    "LIST TABLES PUBSUB": _list_listened_tables,
    **dict.fromkeys(("LISTEN", "LISTEN DATABASE"), _listen_channel),
    **dict.fromkeys(("LISTEN TABLE", "LISTEN TABLE DATABASE"), _listen_table),
    "NOTIFY": _notify,
    "PAUTH": _pauth,
    "PING": _ping,
    "PUBSUB ONLY": _pubsub_only,
    "REMOVE CHANNEL": _remove_channel,
    "REMOVE CLIENT KEY": _remove_key,
    "SET CLIENT KEY TO": _set_key,
    "TEST": _test,
    "TEST COMPRESSED": partial(_test, compressed=True),
    "UNLISTEN": _unlisten_channel,
    **dict.fromkeys(("UNLISTEN TABLE", "UNLISTEN TABLE DATABASE"), _unlisten_table),
    "USE DATABASE": _use,
    **LISTINGS,
    **TRANSFERS,
}
