"""How a session with a SQLite Cloud database begins: where, with which credentials, encrypted how.

Nothing here shows a secret of itself, and everything that is pasted into the login is one word: `naming.may_be_pasted`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

from connectors.sqlitecloud.messages import Login
from connectors.sqlitecloud.statements import may_be_pasted

PORT: Final = 8860
MAX_ROWS: Final = 5_000
"""Rows in a chunk of a result: bounds the memory that a snapshot takes."""
TIMEOUT: Final = 10.0
IN_MEMORY: Final = ":memory:"

_MOST: Final = (1 << 31) - 1


def _word(text: str) -> str:
    if not may_be_pasted(text):
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
        """What logs in with them. Not to be shown."""
        return f"AUTH USER {self.user} PASSWORD {self.secret.get_secret_value()}"


class ApiKey(_Frozen):
    """Credentials: an API key."""

    secret: SecretWord

    @property
    def command(self) -> str:
        """What logs in with it. Not to be shown."""
        return f"AUTH APIKEY {self.secret.get_secret_value()}"


class Token(_Frozen):
    """Credentials: an access token."""

    secret: SecretWord

    @property
    def command(self) -> str:
        """What logs in with it. Not to be shown."""
        return f"AUTH TOKEN {self.secret.get_secret_value()}"


Credentials: TypeAlias = Password | ApiKey | Token


class Tls(_Frozen):
    """How the connection is encrypted."""

    verify: bool = True
    """Whether the server's certificate must be valid and of its host name."""
    root_certificate: str | None = None
    """File of the authorities to trust; None for those of the system."""
    client_certificate: str | None = None
    client_certificate_key: str | None = None


class ConnectionSettings(_Frozen):
    """Where a database is, and how a session with it begins. Shows no secret of itself."""

    host: Word
    port: Annotated[int, Field(ge=1, le=65535)] = PORT
    credentials: Credentials
    database: Word | None = None
    tls: Tls | None = Tls()
    """None: plain text."""
    timeout: Annotated[float, Field(gt=0, le=86_400)] = TIMEOUT
    """Seconds to wait for a connection, and for an answer to begin."""
    compression: bool = False
    zero_text: bool = False
    no_blob: bool = False
    max_data: Count = 0
    max_rows: Count = MAX_ROWS
    max_rowset: Count = 0
    memory: bool = False
    """The database is in memory, and no file."""
    create: bool = False
    """Make the database if there is none."""
    non_linearizable: bool = False
    """Let a node answer that may lag behind. A snapshot may then be older than what was heard before."""

    @property
    def login(self) -> Login:
        """The first request of a session: all of it in one text, in the order of the official clients."""
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
