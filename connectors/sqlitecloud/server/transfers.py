"""Commands for whole databases: creation and removal, upload and download as files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from io import BytesIO
from typing import Final

from silverfold.conf.errors import SourceRefused
from silverfold.connectors.sqlitecloud.protocol.commands import Command
from silverfold.connectors.sqlitecloud.protocol.encode import OK, encode_array, encode_value
from silverfold.connectors.sqlitecloud.server.error_codes import COMMAND
from silverfold.connectors.sqlitecloud.server.served_databases import PART, Upload, serialize_database
from silverfold.connectors.sqlitecloud.server.state import ServedSession


def take_part(session: ServedSession, part: bytes) -> Iterator[bytes]:
    """Add a part to the upload in progress; the last one is empty.

    Raises:
        SourceRefused: No upload is in progress, or it is rejected: then it ends.
    """
    if session.upload is None:
        raise SourceRefused(code=COMMAND, text="No upload is under way: UPLOAD DATABASE first.")
    try:
        is_last = session.upload.take(part)
    except SourceRefused:
        session.end_transfers()
        raise
    if is_last:
        session.end_transfers()
    yield OK


def _create(session: ServedSession, command: Command, *, if_missing: bool = False) -> Iterator[bytes]:
    if not (if_missing and session.served.databases.find(command["database"])):
        session.served.databases.make(command["database"])
    yield OK


def _remove(session: ServedSession, command: Command, *, if_there: bool = False) -> Iterator[bytes]:
    if not if_there or session.served.databases.find(command["database"]):
        session.served.databases.remove(command["database"])
    yield OK


def _unuse(session: ServedSession, command: Command) -> Iterator[bytes]:
    session.close()
    yield OK


def _upload(session: ServedSession, command: Command) -> Iterator[bytes]:
    session.end_transfers()
    session.upload = Upload(session.served.databases, command["database"])
    yield OK


def _download(session: ServedSession, command: Command, *, if_there: bool = False) -> Iterator[bytes]:
    """Reply with the size, the page count, and a position in the cluster's log, which does not exist here."""
    session.end_transfers()
    if if_there and session.served.databases.find(command["database"]) is None:
        yield encode_array((0, 0, 0))
        return
    octets, pages = serialize_database(session.served.databases.find_or_refuse(command["database"]))
    session.download = BytesIO(octets)
    yield encode_array((len(octets), pages, 0))


def _step(session: ServedSession, command: Command) -> Iterator[bytes]:
    if session.download is None:
        raise SourceRefused(code=COMMAND, text="No download is under way: DOWNLOAD DATABASE first.")
    yield encode_value(session.download.read(PART))


def _abort(session: ServedSession, command: Command) -> Iterator[bytes]:
    session.end_transfers()
    yield OK


TRANSFERS: Final[dict[str, Callable[[ServedSession, Command], Iterator[bytes]]]] = {
    "CREATE DATABASE": _create,
    "CREATE DATABASE IF NOT EXISTS": partial(_create, if_missing=True),
    "DOWNLOAD ABORT": _abort,
    "DOWNLOAD DATABASE": _download,
    "DOWNLOAD DATABASE IF EXISTS": partial(_download, if_there=True),
    "DOWNLOAD STEP": _step,
    "REMOVE DATABASE": _remove,
    "REMOVE DATABASE IF EXISTS": partial(_remove, if_there=True),
    "UNUSE DATABASE": _unuse,
    "UPLOAD ABORT": _abort,
    "UPLOAD DATABASE": _upload,
}
"""The handler of each command, which yields the frames of its reply."""
