"""All errors that silverfold raises deliberately.

::

    SilverfoldError               .error_class (stable, UPPER_SNAKE)   .retryable
    ├── ConfigError               file, key
    ├── WireError                 the bytes violate the format: offset
    │   ├── TruncatedMessage  OversizedMessage  UnknownTemplate  InvalidValue
    ├── SchemaError               a schema file is invalid: file, line
    ├── ProtocolError             well-formed but not allowed now; the epoch ends
    │   ├── LocalProtocolError    our fault: a bug
    │   └── RemoteProtocolError   the peer's: reconnect
    ├── SourceRefused             the source refused a request: code, text
    │   ├── UntrustedSource       its certificate is not trusted: nothing was sent
    │   └── StatementRefused      it refused a statement: extended code, offset in the statement
    ├── SourceUnavailable         connect, read, write, time-out; retryable
    ├── StoreUnavailable          a Delta table cannot be read or written now; retryable
    ├── SparkUnavailable          Java or the Delta JARs are missing: what to do
    ├── Fenced                    another process owns this feed or table
    ├── PositionGap               bronze lacks positions: first, last
    │   └── DoubledPositions  ReplacedBronze
    ├── QueryFailed               the user's query is invalid or failed: condition
    └── ApplyError                table
        ├── DuplicateKey  NullKey  UnusableKey  Unexplained  ExpectationFailed  UnusableExpectation
        ├── SchemaDrift  SnapshotNeeded  RebuildNeeded  Overtaken  PositionNotRecorded  UndecodableFrame

Errors carry the details as attributes; the message is built from them.
"""

from __future__ import annotations

from typing import ClassVar

from silverfold.conf.text import in_one_line, without_secrets


class SilverfoldError(Exception):
    """Base of the tree. ``error_class`` is stable: scripts may match on it."""

    error_class: ClassVar[str] = "SILVERFOLD_ERROR"
    retryable: ClassVar[bool] = False

    def __str__(self) -> str:
        """Return the message on one line with control characters escaped: parts of it may come from a peer."""
        return in_one_line(super().__str__())


class ConfigError(SilverfoldError):
    """A setting is invalid. Reports its location, the value found, and what is allowed.

    Args:
        found: The value as written; None if there is none.
        others: Further errors found by the same check.
    """

    error_class = "CONFIG_ERROR"

    def __init__(
        self, *, file: str, key: str, found: object, allowed: str, others: tuple[ConfigError, ...] = ()
    ) -> None:
        if key == "address" and isinstance(found, str):
            found = without_secrets(found)
        self.file, self.key, self.found, self.allowed, self.others = file, key, found, allowed, others
        shown = "nothing" if found is None else repr(found)
        super().__init__(f"{file}: {key}: found {shown}, allowed: {allowed}")


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

    Not retryable: a retry would meet the same certificate.
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


class StoreUnavailable(SilverfoldError):
    """A table's storage cannot be read or written at the moment."""

    error_class = "STORE_UNAVAILABLE"
    retryable = True


class SparkUnavailable(SilverfoldError):
    """Spark cannot start on this machine, or ended prematurely. The message says what to do."""

    error_class = "SPARK_UNAVAILABLE"


class Fenced(SilverfoldError):
    """Another process took over, or bronze lost what this process wrote. This process must stop; it may restart."""

    error_class = "FENCED"

    def __init__(self, *, owner: str, expected: int, found: int) -> None:
        self.owner, self.expected, self.found = owner, expected, found
        why = "lost what was written, start again" if found < expected else "is another's now, stop one of the two"
        super().__init__(f"{owner} {why}: expected position {expected}, found {found}")


class PositionGap(SilverfoldError):
    """Bronze lacks required positions. ``first`` and ``last`` are inclusive; ``advice`` says what to do."""

    error_class = "POSITION_GAP"
    found: ClassVar[str] = "lacks positions {first} to {last}"

    def __init__(self, *, feed: str, first: int, last: int, advice: str = "") -> None:
        self.feed, self.first, self.last, self.advice = feed, first, last, advice
        found = self.found.format(first=first, last=last)
        super().__init__(f"bronze of feed {feed} {found}{advice and ': '}{advice}")


class DoubledPositions(PositionGap):
    """Bronze has duplicate frames, whose updates would be applied twice. ``first`` and ``last`` are the outermost."""

    error_class = "DOUBLED_POSITIONS"
    found = "has frames twice from position {first} to {last}"

    def __init__(self, *, feed: str, first: int, last: int) -> None:
        advice = f"`silverfold maintain {feed}` removes the second of each"
        super().__init__(feed=feed, first=first, last=last, advice=advice)


class ReplacedBronze(PositionGap):
    """Bronze has other frames in place of those a table was built from, or is another bronze table altogether."""

    error_class = "REPLACED_BRONZE"
    found = "is another one at position {first} than the table was built from"


class QueryFailed(SilverfoldError):
    """A user's query is invalid, or failed while running.

    Args:
        condition: Spark's error condition, such as ``TABLE_OR_VIEW_NOT_FOUND``.
    """

    error_class = "QUERY_FAILED"

    def __init__(self, detail: str, *, condition: str) -> None:
        self.detail, self.condition = detail, condition
        super().__init__(detail)


class ApplyError(SilverfoldError):
    """A cut could not be applied. The silver table is unchanged.

    Args:
        since: Position from which on the error occurs within the cut: any cut that ends after it fails too. None if
            unknown.
    """

    error_class = "APPLY_ERROR"

    def __init__(self, detail: str, *, table: str, since: int | None = None) -> None:
        self.detail, self.table, self.since = detail, table, since
        super().__init__(f"{table}: {detail}")


class DuplicateKey(ApplyError):
    """Two rows of the source have the same configured key."""

    error_class = "DUPLICATE_KEY"


class NullKey(ApplyError):
    """A row of the source has a NULL in its configured key."""

    error_class = "NULL_KEY"


class UnusableKey(ApplyError):
    """The values of a key's type cannot identify rows. Set other ``keys``."""

    error_class = "UNUSABLE_KEY"


class Unexplained(ApplyError):
    """A change updates or deletes a missing row, or inserts an existing one, which the table's settings disallow."""

    error_class = "UNEXPLAINED"


class ExpectationFailed(ApplyError):
    """A row fails a rule whose action is ``fail``, or a rule cannot be evaluated on the row."""

    error_class = "EXPECTATION_FAILED"


class UnusableExpectation(ApplyError):
    """A rule cannot be evaluated: its condition names a missing column, or is not boolean."""

    error_class = "UNUSABLE_EXPECTATION"


class SchemaDrift(ApplyError):
    """The source's columns changed in a way the table cannot follow."""

    error_class = "SCHEMA_DRIFT"


class SnapshotNeeded(ApplyError):
    """The source has a new column and sends partial updates: only a snapshot has the values of older rows.

    Let the receiver reconnect. The table continues with the snapshot it receives.
    """

    error_class = "SNAPSHOT_NEEDED"

    def __init__(self, *, column: str, table: str) -> None:
        self.column = column
        super().__init__(
            f"the source has a new column {column}: a snapshot must tell what older rows have", table=table
        )


class RebuildNeeded(ApplyError):
    """The table or a side table was built with other settings than the current ones; only bronze has the missing data.

    Args:
        undo: An alternative to the rebuild.
    """

    error_class = "REBUILD_NEEDED"

    def __init__(self, reason: str, *, feed: str, table: str, undo: str = "") -> None:
        rebuild = f"run silverfold rebuild {feed} {table}"
        super().__init__(f"{reason}: {f'{undo}, or ' if undo else ''}{rebuild}", table=table)


class Overtaken(ApplyError):
    """Another process wrote the table meanwhile. Retry the uncommitted work from the table's current version."""

    error_class = "OVERTAKEN"
    retryable = True


class PositionNotRecorded(ApplyError):
    """The commit did not move the position in the table's log."""

    error_class = "POSITION_NOT_RECORDED"


class UndecodableFrame(ApplyError):
    """A landed frame cannot be decoded; the table stops before its update.

    Args:
        position: frame_seq of the frame.
        cause_class: ``error_class`` of the decoding error.
    """

    error_class = "UNDECODABLE_FRAME"

    def __init__(self, *, table: str, position: int, cause_class: str, reason: str) -> None:
        self.position, self.cause_class, self.reason = position, cause_class, reason
        super().__init__(f"frame {position} cannot be decoded: {cause_class}: {reason}", table=table)
