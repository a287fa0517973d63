"""The connector's settings models: a feed's ``options`` and its ``tables``."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field, model_validator

from silverfold.conf.model import PathText, Seconds, SourceName, Strict, Table
from silverfold.connectors.base import Feed
from silverfold.connectors.wire.framing.framings import FRAMINGS
from silverfold.connectors.wire.framing.settings import Framing
from silverfold.connectors.wire.sbe.schema.model import TimeUnit

SENT = "_sent"
"""Column that lists the fields present in a message."""

INSERTS = ("New", "Add", "Insert", "Create")
"""Value names that insert a row if ``inserts`` is not set; case-insensitive, like those below."""
UPDATES = ("Change", "Update", "Modify", "Replace")
DELETES = ("Delete", "Remove", "Cancel")

Name = Annotated[str, Field(min_length=1)]

_LARGEST = 1 << 30


def _framing(given: object) -> object:
    """Return the framing with the given name; any other value, such as a table, with its lists as tuples."""
    if not isinstance(given, str):
        return _with_tuples(given)
    if given not in FRAMINGS:
        names = ", ".join(name for name, framing in FRAMINGS.items() if not framing.needs_datagrams)
        raise ValueError(f"one of {names}, or a table that describes a framing")
    return FRAMINGS[given]


def _with_tuples(given: object) -> object:
    if isinstance(given, dict):
        return {name: _with_tuples(value) for name, value in given.items()}
    return tuple(map(_with_tuples, given)) if isinstance(given, list) else given


class SbeOptions(Strict):
    """A feed's ``options``.

    ``address`` is ``host:port``, or ``file:PATH`` for a file of frames, which is read on as it grows. Tables have a
    ``template`` instead of a ``source``.
    """

    schema_: PathText = Field(alias="schema", min_length=1)
    """Path of the SBE schema's XML, or ``builtin``: what ``silverfold simulate sbe`` speaks."""
    accept: tuple[Literal["E14", "E24"], ...] = ()
    """Mistakes of the schema to accept, as ``silverfold sbe validate --accept`` does: ``E14`` (an enum lists its null
    value), ``E24`` (semantic types differ)."""
    framing: Annotated[Framing, BeforeValidator(_framing)]
    """Framing of the messages: a name (``silverfold sbe decode --help`` lists them; ``cme-mdp3``, ``cme-mdp3-feca`` and
    ``b3-umdf`` are for datagrams only), or a table with the settings of
    ``connectors/wire/framing/settings.py``."""
    max_message: int | None = Field(default=None, ge=1, le=_LARGEST)
    """Longest message to accept, in bytes; if unset, the framing's own bound."""
    silent_after: Seconds | None = None
    """Seconds without a byte after which a connection counts as lost, and is made anew. Set it if the source is known
    to send at least as often."""


class SbeTable(Table):
    """One silver table, of one template."""

    ROW_SETTINGS = ("group", "operation", "inserts", "updates", "deletes", "unknown_values", "absent", "time_unit")

    source: SourceName = Field(default="", alias="template")
    """The message's name in the schema; by default the table's own name."""
    group: str = ""
    """Dotted path of a group: one row per entry. Without it, one row per message."""
    with_: tuple[Name, ...] | None = Field(default=None, alias="with")
    """With ``group``: columns that rows take from what encloses the entries; by default all fields."""
    groups: Literal["arrays", "omit"] = "arrays"
    """Groups inside become columns of ``arrays``, or nothing with ``omit``. No column holds a group without members."""
    decimals: bool = False
    """Composites of a mantissa and a constant exponent from -38 to 0 become decimals, not structs."""
    timestamps: bool = False
    """Fields called UTCTimestamp, by semantic type or type, become timestamps, not numbers: in their ``timeUnit``, or
    else in ``time_unit``."""
    time_unit: TimeUnit = "nanosecond"
    """With ``timestamps``: unit of integer fields whose schema has no ``timeUnit`` for them: ``second``,
    ``millisecond``, ``microsecond``, or ``nanosecond`` as in SBE 1.0. Times in January 1970 are a sign of a wrong
    one."""
    sets: Literal["names", "integer"] = "names"
    """Sets become lists of ``names``, without bits that have no name, or an ``integer`` with all bits."""
    text: Literal["strict", "replace"] = "strict"
    """Bytes that are not text in their charset: ``strict`` cannot decode the frame, ``replace`` writes U+FFFD."""
    unknown_values: Literal["keep", "error"] = "keep"
    """Values of an enum that the schema does not name. ``keep`` stores what was sent, as text; a character that is the
    name of another value is stored as its number. With ``error`` the table waits for a schema that names the value. In
    a key it always does, inside arrays and composites never."""
    absent: Literal["null", "listed"] = "null"
    """Without ``keys``: fields that a message lacks, being newer than its version or beyond its block, are NULL like
    those sent as null. With ``listed``, a column ``_sent`` names the fields that it has."""
    operation: str = ""
    """With ``keys``: enum column with the operation on the row. Without ``operation``, every row upserts. Without
    ``keys``, every row is added as it came."""
    inserts: tuple[Name, ...] = ()
    """Values of ``operation`` that insert a row. If none of the three lists is set: New, Add, Insert, Create."""
    updates: tuple[Name, ...] = ()
    """Values that change a row: Change, Update, Modify, Replace."""
    deletes: tuple[Name, ...] = ()
    """Values that delete a row: Delete, Remove, Cancel. Any other value holds the table."""

    @property
    def path(self) -> tuple[str, ...]:
        """Names of the groups from the message down to the entries; empty for the message itself."""
        return tuple(self.group.split(".")) if self.group else ()

    @model_validator(mode="after")
    def _fits_together(self) -> SbeTable:
        values = [*self.inserts, *self.updates, *self.deletes]
        if self.with_ is not None and not self.group:
            raise ValueError("with only with group: a row of a message has all of its fields")
        if self.time_unit != "nanosecond" and not self.timestamps:
            raise ValueError("time_unit only with timestamps = true")
        if values and not self.operation:
            raise ValueError("inserts, updates and deletes only with operation")
        if len(set(values)) < len(values):
            raise ValueError("each value once in inserts, updates and deletes")
        if not self.keys:
            self._only_adds()
        elif self.absent == "listed":
            raise ValueError("absent = listed without keys: with them, what is not in a message stays as it was")
        return self

    def _only_adds(self) -> None:
        """Refuse settings without a meaning for a table that stores every row."""
        if self.operation:
            raise ValueError("operation with keys: it is done to the row of a key")
        if self.keeps_history:
            raise ValueError("stored_as_scd_type = 2 with keys: without, the table is a history already")
        if self.expect:
            raise ValueError("expect with keys: without, every row is kept as it came")
        if self.on_unexplained != "count":
            raise ValueError("on_unexplained with keys: without, no row is of another")


SbeFeed: TypeAlias = Feed[SbeOptions, SbeTable]
"""A feed of this connector."""
