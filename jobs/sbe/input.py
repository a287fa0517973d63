"""Reads messages from a file for ``silverfold sbe decode``: lines of hex, or framed bytes, a chunk at a time.

A `WireError` takes the place of an unreadable message, so that the others are not lost.
"""

from __future__ import annotations

import re
import sys
from binascii import unhexlify
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

import typer

from silverfold.conf.errors import InvalidValue, OversizedMessage, WireError
from silverfold.connectors.wire.framing.cutter import frames_of
from silverfold.connectors.wire.framing.framings import find_framing
from silverfold.connectors.wire.framing.settings import LARGEST, Framing
from silverfold.connectors.wire.sbe.codec.framed import cutter_for
from silverfold.connectors.wire.sbe.schema.model import Schema

CHUNK = 1 << 18
"""Bytes read at once."""
LONGEST_LINE = 4 * LARGEST
"""Maximum bytes of a line of hex: the longest message, with room for a space after each digit."""


class Message(NamedTuple):
    """A message of the input."""

    body: bytes | WireError
    """Its bytes, or the error in its place."""
    at: int | None = None
    """Offset in the input, or in its line's packet, in bytes, from which offsets of errors count: that of the message's
    first byte; 0 for errors of the framing. None where a line is a message."""
    line: int | None = None
    """Number of its line of hex, from 1."""


_SPACES = b" \t\r\f\v"
_NOT_HEX = re.compile(rb"[^0-9a-fA-F]|$")
_MARK = b"\xef\xbb\xbf"
"""Byte order mark that some editors put at the start of UTF-8 text."""


def framing_called(name: str) -> Framing:
    """Return the framing with the given name. Raises BadParameter, which lists the known names."""
    try:
        return find_framing(name)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--framing") from None


@contextmanager
def opened(file: Path) -> Iterator[BinaryIO]:
    """Open a file for reading; ``-`` is standard input. Raises BadParameter if it cannot be opened."""
    if str(file) == "-":
        if sys.stdin is None:  # closed before the process started
            raise typer.BadParameter("there is no standard input", param_hint="FILE")
        yield sys.stdin.buffer
        return
    try:
        source = file.open("rb")
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be read: {error.strerror}", param_hint="FILE") from None
    with source:
        yield source


def chunks(source: BinaryIO, before_waiting: Callable[[], None]) -> Iterator[bytes]:
    """Yield the bytes of an input as they arrive. ``before_waiting`` is called before each read, which may block."""
    while True:
        before_waiting()
        chunk = source.read1(CHUNK)  # type: ignore[attr-defined]  # all binary inputs here are buffered
        if not chunk:
            return
        yield chunk


def framed_messages(schema: Schema, framing: Framing, stream: Iterable[bytes]) -> Iterator[Message]:
    """Yield the messages of a stream, and errors in place of those of another encoding; a framing error comes last.

    Behind it nothing can be cut, which its text adds.
    """
    try:
        for frame in frames_of(cutter_for(schema, framing), stream):
            yield (
                Message(frame.body, frame.offset) if frame.other_encoding is None else Message(frame.other_encoding, 0)
            )
    except WireError as error:
        detail = f"{error.detail}; the rest is not read"
        yield Message(type(error)(detail, offset=error.offset, reason=error.reason, element=error.element), 0)


def hex_messages(schema: Schema, framing: Framing | None, stream: Iterable[bytes]) -> Iterator[Message]:
    """Yield the messages of lines of hex. With a framing each line is a packet of any number of messages."""
    for number, line in enumerate(_lines(stream), 1):
        body = line if isinstance(line, WireError) else _unhexed(line)
        if framing is None or isinstance(body, WireError):
            yield from () if body == b"" else (Message(body, line=number),)
        else:
            yield from (each._replace(line=number) for each in framed_messages(schema, framing, (body,)))


def _lines(stream: Iterable[bytes]) -> Iterator[bytes | WireError]:
    """Yield each line once complete; one that is too long is skipped to its end, with an error in its place."""
    rest, passing = b"", False
    for number, chunk in enumerate(stream):
        *whole, rest = (rest + (chunk if number else chunk.removeprefix(_MARK))).split(b"\n")
        if passing and whole:
            del whole[0]
            passing = False
        yield from whole
        if passing or len(rest) > LONGEST_LINE:
            if not passing:
                yield OversizedMessage(f"a line of more than {LONGEST_LINE} bytes", offset=0, reason="frame-too-large")
            rest, passing = b"", True
    if not passing:
        yield rest


def _unhexed(line: bytes) -> bytes | WireError:
    """Return the bytes of a hex line, ignoring spaces and a comment, or the error."""
    digits = line.partition(b"#")[0].translate(None, _SPACES)
    try:
        return unhexlify(digits)
    except ValueError:
        found = _NOT_HEX.search(digits)
        assert found is not None
        at = found.start()
        detail = f"{digits[at : at + 10]!r} is not hex" if at < len(digits) else "half a byte at the end of the line"
        return InvalidValue(detail, offset=at // 2, reason="not-hex")
