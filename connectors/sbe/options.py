"""The connector's settings models: a feed's ``options`` and its ``tables``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from silverfold.conf.model import Seconds, SourceName, Strict, Table
from silverfold.connectors.wire.framing.known import FRAMINGS
from silverfold.connectors.wire.framing.settings import Framing

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
        raise ValueError(f"one of {', '.join(FRAMINGS)}, or a table that describes a framing")
    return FRAMINGS[given]


def _with_tuples(given: object) -> object:
    if isinstance(given, dict):
        return {name: _with_tuples(value) for name, value in given.items()}
    return tuple(map(_with_tuples, given)) if isinstance(given, list) else given


class SbeOptions(Strict):
    """A feed's ``options``.

    Args:
        schema_: Setting ``schema``: path of the XML, or ``builtin`` for what ``silverfold simulate sbe`` speaks.
        accept: Codes of mistakes of the schema to pass over, as ``silverfold sbe validate --accept`` does.
        framing: How messages stand in the stream: a name, or a table with the settings of
            `connectors.wire.framing.settings.Framing`.
        max_message: Longest message to accept, in bytes; None leaves it to the framing.
        silent_after: Seconds without a byte after which a connection counts as lost; None for never.
    """

    schema_: str = Field(alias="schema", min_length=1)
    accept: tuple[Literal["E14", "E24"], ...] = ()
    framing: Annotated[Framing, BeforeValidator(_framing)]
    max_message: int | None = Field(default=None, ge=1, le=_LARGEST)
    silent_after: Seconds | None = None


class SbeTable(Table):
    """One silver table, of one template.

    Args:
        source: Setting ``template``: the message's name in the schema; empty for the table's own name.
        group: Dotted path of a group: a row for each of its entries. Empty: a row for each message.
        with_: Setting ``with``: of what encloses the entries, which columns their rows have; None for all fields.
        groups: What becomes of groups inside: columns of arrays, or nothing.
        decimals: Composites of a mantissa and a constant exponent from -38 to 0 are decimals, not structs.
        timestamps: Fields that are called UTCTimestamp, by semantic type or type, are timestamps, not numbers: in their
            `timeUnit`, nanoseconds without one.
        sets: Sets are lists of names, which bits without a name are not in, or integers, which have all bits.
        text: Bytes that are not text in their charset make a frame unreadable, or become U+FFFD.
        unknown_values: What an enum's column has for a value that the schema does not know: what was sent, as text (of
            a character that is another value's name, its number), or the frame cannot be read (``error``). In a key it
            never can, inside arrays and composites always.
        absent: Without ``keys``: what is not in a message, being newer than its version or beyond its block, is NULL,
            as what was sent as null is; with ``listed`` the column ``_sent`` names what is in it.
        operation: With ``keys``: the column of an enum that says what is done to the row. Empty: every row upserts.
        inserts, updates, deletes: Its values, by what they do. Without any of them, names such as New, Change, Delete.
    """

    ROW_SETTINGS = ("group", "operation", "inserts", "updates", "deletes", "unknown_values", "absent")

    source: SourceName = Field(default="", alias="template")
    group: str = ""
    with_: tuple[Name, ...] | None = Field(default=None, alias="with")
    groups: Literal["arrays", "omit"] = "arrays"
    decimals: bool = False
    timestamps: bool = False
    sets: Literal["names", "integer"] = "names"
    text: Literal["strict", "replace"] = "strict"
    unknown_values: Literal["keep", "error"] = "keep"
    absent: Literal["null", "listed"] = "null"
    operation: str = ""
    inserts: tuple[Name, ...] = ()
    updates: tuple[Name, ...] = ()
    deletes: tuple[Name, ...] = ()

    @property
    def path(self) -> tuple[str, ...]:
        """Names of the groups from the message down to the entries; empty for the message itself."""
        return tuple(self.group.split(".")) if self.group else ()

    @model_validator(mode="after")
    def _fits_together(self) -> SbeTable:
        values = [*self.inserts, *self.updates, *self.deletes]
        if self.with_ is not None and not self.group:
            raise ValueError("with only with group: a row of a message has all of its fields")
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
