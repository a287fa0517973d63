"""The connector's own settings: a feed's ``options`` and what its ``tables`` may say.

How the service forms some things is not documented; those settings say what a feed's own does.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field, model_validator

from silverfold.conf.model import SourceName, Strict, Table
from silverfold.conf.secrets import Secret
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

    Args:
        connection: The whole connection string, where it is to be a secret; the feed's ``address`` is empty then.
        user, password, apikey, token: Credentials, of one kind; for an ``address`` that has none.
        all_tables: Listen to all tables of the database at once, also those that come later; what no table of the feed
            is for lands all the same. Without, each table is listened to by its name.
        listen: How a table is listened to: by ``LISTEN TABLE t``, or, with ``channel``, by ``LISTEN t``, as servers had
            it before July 2025.
        update_columns: What an UPDATE does not carry stayed as it was (``partial``), or is NULL (``full``).
        insert_absent: What an INSERT does not carry is NULL, or an ``error``.
        blob: How notifications spell blobs; ``error``: a table with one waits until this is set. Snapshots have bytes.
        fence: Tell when a snapshot is overtaken by messages on a channel of our own, made for it.
        settle_seconds: Without ``fence``: it is, when no notification has come for so long.
        canary_seconds: How often to make sure that notifications still come; 0 for never.
        reconcile_hours: How often to take a snapshot for certainty; 0 for never.
        max_frame_bytes: Longest frame to accept.
        frame_timeout: Seconds within which a frame that has begun must be there.
        max_rows: Most rows in one frame of a snapshot; 0 leaves that to the server.
        page_rows: Select a snapshot in pages of so many rows, each a moment of its own; 0 for one SELECT. Tables whose
            keys are not their primary key are always read by one.
    """

    connection: Secret | None = None
    user: str | Secret | None = None
    password: Secret | None = None
    apikey: Secret | None = None
    token: Secret | None = None
    all_tables: bool = False
    listen: Literal["table", "channel"] = "table"
    update_columns: Literal["partial", "full"] = "partial"
    insert_absent: Literal["null", "error"] = "null"
    blob: BlobForm = "error"
    fence: bool = True
    settle_seconds: float = Field(default=2.0, gt=0, le=3_600, allow_inf_nan=False)
    canary_seconds: Annotated[float, _SECONDS] = 30.0
    reconcile_hours: Annotated[float, Field(ge=0, le=8_784, allow_inf_nan=False)] = 24.0
    max_frame_bytes: int = Field(default=MAX_FRAME_BYTES, ge=1 << 10, le=1 << 30)
    frame_timeout: Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)] = 60.0
    max_rows: int = Field(default=MAX_ROWS, ge=0, le=1_000_000)
    page_rows: int = Field(default=0, ge=0, le=1_000_000_000)

    @property
    def row_settings(self) -> dict[str, str | list[str]]:
        """Return what of the settings says which rows the tables have."""
        return {"update_columns": self.update_columns, "blob": self.blob}

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

    Args:
        source: The table's name at the source; empty for the silver table's own name.
        channel: Instead: a channel, each of whose messages becomes a row, that is only ever added.
        log: Instead of the table's rows, each change that is notified of it becomes a row: who wrote it, what it did,
            key and columns in JSON. What happens while nobody listens is not in it.
        keys: Columns that name a row, of a table that has no primary key. Without, those of its primary key. SQLite may
            notify nothing of such a table: then it is as its last snapshot was (``reconcile_hours``).
        key_collation: ``nocase`` for a key declared so: keys that differ in the case of ASCII letters are one. Silver
            has them in lower case.
        types: Types of columns that are not to be of their declared one: bigint, double, string, binary, boolean or
            decimal(precision, scale). A column of ``string`` takes whatever SQLite holds but blobs.
    """

    ROW_SETTINGS = ("key_collation",)

    source: SourceName = ""
    channel: SourceName = ""
    log: bool = False
    key_collation: Literal["binary", "nocase"] = "binary"
    types: dict[ColumnName, TypeName] = Field(default_factory=dict)

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
