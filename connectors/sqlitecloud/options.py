"""The connector's own settings: a feed's ``options`` and what its ``tables`` may say.

How the service forms some things is not documented; those settings say what a feed's own does.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field, model_validator

from silverfold.conf.model import SourceName, Strict, Table
from silverfold.conf.secrets import Secret
from silverfold.connectors.base import Feed
from silverfold.connectors.sqlitecloud.client.settings import MAX_ROWS
from silverfold.connectors.sqlitecloud.protocol.frame_access import log_stream, message_stream
from silverfold.connectors.sqlitecloud.protocol.frames import MAX_FRAME_BYTES

BlobForm: TypeAlias = Literal["error", "base64", "hex", "text"]
"""How a notification spells a blob, which JSON has no form for."""

_DECIMAL = re.compile(r"decimal\(([1-9]|[12][0-9]|3[0-8]), ?([0-9]|[12][0-9]|3[0-8])\)")
_TYPES = ("bigint", "double", "string", "binary", "boolean")
_SECONDS = Field(ge=0, le=86_400, allow_inf_nan=False)


def _type_name(name: str) -> str:
    found = _DECIMAL.fullmatch(name)
    if name not in _TYPES and (found is None or int(found[2]) > int(found[1])):
        raise ValueError(f"one of {', '.join(_TYPES)}, or decimal(precision, scale) of at most 38 digits")
    return name


TypeName: TypeAlias = Annotated[str, AfterValidator(_type_name)]
ColumnName: TypeAlias = Annotated[str, Field(min_length=1)]


class SqliteCloudOptions(Strict):
    """A feed's ``options``.

    ``address`` is a connection string, ``sqlitecloud://host:port/database.db``, with the keys of the official clients;
    credentials go into ``options``. A table is one of the database, and needs a primary key or ``keys``. With
    ``channel`` instead, it has a row for each message: ``sender``, ``payload``.
    """

    connection: Secret | None = None
    """The whole connection string as a secret, instead of ``address``."""
    user: str | Secret | None = None
    """User name, with ``options.password``. May be a secret."""
    password: Secret | None = None
    """A secret, as are the next two. One kind of credentials is needed, unless the connection string has some."""
    apikey: Secret | None = None
    """API key, as a secret."""
    token: Secret | None = None
    """Access token, as a secret."""
    all_tables: bool = False
    """Listen to all tables of the database at once, also those that come later. Changes that no table of the feed needs
    land all the same. If false, each table is listened to by its name."""
    listen: Literal["table", "channel"] = "table"
    """How to listen to a table: by ``LISTEN TABLE t``, or with ``channel`` by ``LISTEN t``, as servers had it before
    July 2025."""
    update_columns: Literal["partial", "full"] = "partial"
    """Columns that an UPDATE does not carry stay as they were (``partial``), or are NULL (``full``)."""
    insert_absent: Literal["null", "error"] = "null"
    """Columns that an INSERT does not carry are NULL, or an ``error``."""
    blob: BlobForm = "error"
    """How notifications spell blobs: ``base64``, ``hex``, or as ``text``, which is right for UTF-8 only. With ``error``
    a table waits at the first in a column of type BLOB until this is set. Snapshots have bytes."""
    fence: bool = True
    """Find out when notifications overtake a snapshot, by messages on a channel made for it. Needs the privileges
    PUBSUBCREATE, PUB and SUB."""
    settle_seconds: float = Field(default=2.0, gt=0, le=3_600, allow_inf_nan=False)
    """Without ``fence``: seconds without a notification after which a snapshot counts as overtaken."""
    canary_seconds: Annotated[float, _SECONDS] = 30.0
    """Seconds between checks that notifications still come; 0 for never."""
    reconcile_hours: Annotated[float, Field(ge=0, le=8_784, allow_inf_nan=False)] = 24.0
    """Hours between snapshots taken for certainty; 0 for never."""
    max_frame_bytes: int = Field(default=MAX_FRAME_BYTES, ge=1 << 10, le=1 << 30)
    """Longest frame to accept, and to expand."""
    frame_timeout: Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)] = 60.0
    """Seconds within which a frame that has begun must be complete."""
    max_rows: int = Field(default=MAX_ROWS, ge=0, le=1_000_000)
    """Most rows in one frame of a snapshot; 0 leaves that to the server. Takes precedence over ``maxrows`` of the
    address. A frame of more than 4,000,000 values is refused: ask for fewer rows of a table of more than 800 columns.
    """
    page_rows: int = Field(default=0, ge=0, le=1_000_000_000)
    """Select snapshots in pages of so many rows, each a moment of its own; 0 for one SELECT. Tables whose keys are not
    their primary key are always read by one."""

    @property
    def row_settings(self) -> dict[str, str | list[str]]:
        """Return what of the settings says which rows the tables have."""
        return {"update_columns": self.update_columns, "blob": self.blob}

    @property
    def login_may_change(self) -> bool:
        """Return whether a file has some of what the receiver logs in with."""
        given = (self.connection, self.user, self.password, self.apikey, self.token)
        return any(isinstance(each, Secret) and each.may_change for each in given)

    @model_validator(mode="after")
    def _one_kind_of_credentials(self) -> SqliteCloudOptions:
        if (self.user is None) != (self.password is None):
            raise ValueError("user and password together")
        kinds = (self.connection, self.password, self.apikey, self.token)
        if sum(kind is not None for kind in kinds) > 1:
            raise ValueError("one of connection, user with password, apikey and token")
        return self


class SqliteCloudTable(Table):
    """One silver table: a table of the database, or the messages of a channel.

    SQLite's declared types give way to its affinities: INT is bigint; CHAR, CLOB and TEXT are string, BLOB is binary,
    REAL, FLOA and DOUB are double. All else (NUMERIC, DECIMAL, BOOLEAN, DATE, none) is string, which loses nothing. A
    value that does not fit its column holds the table, and is reported; as ``string`` a column takes anything but
    blobs, and texts with half of a surrogate pair, which no setting replaces. A notification spells a blob as text. In
    a column of another type than BLOB the two cannot be told apart: the text is stored, and the next snapshot, which
    can tell, holds the table. Give such a column ``types = { name = "binary" }``.
    """

    ROW_SETTINGS = ("key_collation",)

    source: SourceName = ""
    """The table's name in the database; by default the table's own name."""
    keys: tuple[str, ...] = ()
    """Columns that name a row, of a table without a primary key; by default its primary key. SQLite may notify nothing
    of such a table: then it is as its last snapshot was (``options.reconcile_hours``)."""
    channel: SourceName = ""
    """Instead of a table, a channel: its messages are rows, which are only ever added. A table of the database is none,
    also where ``LISTEN`` takes it: the mark ``no channel`` says so."""
    log: bool = False
    """Instead of the table's rows, a row for each notified change of its ``source``: ``sender``, ``op``, and in JSON
    ``key``, ``old_key``, ``columns``. It lacks what happens while nobody listens. The source has a primary key:
    notifications without key columns cannot be read."""
    key_collation: Literal["binary", "nocase"] = "binary"
    """``nocase`` for a key that is declared so: keys that differ in the case of ASCII letters are one. Silver has them
    in lower case."""
    types: dict[ColumnName, TypeName] = Field(default_factory=dict)
    """Types of columns that are not to be of their declared one: ``{ price = "decimal(10, 2)" }``. bigint, double,
    string, binary, boolean or decimal."""

    @property
    def is_channel(self) -> bool:
        """Its rows are the messages of a channel."""
        return bool(self.channel)

    @property
    def only_adds(self) -> bool:
        """Its rows are notifications, as they came."""
        return self.is_channel or self.log

    def stream(self, name: str) -> str:
        """Return the stream that feeds the silver table of a name."""
        if self.channel:
            return message_stream(self.channel)
        return log_stream(self.source or name) if self.log else self.source or name

    @model_validator(mode="after")
    def _fits_together(self) -> SqliteCloudTable:
        floats = [name for name in self.keys if self.types.get(name) == "double"]
        if floats:
            raise ValueError(f"keys of any type but double, unlike {floats[0]}: 0.0 and -0.0 are one number")
        if not self.only_adds:
            return self
        if self.channel and (self.source or self.log):
            raise ValueError("channel alone: source and log are of a table")
        kind = "channel" if self.channel else "log"
        if self.types or self.keys or self.key_collation != "binary":
            raise ValueError(f"{kind} without keys, key_collation and types, which are of a table's rows")
        if self.keeps_history or self.expect or self.on_unexplained != "count":
            raise ValueError(f"{kind} without stored_as_scd_type, expect and on_unexplained: rows are only added")
        return self


SqliteCloudFeed: TypeAlias = Feed[SqliteCloudOptions, SqliteCloudTable]
"""A feed of this connector."""
