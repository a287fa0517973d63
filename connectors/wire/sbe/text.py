"""Text on the wire: charsets by the names schemas use, and what becomes of bytes that are not valid text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from connectors.wire.sbe.model import Buffer

TextMode: TypeAlias = Literal["strict", "bytes", "replace"]
"""Invalid text is an error, is left as bytes, or has the bad parts replaced by U+FFFD."""

DEFAULT_CHARSET = "US-ASCII"
"""Of char and char arrays (SBE 1.0, section 2.5). Data without a charset are bytes."""

_UTF_16 = frozenset({"utf-16", "utf_16", "utf16"})


def codec(charset: str) -> str | None:
    """Return Python's name of a charset, None when it has none. UTF-16 is big-endian, as its RFC 2781 has it."""
    name = charset.lower()
    if name in _UTF_16:
        return "utf-16-be"
    try:
        bytes(4).decode(name)  # empty bytes would not even look for it
    except (LookupError, UnicodeError):
        return None
    return name


def text_reader(charset: str, mode: TextMode) -> Callable[[Buffer], str | bytes]:
    """Return a function from bytes to text; in mode ``strict`` it raises UnicodeError for what is none."""
    name = codec(charset)
    if name is None:
        return _refuse if mode == "strict" else bytes
    if mode == "replace":
        return lambda raw: str(raw, name, "replace")
    if mode == "strict":
        return lambda raw: str(raw, name)

    def read(raw: Buffer) -> str | bytes:
        try:
            return str(raw, name)
        except UnicodeError:
            return bytes(raw)

    return read


def _refuse(_raw: Buffer) -> str:
    raise UnicodeError("the charset is not known")


def fixed_text_reader(charset: str, mode: TextMode) -> Callable[[bytes], str | bytes]:
    """Return a function from the bytes of a char array to its text, which ends at the first NUL."""
    read = text_reader(charset, mode)
    name = codec(charset)
    if name is not None and name.startswith(("utf-16", "utf-32")):
        return lambda raw: _until_nul(read(raw))
    if (plain := plain_codec(charset, mode)) is not None:
        return lambda raw: raw.partition(b"\0")[0].decode(plain)
    return lambda raw: read(raw.partition(b"\0")[0])


def plain_codec(charset: str, mode: TextMode) -> str | None:
    """Return Python's name of a charset if char arrays in it are read by nothing but that, up to the first NUL byte."""
    name = codec(charset) if mode == "strict" else None
    return None if name is None or name.startswith(("utf-16", "utf-32")) else name


def _until_nul(text: str | bytes) -> str | bytes:
    return text.partition("\0")[0] if isinstance(text, str) else text
