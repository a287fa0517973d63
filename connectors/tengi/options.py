"""The connector's own settings: a feed's ``options``, and the settings of its ``tables``."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import AfterValidator, Field, model_validator

from silverfold.conf.errors import InvalidValue
from silverfold.conf.model import PathText, Seconds, SourceName, Strict, Table
from silverfold.conf.names import caseless
from silverfold.conf.secrets import Secret
from silverfold.connectors.base import Feed
from silverfold.connectors.tengi.protocol.feed.columns import parse_type
from silverfold.connectors.tengi.protocol.limits import MAX_ANSWER, MAX_PACKET

ROW_NUMBER: Final = ("_sequence", "_ordinal")
"""Key columns of a table without keys at its source: ``seq`` of the row's update, and the row's number in it."""

_UNFIT_FOR_KEYS: Final = ("float", "double", "array", "map", "struct")
"""Types whose values have no order, or several forms, such as 0.0 and -0.0."""


def _type_text(text: str) -> str:
    try:
        return str(parse_type(text))
    except InvalidValue as error:
        allowed = "a type in Spark's DDL, such as bigint, decimal(10,2) or array<string>, with each field's name once"
        raise ValueError(f"{allowed}, and string for varchar and char") from error


TypeText: TypeAlias = Annotated[str, AfterValidator(_type_text)]
ColumnName: TypeAlias = Annotated[str, Field(min_length=1)]
_Bytes: TypeAlias = Annotated[int, Field(ge=1 << 10, le=1 << 30)]


class TengiOptions(Strict):
    """A feed's ``options``.

    ``address`` is ``tengi://host:port``, without a port 8080: where the source listens, or with ``mode = "listen"``
    where the receiver does. A feed has one transport and tries no other. Of a source written in Java only ``http``
    brings packets whole and in order.
    """

    transport: str
    """``tcp``, ``websocket`` or ``http`` (long polling). Java's long names, such as ``tengi::transport::http/1.1``,
    mean the same."""
    mode: Literal["dial", "listen"] = "dial"
    """``dial`` connects to the source. With ``listen`` sources connect to the receiver."""
    tls: bool = False
    """Encrypt, with any transport."""
    tls_verify: bool = True
    """Trust only the certificates of known authorities. A source in Java has none: its certificate is new at each
    start."""
    tls_ca: PathText = ""
    """PEM file of the authorities to trust; by default those of the system."""
    tls_certificate: PathText = ""
    """With ``listen``: PEM file of the receiver's certificate."""
    tls_key: PathText = ""
    """PEM file of its key, if not in the same file."""
    handshake: dict[str, str | Secret] = Field(default_factory=dict)
    """Texts of the handshake, such as a token that the source demands. Secrets need ``tls``. With ``listen``: the texts
    that a source has to send. At most 64 KiB; to Java over ``tcp`` 400 bytes."""
    peer: Literal["tengi", "java"] = "tengi"
    """``java`` heeds the limits of the Java implementation. A source in Java over ``http`` needs it: it answers no
    post, which ends the connection otherwise."""
    handshake_timeout: Seconds = 10.0
    """Seconds for the answer to the handshake."""
    max_packet: _Bytes = MAX_PACKET
    """Longest packet to accept, in bytes; a handshake may be longer."""
    max_answer: _Bytes = MAX_ANSWER
    """Longest answer to a poll."""
    ping_interval: Annotated[Seconds, Field(le=45)] = 15.0
    """Seconds between pings, 45 at most: a source may end the connection of a receiver that is silent for 60. Their
    answers show that the source is there, and how far ahead: see ``status``."""
    dead_after: Seconds = 45.0
    """Seconds after which the connection is given up if the source sends no packet, or takes none. Longer than
    ``ping_interval`` by more than an answer takes; with ``http`` that is three ways through the network."""
    reorder_wait: Seconds = 5.0
    """Seconds to wait for a change that later ones have overtaken, before it is asked for again."""
    reorder_packets: int = Field(default=10_000, ge=1, le=10_000_000)
    """Most changes of a table to hold while an earlier one is missing."""
    reorder_bytes: _Bytes = 8 << 20
    """Most bytes of the held changes."""
    subscribe_wait: Seconds = 10.0
    """Seconds to wait for the answer to a subscription, before it is sent again. Each time in vain doubles it, up to 32
    times."""
    snapshot_wait: Seconds = 30.0
    """Seconds to wait for the next part of a snapshot, before a snapshot is asked for again. Each time without any part
    doubles it, up to 32 times."""
    resubscribe_idle: Seconds = 300.0
    """Seconds without a change after which a table is subscribed to again: its last change may be lost."""
    ack_interval: Seconds = 1.0
    """Seconds between acknowledgements of a table; each follows a commit."""
    snapshot_at_start: bool = False
    """Ask for a snapshot of each table when the receiver starts, even if the source can continue. That helps a table
    that was rebuilt without its first frames, or whose rows lack new columns until they change."""

    @model_validator(mode="after")
    def _fits_together(self) -> TengiOptions:
        if any(isinstance(each, Secret) for each in self.handshake.values()) and not self.tls:
            raise ValueError("tls = true with secrets in handshake: they would travel in clear text")
        if not self.tls and (self.tls_ca or self.tls_certificate or self.tls_key or not self.tls_verify):
            raise ValueError("tls = true with tls_verify, tls_ca, tls_certificate and tls_key")
        if self.tls_ca and not self.tls_verify:
            raise ValueError("tls_ca or tls_verify = false: nothing is verified with it")
        if self.mode == "listen" and self.tls and not self.tls_certificate:
            raise ValueError('tls_certificate with tls and mode = "listen"')
        if self.mode == "dial" and (self.tls_certificate or self.tls_key):
            raise ValueError('tls_certificate and tls_key with mode = "listen"')
        if self.mode == "listen" and (self.tls_ca or not self.tls_verify):
            raise ValueError('tls_ca and tls_verify with mode = "dial"')
        if self.dead_after <= self.ping_interval:
            raise ValueError("dead_after longer than ping_interval")
        return self


class TengiTable(Table):
    """One silver table: a table that the source publishes.

    Its columns and keys are those of the source, unless ``columns`` and ``keys`` declare others.

    | type | of |
    |---|---|
    | `tinyint`, `smallint`, `int`, `bigint` | Byte, Short, Integer, Long, any that fits |
    | `float`, `double` | Float; `double` also Double |
    | `boolean` | Byte 0 or 1 |
    | `string`, `binary` | String, byte[] |
    | `decimal(p,s)` | String, in plain notation |
    | `date` | days since 1970 |
    | `timestamp`, `timestamp_ntz` | microseconds since 1970 |
    | `array<T>`, `struct<name:T>`, `map<string,T>` | Packet |

    A value that does not fit its type holds the table, and is reported. Text with half of a surrogate pair fits no
    type: no setting replaces the half, for two keys could become one.
    """

    source: SourceName = ""
    """The table's name at the source; by default the table's own name."""
    keys: tuple[str, ...] = ()
    """Columns that name a row; by default those of the source. If the source has none either, rows are only added, and
    numbered: ``_sequence`` is the number of their update or snapshot, ``_ordinal`` their number in it."""
    columns: dict[ColumnName, TypeText] = Field(default_factory=dict)
    """Types of the columns, keys included, by name; by default those of the source. Others are ignored."""

    def stream(self, name: str) -> str:
        """Return the stream that feeds the silver table of a name."""
        return self.source or name

    @model_validator(mode="after")
    def _fits_together(self) -> TengiTable:
        names = [caseless(name) for name in self.columns]
        if len(set(names)) < len(names):
            raise ValueError("columns names each column once, and in one spelling")
        if not self.columns:
            return self
        if absent := [name for name in self.keys if name not in self.columns]:
            raise ValueError(f"columns with all keys: {absent[0]} is missing")
        if unfit := [name for name in self.keys if parse_type(self.columns[name]).name in _UNFIT_FOR_KEYS]:
            raise ValueError(f"keys of types with one form of each value, unlike {unfit[0]}")
        return self


TengiFeed: TypeAlias = Feed[TengiOptions, TengiTable]
"""A feed of this connector."""
