"""Every error silverfold raises on purpose.

::

    SilverfoldError               .error_class (stable, UPPER_SNAKE)   .retryable
    ├── ConfigError               file, key
    ├── WireError                 the bytes are not what the format says: offset
    │   ├── TruncatedMessage  OversizedMessage  UnknownTemplate  InvalidValue
    ├── SchemaError               a schema file is wrong: file, line
    ├── ProtocolError             well-formed but not allowed now; the epoch is over
    │   ├── LocalProtocolError    our fault: a bug
    │   └── RemoteProtocolError   the peer's: reconnect
    ├── SourceRefused             the source said no: code, text
    │   ├── UntrustedSource       its certificate is not one to trust: nothing was sent
    │   └── StatementRefused      to a statement: extended code, offset in the statement
    ├── SourceUnavailable         connect, read, write, time-out; retryable
    ├── StoreUnavailable          a Delta table cannot be read or written now; retryable
    ├── SparkUnavailable          Java or the Delta JARs are missing: what to do
    ├── Fenced                    another process owns this feed or table
    ├── PositionGap               bronze lacks positions: first, last
    │   └── DoubledPositions  ReplacedBronze
    ├── QueryFailed               the user's query is wrong or failed: condition
    └── ApplyError                table
        ├── DuplicateKey  NullKey  UnusableKey  Unexplained  ExpectationFailed  UnusableExpectation
        ├── SchemaDrift  SnapshotNeeded  RebuildNeeded  Overtaken  PositionNotRecorded  UndecodableFrame

Errors carry what happened as attributes; the message is built from them.
"""

from __future__ import annotations

from typing import ClassVar

from conf.text import in_one_line, without_secrets


class SilverfoldError(Exception):
    """Base of the tree. ``error_class`` is stable: scripts may match on it."""

    error_class: ClassVar[str] = "SILVERFOLD_ERROR"
    retryable: ClassVar[bool] = False

    def __str__(self) -> str:
        """Return the message, of which a part may be a peer's."""
        return in_one_line(super().__str__())


class ConfigError(SilverfoldError):
    """A setting is wrong. Says where it stands, what was found, and what is allowed.

    Args:
        found: The value as written; None when there is none.
        others: Further mistakes found by the same check, each an error of its own.
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
    """The bytes are not what the format says.

    Args:
        detail: What was found and what was expected.
        offset: Where in the message, in bytes from its first byte; None when unknown.
        reason: The finding's short name, such as ``truncated`` or ``charset``.
        element: Where in the message's structure, such as ``Quote.legs[1].blob``; empty when unknown.
    """

    error_class = "WIRE_ERROR"

    def __init__(self, detail: str, *, offset: int | None = None, reason: str = "", element: str = "") -> None:
        self.detail, self.offset, self.reason, self.element = detail, offset, reason, element
        at = (f" in {element}" if element else "") + ("" if offset is None else f" at byte {offset}")
        super().__init__(f"{reason or self.error_class.lower()}{at}: {detail}")


def of_decoder(error: Exception) -> tuple[str, str]:
    """Return class and reason of a frame at which the decoder itself fails. Its text may have values of the frame."""
    return "DECODER_FAILED", f"{type(error).__name__} in the decoder"


class TruncatedMessage(WireError):
    """The message ends before the format says it may."""

    error_class = "TRUNCATED_MESSAGE"


class OversizedMessage(WireError):
    """An announced length is above the limit. Raised before the bytes arrive."""

    error_class = "OVERSIZED_MESSAGE"


class UnknownTemplate(WireError):
    """The template id is not in the schema."""

    error_class = "UNKNOWN_TEMPLATE"


class InvalidValue(WireError):
    """A value, count or length is outside what the format allows."""

    error_class = "INVALID_VALUE"


class SchemaError(SilverfoldError):
    """A schema file is wrong.

    Args:
        code: The rule's code in the list of SBE schema errors, such as ``E07``, or a name of ours.
        line: Line of the element, from 1; None when it concerns the whole file.
        others: Further errors found in the same pass.
        warnings: What works but should not be, found so far, each as ``file:line: code: text``.
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
    """Well-formed, but not allowed in this state. The epoch is over."""

    error_class = "PROTOCOL_ERROR"


class LocalProtocolError(ProtocolError):
    """We tried to do what the protocol forbids: a bug of the caller."""

    error_class = "LOCAL_PROTOCOL_ERROR"


class RemoteProtocolError(ProtocolError):
    """The peer did what the protocol forbids. Reconnect.

    Args:
        stream: The stream it concerns, where one can be named.
        reason: The finding's short name, such as ``unexpected_frame``; empty where there is none.
    """

    error_class = "REMOTE_PROTOCOL_ERROR"
    retryable = True

    def __init__(self, detail: str, *, stream: str | None = None, reason: str = "") -> None:
        self.detail, self.stream, self.reason = detail, stream, reason
        super().__init__(f"{reason}: {detail}" if reason else detail)


class SourceRefused(SilverfoldError):
    """The source said no, with a code and a text of its own."""

    error_class = "SOURCE_REFUSED"

    def __init__(self, *, code: str, text: str, stream: str | None = None) -> None:
        self.code, self.text, self.stream = code, text, stream
        super().__init__(f"{stream + ': ' if stream else ''}{code}: {text}")


class UntrustedSource(SourceRefused):
    """The source's certificate is expired, of another name, or of nobody we trust. Nothing was sent to it.

    To try again would meet the same certificate: someone has to look.
    """

    error_class = "UNTRUSTED_SOURCE"

    def __init__(self, *, text: str) -> None:
        super().__init__(code="certificate", text=text)


class StatementRefused(SourceRefused):
    """The source said no to a statement.

    Args:
        extended: SQLite's extended code; 0 where there is none.
        offset: Where in the statement's text, in bytes; None where that is not known.
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
    """Spark cannot start on this machine, or has ended before its work was done. The message says what to do."""

    error_class = "SPARK_UNAVAILABLE"


class Fenced(SilverfoldError):
    """Another process took over, or bronze lost what this one wrote, which must stop. It may start again."""

    error_class = "FENCED"

    def __init__(self, *, owner: str, expected: int, found: int) -> None:
        self.owner, self.expected, self.found = owner, expected, found
        why = "lost what was written, start again" if found < expected else "is another's now, stop one of the two"
        super().__init__(f"{owner} {why}: expected position {expected}, found {found}")


class PositionGap(SilverfoldError):
    """Bronze lacks positions that must be there. ``first`` and ``last`` are inclusive; ``advice`` says what to do."""

    error_class = "POSITION_GAP"
    found: ClassVar[str] = "lacks positions {first} to {last}"

    def __init__(self, *, feed: str, first: int, last: int, advice: str = "") -> None:
        self.feed, self.first, self.last, self.advice = feed, first, last, advice
        found = self.found.format(first=first, last=last)
        super().__init__(f"bronze of feed {feed} {found}{advice and ': '}{advice}")


class DoubledPositions(PositionGap):
    """Bronze has frames twice: their updates would be applied twice. ``first`` and ``last`` are the outermost."""

    error_class = "DOUBLED_POSITIONS"
    found = "has frames twice from position {first} to {last}"

    def __init__(self, *, feed: str, first: int, last: int) -> None:
        advice = f"`silverfold maintain {feed}` removes the second of each"
        super().__init__(feed=feed, first=first, last=last, advice=advice)


class ReplacedBronze(PositionGap):
    """Bronze lost frames that a table has, and has others in their stead; or it is another one altogether."""

    error_class = "REPLACED_BRONZE"
    found = "is another one at position {first} than the table was built from"


class QueryFailed(SilverfoldError):
    """A query of the user's is wrong, or failed while it ran.

    Args:
        condition: Spark's name of what is wrong, such as ``TABLE_OR_VIEW_NOT_FOUND``.
    """

    error_class = "QUERY_FAILED"

    def __init__(self, detail: str, *, condition: str) -> None:
        self.detail, self.condition = detail, condition
        super().__init__(detail)


class ApplyError(SilverfoldError):
    """A cut could not be applied. The silver table stands as it was.

    Args:
        since: Position from which on the same is so, as far as the cut goes: one that ends behind it fails too. None
            where that is not known.
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
    """A key is of a type by whose values rows cannot be told apart. Name other ``keys``."""

    error_class = "UNUSABLE_KEY"


class Unexplained(ApplyError):
    """A change is of a row that is not there, or begins one that is, and the table's settings do not let that pass."""

    error_class = "UNEXPLAINED"


class ExpectationFailed(ApplyError):
    """A row fails a rule of the table whose action is ``fail``, or one of its rules cannot be judged of the row."""

    error_class = "EXPECTATION_FAILED"


class UnusableExpectation(ApplyError):
    """A rule's condition cannot be judged: it names a column the table lacks, or is no condition."""

    error_class = "UNUSABLE_EXPECTATION"


class SchemaDrift(ApplyError):
    """The source's columns changed in a way the table cannot follow."""

    error_class = "SCHEMA_DRIFT"


class SnapshotNeeded(ApplyError):
    """The source has a new column and sends partial updates: what older rows have in it, only a snapshot can tell.

    Let the receiver connect anew. The table goes on with the snapshot it gets.
    """

    error_class = "SNAPSHOT_NEEDED"

    def __init__(self, *, column: str, table: str) -> None:
        self.column = column
        super().__init__(
            f"the source has a new column {column}: a snapshot must tell what older rows have", table=table
        )


class RebuildNeeded(ApplyError):
    """The table, or what is beside it, was not built under the settings it has now; what it lacks only bronze has.

    Args:
        undo: What helps as well.
    """

    error_class = "REBUILD_NEEDED"

    def __init__(self, reason: str, *, feed: str, table: str, undo: str = "") -> None:
        rebuild = f"run silverfold rebuild {feed} {table}"
        super().__init__(f"{reason}: {f'{undo}, or ' if undo else ''}{rebuild}", table=table)


class Overtaken(ApplyError):
    """Another process wrote the table meanwhile. What was not committed is to be done again, from what is there now."""

    error_class = "OVERTAKEN"
    retryable = True


class PositionNotRecorded(ApplyError):
    """The commit did not move the position in the table's log."""

    error_class = "POSITION_NOT_RECORDED"


class UndecodableFrame(ApplyError):
    """A landed frame cannot be decoded; the table holds before its update.

    Args:
        position: frame_seq of the frame.
        cause_class: ``error_class`` of the wire error found.
    """

    error_class = "UNDECODABLE_FRAME"

    def __init__(self, *, table: str, position: int, cause_class: str, reason: str) -> None:
        self.position, self.cause_class, self.reason = position, cause_class, reason
        super().__init__(f"frame {position} cannot be decoded: {cause_class}: {reason}", table=table)
