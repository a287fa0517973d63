"""Errors with a source: its bytes, its schema, its protocol, its refusals."""

from __future__ import annotations

from typing import Self

from silverfold.conf.errors.base import SilverfoldError


class WireError(SilverfoldError):
    """The bytes violate the format.

    Args:
        detail: What was found and what was expected.
        offset: Offset in the message, in bytes from its first byte; None if unknown.
        reason: Short name of the error, such as ``truncated`` or ``charset``.
        element: Path in the message's structure, such as ``Quote.legs[1].blob``; empty if unknown.
    """

    error_class = "WIRE_ERROR"

    def __init__(self, detail: str, *, offset: int | None = None, reason: str = "", element: str = "") -> None:
        self.detail, self.offset, self.reason, self.element = detail, offset, reason, element
        at = (f" in {element}" if element else "") + ("" if offset is None else f" at byte {offset}")
        super().__init__(f"{reason or self.error_class.lower()}{at}: {detail}")

    def moved(self, by: int) -> Self:
        """Return the error with its offset from what begins ``by`` bytes earlier; an unknown offset counts as 0."""
        return type(self)(self.detail, offset=(self.offset or 0) + by, reason=self.reason, element=self.element)


def of_decoder(error: Exception) -> tuple[str, str]:
    """Return error class and reason for a failure of the decoder itself, without its text, which may contain data."""
    return "DECODER_FAILED", f"{type(error).__name__} in the decoder"


class TruncatedMessage(WireError):
    """The message is shorter than the format requires."""

    error_class = "TRUNCATED_MESSAGE"


class OversizedMessage(WireError):
    """An announced length exceeds the limit. Raised before the bytes arrive."""

    error_class = "OVERSIZED_MESSAGE"


class UnknownTemplate(WireError):
    """The template id is not in the schema."""

    error_class = "UNKNOWN_TEMPLATE"


class InvalidValue(WireError):
    """A value, count or length is outside what the format allows."""

    error_class = "INVALID_VALUE"


class SchemaError(SilverfoldError):
    """A schema file is invalid.

    Args:
        code: The rule's code in the list of SBE schema errors, such as ``E07``, or a name of ours.
        line: Line of the element, from 1; None if the error concerns the whole file.
        others: Further errors found in the same pass.
        warnings: Warnings found so far, each as ``file:line: code: text``.
    """

    error_class = "SCHEMA_ERROR"

    def __init__(
        self,
        detail: str,
        *,
        file: str = "",
        line: int | None = None,
        code: str = "",
        others: tuple[SchemaError, ...] = (),
        warnings: tuple[str, ...] = (),
    ) -> None:
        self.detail, self.file, self.line, self.code = detail, file, line, code
        self.others, self.warnings = others, warnings
        where = f"{file or 'schema'}{'' if line is None else f':{line}'}: {code and f'{code}: '}"
        super().__init__("\n".join([f"{where}{detail}", *map(str, others)]))

    @property
    def errors(self) -> tuple[SchemaError, ...]:
        """All errors of the pass, this one first, in the order of the file."""
        return (self, *self.others)


class ProtocolError(SilverfoldError):
    """Well-formed, but not allowed in this state. The epoch ends."""

    error_class = "PROTOCOL_ERROR"


class LocalProtocolError(ProtocolError):
    """We violated the protocol: a bug in the caller."""

    error_class = "LOCAL_PROTOCOL_ERROR"


class RemoteProtocolError(ProtocolError):
    """The peer violated the protocol. Reconnect.

    Args:
        stream: The stream concerned, if known.
        reason: Short name of the error, such as ``unexpected_frame``; empty if it has none.
    """

    error_class = "REMOTE_PROTOCOL_ERROR"
    retryable = True

    def __init__(self, detail: str, *, stream: str | None = None, reason: str = "") -> None:
        self.detail, self.stream, self.reason = detail, stream, reason
        super().__init__(f"{reason}: {detail}" if reason else detail)


class SourceRefused(SilverfoldError):
    """The source refused a request, with its own code and text."""

    error_class = "SOURCE_REFUSED"

    def __init__(self, *, code: str, text: str, stream: str | None = None) -> None:
        self.code, self.text, self.stream = code, text, stream
        super().__init__(f"{stream + ': ' if stream else ''}{code}: {text}")


class UntrustedSource(SourceRefused):
    """The source's certificate is expired, has another name, or has an untrusted issuer. Nothing was sent to it.

    Not retryable: a retry would meet the same certificate. A receiver retries if a file of the authorities may change.
    """

    error_class = "UNTRUSTED_SOURCE"

    def __init__(self, *, text: str) -> None:
        super().__init__(code="certificate", text=text)


class StatementRefused(SourceRefused):
    """The source refused a statement.

    Args:
        extended: SQLite's extended code; 0 if there is none.
        offset: Offset in the statement's text, in bytes; None if unknown.
    """

    error_class = "STATEMENT_REFUSED"

    def __init__(self, *, code: str, text: str, extended: int = 0, offset: int | None = None) -> None:
        self.extended, self.offset = extended, offset
        super().__init__(code=code, text=text)


class SourceUnavailable(SilverfoldError):
    """The source cannot be reached, or stopped answering."""

    error_class = "SOURCE_UNAVAILABLE"
    retryable = True
