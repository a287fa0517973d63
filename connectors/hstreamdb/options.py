"""The connector's own settings: a feed's ``options`` and what its ``tables`` may say.

HRecords have no types but those of JSON, and their numbers are doubles: a table declares its columns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from pydantic import AfterValidator, Field, model_validator

from silverfold.conf.model import PathText, SourceName, Strict, Table, expanded
from silverfold.conf.names import caseless
from silverfold.conf.secrets import Secret
from silverfold.connectors.base import Feed

Layout: TypeAlias = Literal["auto", "unwrapped", "envelope", "operation", "row"]
Encoding: TypeAlias = Literal[
    "zero_one",
    "base64_decimal",
    "text_decimal",
    "epoch_days",
    "epoch_millis",
    "epoch_micros",
    "iso8601",
    "base64",
    "json_text",
]

INTEGERS: Final = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
"""Bits of the integer types."""
DECIMAL: Final = re.compile(r"decimal\(([1-9]|[12][0-9]|3[0-8]), ?([0-9]|[12][0-9]|3[0-8])\)")
ENCODINGS: Final[Mapping[str, tuple[Encoding | None, ...]]] = {
    **dict.fromkeys((*INTEGERS, "float", "double"), (None,)),
    "boolean": (None, "zero_one"),
    "decimal": ("text_decimal", "base64_decimal"),
    "date": ("iso8601", "epoch_days"),
    "timestamp": ("iso8601", "epoch_millis", "epoch_micros"),
    "string": (None, "json_text"),
    "binary": ("base64",),
}
"""Encodings of each type, the default first; None is the type's own form in JSON. A decimal has digits besides."""


def _type_name(name: str) -> str:
    found = DECIMAL.fullmatch(name)
    others = [each for each in ENCODINGS if each != "decimal"]
    if name not in others and (found is None or int(found[2]) > int(found[1])):
        raise ValueError(f"one of {', '.join(others)}, or decimal(precision, scale) of at most 38 digits")
    return name


TypeName: TypeAlias = Annotated[str, AfterValidator(_type_name)]
ColumnName: TypeAlias = Annotated[str, Field(min_length=1)]
Name: TypeAlias = Annotated[
    str, expanded(r"[^\W\d_][\w-]{0,254}", "a name: a letter, then up to 254 letters, digits, - and _")
]
"""Name of a stream or subscription."""


class HStreamOptions(Strict):
    """A feed's ``options``.

    ``address`` is ``hstream://host:port``, or ``hstreams://`` for TLS, with several hosts separated by commas; without
    a port it is 6570. A feed has one subscription, which nothing else may fetch from: what others acknowledge never
    lands.
    """

    stream: Name
    """The stream whose records the feed has."""
    subscription: Name
    """The feed's own subscription to it."""
    create: bool = True
    """Create the subscription if it does not exist."""
    offset: Literal["earliest", "latest"] = "earliest"
    """Where a subscription created so begins; at the earliest record, if it is created anew after frames landed."""
    ack_timeout_seconds: int = Field(default=60, ge=10, le=35_999)
    """Seconds after which the server sends again what is not acknowledged. Fixed when a subscription is created."""
    max_unacked_records: int = Field(default=100_000, ge=1, le=(1 << 31) - 1)
    """Most records sent and not acknowledged, over all consumers. Fixed when a subscription is created."""
    consumers: int = Field(default=1, ge=1, le=64)
    """Number of parallel fetches; more than the stream has shards are idle."""
    token: Secret | None = None
    """Token of the server, as a secret: base64 of ``user:password``."""
    token_without_tls: bool = False
    """Send the token over a connection that is not encrypted."""
    ca: PathText = ""
    """PEM file of the authorities to trust, with ``hstreams://``; by default those of the system."""
    certificate: PathText = ""
    """PEM file of the client's certificate, where the server demands one."""
    certificate_key: PathText = ""
    """PEM file of its key."""
    advertised: dict[str, str] = Field(default_factory=dict)
    """Addresses by which nodes are reachable from here, by the addresses they advertise: ``{ "node1:6570" =
    "10.0.0.1:16570" }``."""
    max_batch_bytes: int = Field(default=64 << 20, ge=1 << 10, le=1 << 30)
    """Most bytes of a batch, decompressed; its records may take 30 times as many in memory. A larger one is a bad
    frame."""
    committed_seconds: float = Field(default=60, ge=1, le=86_400, allow_inf_nan=False)
    """Seconds between looks at what the server has recorded as acknowledged; deletes older than that are forgotten."""

    @model_validator(mode="after")
    def _fits_together(self) -> HStreamOptions:
        if bool(self.certificate) != bool(self.certificate_key):
            raise ValueError("certificate and certificate_key together")
        if self.token_without_tls and self.token is None:
            raise ValueError("token_without_tls with token")
        return self


class HStreamTable(Table):
    """One silver table: the changes in the feed's stream, by declared columns. Several tables may have the same stream.

    Records are HRecords, or raw ones with a JSON object. A whole row takes the place of the row there was. A row that
    lacks declared columns changes the others. Members that are not declared are ignored. A raw record with half of a
    surrogate pair in any text cannot be read, and no setting replaces it: two keys could become one. Nor can one with
    an integer of more than 4,300 characters, its sign included, or with about 1,000 objects and lists in one another.

    | type | of |
    |---|---|
    | `tinyint`, `smallint`, `int`, `bigint` | whole numbers; in HRecords below 2^53, else `{"$numberLong": "…"}` |
    | `float`, `double` | numbers, NaN included |
    | `boolean` | true and false; with `zero_one` also 0 and 1 |
    | `decimal(p, s)` | `text_decimal` (default): numbers or their texts; `base64_decimal`: the unscaled value's bytes |
    | `date` | `iso8601` (default), or `epoch_days` |
    | `timestamp` | `iso8601` (default) with its zone, or `epoch_millis`, `epoch_micros` |
    | `binary` | `base64` |
    | `string` | texts; with `json_text` any value as JSON, members sorted, of at most 300 levels |
    """

    ROW_SETTINGS: ClassVar[tuple[str, ...]] = ("layout", "trust_key", "operation_member", "operation_form")

    source: SourceName = ""
    """The stream's name; may be left out."""
    keys: tuple[str, ...] = ()
    """Columns that name a row, at least one. The producers' partition key must follow from them."""
    columns: dict[ColumnName, TypeName] = Field(default_factory=dict)
    """Types of the columns, keys included, by name. A wider type is followed; a column that is added or left out needs
    ``silverfold rebuild``, since what landed has values of it too. A table on a base has no such way: decide before
    frames are dropped (``bronze_days``)."""
    encodings: dict[ColumnName, Encoding] = Field(default_factory=dict)
    """How values of columns arrive, by name, if not by the default."""
    layout: Layout = "auto"
    """Form of a change: ``unwrapped`` (``key`` and ``value``, as HStream's connectors write it), ``envelope`` (of
    Debezium: ``before``, ``after``, ``op``), ``operation`` (named, with ``key``, ``row``, ``old_key``), ``row``, or
    detected for each record. A table with a column ``op`` or ``key`` should name it."""
    operation_member: ColumnName = "op"
    """Layout ``operation``: the member with INSERT, UPDATE or DELETE."""
    operation_form: Literal["nested", "flat"] = "nested"
    """Layout ``operation``: the columns are in ``key`` and ``row``, or beside the operation (``flat``)."""
    trust_key: bool = False
    """Layout ``unwrapped``: take the key from ``key``, even where the row has another, as MongoDB's are."""

    @property
    def row_settings(self) -> dict[str, str | list[str]]:
        """Values of the settings that determine the table's rows and do not show in its columns."""
        encodings = {name: self.encoding(name) for name in sorted(self.columns)}
        columns = [name if encoding is None else f"{name} ({encoding})" for name, encoding in encodings.items()]
        return {**super().row_settings, "columns": columns}

    def encoding(self, column: str) -> Encoding | None:
        """Return the encoding of a column; None for its type's own form."""
        kind = self.columns[column].partition("(")[0]
        return self.encodings.get(column, ENCODINGS[kind][0])

    @model_validator(mode="after")
    def _names_its_rows(self) -> HStreamTable:
        if not self.columns:
            raise ValueError("columns: records do not tell the types of their values")
        names = [caseless(name) for name in self.columns]
        if len(set(names)) < len(names):
            raise ValueError("columns names each column once, and in one spelling")
        return self

    @model_validator(mode="after")
    def _has_keys(self) -> HStreamTable:
        if not self.keys:
            raise ValueError("keys: no record tells which columns name a row")
        if absent := [name for name in self.keys if name not in self.columns]:
            raise ValueError(f"columns with all keys: {absent[0]} is missing")
        if floats := [name for name in self.keys if self.columns[name] in ("float", "double")]:
            raise ValueError(f"keys of any type but float and double, unlike {floats[0]}: 0.0 and -0.0 are one number")
        return self

    @model_validator(mode="after")
    def _has_no_operation_among_its_columns(self) -> HStreamTable:
        if self.operation_form == "flat" and self.operation_member in self.columns:
            raise ValueError(f"columns beside {self.operation_member}, which operation_member takes from the record")
        return self

    @model_validator(mode="after")
    def _encodings_fit(self) -> HStreamTable:
        for name, encoding in self.encodings.items():
            if name not in self.columns:
                raise ValueError(f"encodings of columns: {name} is none")
            kind = self.columns[name].partition("(")[0]
            if encoding not in ENCODINGS[kind]:
                allowed = ", ".join(filter(None, ENCODINGS[kind])) or "none"
                raise ValueError(f"encodings: for {name}, of type {kind}, {allowed}")
        return self


HStreamFeed: TypeAlias = Feed[HStreamOptions, HStreamTable]
"""A feed of this connector."""
