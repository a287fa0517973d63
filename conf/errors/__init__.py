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

from silverfold.conf.errors.apply import (
    ApplyError,
    DuplicateKey,
    ExpectationFailed,
    NullKey,
    Overtaken,
    PositionNotRecorded,
    RebuildNeeded,
    SchemaDrift,
    SnapshotNeeded,
    UndecodableFrame,
    Unexplained,
    UnusableExpectation,
    UnusableKey,
)
from silverfold.conf.errors.base import (
    ConfigError,
    SilverfoldError,
)
from silverfold.conf.errors.source import (
    InvalidValue,
    LocalProtocolError,
    OversizedMessage,
    ProtocolError,
    RemoteProtocolError,
    SchemaError,
    SourceRefused,
    SourceUnavailable,
    StatementRefused,
    TruncatedMessage,
    UnknownTemplate,
    UntrustedSource,
    WireError,
    of_decoder,
)
from silverfold.conf.errors.store import (
    DoubledPositions,
    Fenced,
    PositionGap,
    QueryFailed,
    ReplacedBronze,
    SparkUnavailable,
    StoreUnavailable,
)

__all__ = [
    "ApplyError",
    "ConfigError",
    "DoubledPositions",
    "DuplicateKey",
    "ExpectationFailed",
    "Fenced",
    "InvalidValue",
    "LocalProtocolError",
    "NullKey",
    "OversizedMessage",
    "Overtaken",
    "PositionGap",
    "PositionNotRecorded",
    "ProtocolError",
    "QueryFailed",
    "RebuildNeeded",
    "RemoteProtocolError",
    "ReplacedBronze",
    "SchemaDrift",
    "SchemaError",
    "SilverfoldError",
    "SnapshotNeeded",
    "SourceRefused",
    "SourceUnavailable",
    "SparkUnavailable",
    "StatementRefused",
    "StoreUnavailable",
    "TruncatedMessage",
    "UndecodableFrame",
    "Unexplained",
    "UnknownTemplate",
    "UntrustedSource",
    "UnusableExpectation",
    "UnusableKey",
    "WireError",
    "of_decoder",
]
