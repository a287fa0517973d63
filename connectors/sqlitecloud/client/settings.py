"""Settings for starting a session: address, credentials and encryption.

No repr shows a secret. Every value pasted into the login is a single word: `statements.is_safe_word`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

from silverfold.conf.model import PathText
from silverfold.connectors.sqlitecloud.protocol.messages import Login
from silverfold.connectors.sqlitecloud.protocol.statements import is_safe_word

PORT: Final = 8860
MAX_ROWS: Final = 5_000
"""Rows in a chunk of a result, which bounds the memory of a snapshot."""
TIMEOUT: Final = 10.0
IN_MEMORY: Final = ":memory:"

_MOST: Final = (1 << 31) - 1


def _word(text: str) -> str:
    if not is_safe_word(text):
        raise ValueError("one word, without white space, control characters, quotes or semicolons")
    return text


def _secret_word(secret: SecretStr) -> SecretStr:
    _word(secret.get_secret_value())
    return secret


Word: TypeAlias = Annotated[str, AfterValidator(_word)]
SecretWord: TypeAlias = Annotated[SecretStr, AfterValidator(_secret_word)]
Count: TypeAlias = Annotated[int, Field(ge=0, le=_MOST)]


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Password(_Frozen):
    """Credentials: a user and a password."""

    user: Word
    secret: SecretWord

    @property
    def command(self) -> str:
        """The login command. Do not log it."""
        return f"AUTH USER {self.user} PASSWORD {self.secret.get_secret_value()}"


class ApiKey(_Frozen):
    """Credentials: an API key."""

    secret: SecretWord

    @property
    def command(self) -> str:
        """The login command. Do not log it."""
        return f"AUTH APIKEY {self.secret.get_secret_value()}"


class Token(_Frozen):
    """Credentials: an access token."""

    secret: SecretWord

    @property
    def command(self) -> str:
        """The login command. Do not log it."""
        return f"AUTH TOKEN {self.secret.get_secret_value()}"


Credentials: TypeAlias = Password | ApiKey | Token


class Tls(_Frozen):
    """TLS settings of a connection."""

    verify: bool = True
    """Whether the server's certificate must be valid for its host name."""
    root_certificate: PathText | None = None
    """File of trusted authorities; None for the system's."""
    client_certificate: PathText | None = None
    client_certificate_key: PathText | None = None


class ConnectionSettings(_Frozen):
    """The location of a database, and how to start a session with it. Its repr hides secrets."""

    host: Word
    port: Annotated[int, Field(ge=1, le=65535)] = PORT
    credentials: Credentials
    database: Word | None = None
    tls: Tls | None = Tls()
    """None: plain text."""
    timeout: Annotated[float, Field(gt=0, le=86_400)] = TIMEOUT
    """Seconds to wait for a connection, and for a reply to begin."""
    compression: bool = False
    zero_text: bool = False
    no_blob: bool = False
    max_data: Count = 0
    max_rows: Count = MAX_ROWS
    max_rowset: Count = 0
    memory: bool = False
    """Use an in-memory database."""
    create: bool = False
    """Create the database if it does not exist."""
    non_linearizable: bool = False
    """Allow replies from a node that lags behind. A snapshot may then be older than earlier notifications."""

    @property
    def login(self) -> Login:
        """The first request of a session: all commands in one text, in the order of the official clients."""
        return Login("".join(self._commands()), (self.credentials.secret.get_secret_value(),))

    def _commands(self) -> Iterator[str]:
        if self.non_linearizable:
            yield "SET CLIENT KEY NONLINEARIZABLE TO 1;"
        yield f"{self.credentials.command};"
        database = self.database or (IN_MEMORY if self.memory else None)
        if database and self.create and not self.memory:
            yield f"CREATE DATABASE {database} IF NOT EXISTS;"
        if database:
            yield f"USE DATABASE {database};"
        for key, value in self._client_keys():
            if value:
                yield f"SET CLIENT KEY {key} TO {value:d};"

    def _client_keys(self) -> Iterator[tuple[str, int]]:
        yield "COMPRESSION", self.compression
        yield "ZEROTEXT", self.zero_text
        yield "NOBLOB", self.no_blob
        yield "MAXDATA", self.max_data
        yield "MAXROWS", self.max_rows
        yield "MAXROWSET", self.max_rowset
