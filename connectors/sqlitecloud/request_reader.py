"""Reads what clients send, as the server sees it: a command with what its question marks stand for, or bytes."""

from __future__ import annotations

from conf.errors import InvalidValue
from connectors.sqlitecloud.frames import RawFrame, parse
from connectors.sqlitecloud.messages import Array, Single, Statement


def read_request(raw: RawFrame) -> Statement | bytes:
    """Return what a frame asks for: the part of an upload of ``$``, or as `read_statement`."""
    message = parse(raw)
    if isinstance(message, Single) and isinstance(message.value, bytes):
        return message.value
    return read_statement(raw)


def read_statement(raw: RawFrame) -> Statement:
    """Return the command of a frame ``+``, ``!`` or ``=``.

    Raises:
        InvalidValue: The frame cannot be read, or is no command (``not_a_command``). The stream can go on: answer with
            an error.
    """
    message = parse(raw)
    items = message.items if isinstance(message, Array) else (message.value,) if isinstance(message, Single) else ()
    if not items or not isinstance(items[0], str):
        raise InvalidValue("a command is a text, or an array that begins with one", reason="not_a_command")
    if "\0" in items[0]:
        raise InvalidValue("a command has no character of code 0", reason="not_a_command")
    return Statement(items[0], items[1:])
