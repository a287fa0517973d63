"""Text on the wire: charsets by the names that schemas use, and handling of bytes that are not valid text."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from typing import Literal, TypeAlias

from silverfold.connectors.wire.sbe.schema.model import Buffer

TextMode: TypeAlias = Literal["strict", "bytes", "replace"]
"""Invalid text is an error, stays bytes, or has its invalid parts replaced by U+FFFD."""

DEFAULT_CHARSET = "US-ASCII"
"""Charset of char and char arrays (SBE 1.0, section 2.5). Data without a charset are bytes."""

_MARK = "\ufeff"
_LITTLE = {"utf-16": (codecs.BOM_UTF16_LE, "utf-16-le"), "utf-32": (codecs.BOM_UTF32_LE, "utf-32-le")}
"""Charsets with a byte order mark: the little-endian mark, and the codec for the text after it."""


def codec(charset: str) -> str | None:
    """Return Python's name of a charset; None if unknown. Without a mark, UTF-16 and UTF-32 are big-endian."""
    name = charset.lower()
    try:
        bytes(4).decode(name)  # decoding empty bytes would not look up the codec
    except (LookupError, UnicodeError):
        return None
    return f"{codecs.lookup(name).name}-be" if _may_have_mark(name) else name


def encoded_text(value: str, charset: str, name: str) -> bytes:
    """Encode text in a charset whose `codec` is ``name``; text that begins with a mark gets another one before it."""
    is_marked = value.startswith(_MARK) and _may_have_mark(charset)
    return f"{_MARK}{value}".encode(name) if is_marked else value.encode(name)


def _may_have_mark(charset: str) -> bool:
    return codecs.lookup(charset).name in _LITTLE


def text_reader(charset: str, mode: TextMode) -> Callable[[Buffer], str | bytes]:
    """Return a function from bytes to text; in mode ``strict`` it raises UnicodeError for invalid text.

    A byte order mark selects the byte order and is not part of the text (RFC 2781, section 4.3; Unicode, section 3.10).
    """
    name = codec(charset)
    if name is None:
        return _refuse if mode == "strict" else bytes
    text = _marked_text(charset, name) if _may_have_mark(charset) else lambda raw, errors: str(raw, name, errors)
    if mode == "replace":
        return lambda raw: text(raw, "replace")
    if mode == "strict":
        return lambda raw: text(raw, "strict")

    def read(raw: Buffer) -> str | bytes:
        try:
            return text(raw, "strict")
        except UnicodeError:
            return bytes(raw)

    return read


def _marked_text(charset: str, name: str) -> Callable[[Buffer, str], str]:
    mark, other = _LITTLE[codecs.lookup(charset).name]

    def text(raw: Buffer, errors: str) -> str:
        found = other if bytes(raw[: len(mark)]) == mark else name
        return str(raw, found, errors).removeprefix(_MARK)

    return text


def _refuse(_raw: Buffer) -> str:
    raise UnicodeError("the charset is not known")


def fixed_text_reader(charset: str, mode: TextMode) -> Callable[[bytes], str | bytes]:
    """Return a function from the bytes of a char array to its text, which ends at the first NUL: what follows may be
    anything, not only text.
    """
    read, unit = text_reader(charset, mode), unit_size(charset)
    if unit > 1:
        return lambda raw: read(_until_nul(raw, unit))
    if (codec_name := fixed_text_codec(charset, mode)) is not None:
        return lambda raw: raw.partition(b"\0")[0].decode(codec_name)
    return lambda raw: read(raw.partition(b"\0")[0])


def fixed_text_codec(charset: str, mode: TextMode) -> str | None:
    """Return the codec that alone reads char arrays of a charset, up to the first NUL byte; None if there is none."""
    name = data_codec(charset, mode)
    return None if unit_size(charset) > 1 else name


def unit_size(charset: str) -> int:
    """Return the bytes that a NUL takes in a charset: 2 in UTF-16, 4 in UTF-32, else 1."""
    name = codec(charset)
    known = "" if name is None else codecs.lookup(name).name
    return 2 if known.startswith("utf-16") else 4 if known.startswith("utf-32") else 1


def data_codec(charset: str, mode: TextMode) -> str | None:
    """Return the codec that alone reads data of a charset as text; None if there is none."""
    name = codec(charset) if mode == "strict" else None
    return None if name is None or _may_have_mark(charset) else name


def _until_nul(raw: bytes, unit: int) -> bytes:
    nul = bytes(unit)
    return next((raw[:at] for at in range(0, len(raw), unit) if raw[at : at + unit] == nul), raw)
