"""The connector's own settings: a feed's ``options`` and what its ``tables`` may say."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from silverfold.conf.model import PathText, Seconds, Strict, Table
from silverfold.connectors.base import Feed
from silverfold.connectors.deephaven.protocol.frames import PrefixCounts
from silverfold.connectors.deephaven.protocol.groups import TextErrors
from silverfold.connectors.deephaven.protocol.messages import SubscribeMode

_ONLY_WITH = {"every": SubscribeMode.SNAPSHOT_ONLY, "apply": SubscribeMode.UPDATES_ONLY}
"""Settings that apply in one mode only."""


class DeephavenOptions(Strict):
    """A feed's ``options``.

    ``address`` is ``host:port``. A table's ``source`` is its name at the server.
    """

    schema_: PathText = Field(default="builtin", alias="schema", min_length=1)
    """``builtin`` for the schema in ``connectors/deephaven``, else the path of the vendor's own XML."""
    prefix_counts: PrefixCounts | None = None
    """What the length before a message counts: ``message``, ``message+prefix`` or ``body``. If unset, the first frame
    tells."""
    byte_order: Literal["littleEndian", "bigEndian"] | None = None
    """Byte order of the schema: ``littleEndian`` or ``bigEndian``. If unset, the first frame tells."""
    accept_schema_id: bool = False
    """Read a server whose schema id differs from the schema's."""
    silent_after: Seconds | None = None
    """Seconds without a byte after which the server counts as lost, and is connected to anew. The protocol has no
    heartbeat, and a stopped server keeps its connections open. Set it where some table is known to tick."""
    text: TextErrors = "strict"
    """Bytes that are not text in their charset, and chars that are half of a surrogate pair: ``strict`` cannot decode
    the frame, which is a column of up to some thousand rows; ``replace`` writes U+FFFD for them."""
    date_times: Literal["timestamp", "nanoseconds"] = "timestamp"
    """``timestamp`` keeps microseconds, and counts the values that lost more; ``nanoseconds`` keeps all, as a number.
    """


class DeephavenTable(Table):
    """One silver table."""

    ROW_SETTINGS = ("mode", "apply")

    mode: SubscribeMode = SubscribeMode.SNAPSHOT_WITH_UPDATES
    """What to request: ``snapshot_with_updates``, ``snapshot_only`` or ``updates_only``, which may be called
    ``update_only``."""
    columns: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Columns to subscribe; empty for all."""
    filter: str = ""
    """Rows to subscribe, as an expression of the source; empty for all.
    ``connectors/deephaven/server/filters/syntax.py`` describes what ``silverfold simulate deephaven`` understands."""
    every: float = Field(default=60.0, gt=0, allow_inf_nan=False)
    """With ``snapshot_only``: seconds from the end of one snapshot to the request for the next."""
    apply: Literal["log", "upsert"] = "log"
    """With ``updates_only``: ``log`` appends every change as a row; ``upsert`` changes rows, which are identified by
    the source's row keys alone. No snapshot ever corrects them: use it only if row keys outlive a connection. Where the
    server makes the table anew, a row key means another row."""
    decimals: dict[str, Annotated[int, Field(ge=0, le=38)]] = Field(default_factory=dict)
    """Scale of the BigDecimal columns that become decimal(38, scale); others become text."""

    @property
    def row_settings(self) -> dict[str, str | list[str]]:
        """Return the settings that determine the table's rows.

        A new source or filter comes with a new snapshot, except with updates only.
        """
        of_updates = self.mode is SubscribeMode.UPDATES_ONLY
        return {**super().row_settings, **({"source": self.source, "filter": self.filter} if of_updates else {})}

    def stream(self, name: str) -> str:
        """Return the name of the stream that feeds the silver table ``name``.

        With updates only, a new source or filter makes another stream: no snapshot separates the rows of the two.
        """
        if self.mode is not SubscribeMode.UPDATES_ONLY:
            return name
        return f"{name}/{self.source}?{self.filter}" if self.filter else f"{name}/{self.source}"

    @property
    def keeps_log(self) -> bool:
        """Return whether silver is an append-only changelog."""
        return self.mode is SubscribeMode.UPDATES_ONLY and self.apply == "log"

    @property
    def upserts(self) -> bool:
        """Return whether modifying a missing row creates it."""
        return self.mode is SubscribeMode.UPDATES_ONLY and self.apply == "upsert"

    @model_validator(mode="after")
    def _fits_together(self) -> DeephavenTable:
        for setting, mode in _ONLY_WITH.items():
            if setting in self.model_fields_set and self.mode is not mode:
                raise ValueError(f"{setting} only with mode = {mode.value}")
        if len(set(self.columns)) < len(self.columns):
            raise ValueError("each of columns once")
        for setting, names in (("keys", self.keys), ("decimals", self.decimals)):
            missing = [name for name in names if self.columns and name not in self.columns]
            if missing:
                raise ValueError(f"{setting} among columns, which lack {', '.join(missing)}")
        if self.keys and self.mode is SubscribeMode.UPDATES_ONLY:
            raise ValueError("keys with a mode that has snapshots: updates alone name rows by their row keys")
        if self.keeps_history and self.keeps_log:
            raise ValueError("stored_as_scd_type = 2 with apply = upsert: a log is a history already")
        if self.keeps_history and self.keys:
            raise ValueError("stored_as_scd_type = 2 without keys: versions are those of a row key")
        if self.expect and self.keeps_log:
            raise ValueError("expect with apply = upsert: a log has changes, not rows")
        return self


DeephavenFeed: TypeAlias = Feed[DeephavenOptions, DeephavenTable]
"""A feed of this connector."""
