"""Where a feed's database is: its ``address``, a connection string, and the credentials that its options refer to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import SecretStr, ValidationError

from conf.errors import ConfigError
from conf.secrets import Secret
from conf.validate import HIDDEN
from connectors.base import Feed, Problem
from connectors.sqlitecloud.options import SqliteCloudOptions
from connectors.sqlitecloud.settings import ApiKey, ConnectionSettings, Credentials, Password, Token
from connectors.sqlitecloud.statements import may_be_pasted
from connectors.sqlitecloud.urls import parse_connection_string

_STANDS_IN = ApiKey(secret=SecretStr("none"))
"""To look at an address whose secrets are not to be looked at."""


def connection_settings(feed: Feed, environ: Mapping[str, str]) -> ConnectionSettings:
    """Return how to connect, with all secrets: do not log or keep it.

    ``max_rows`` is that of the options, else ``maxrows`` of the connection string, else the default of both.

    Raises:
        ConfigError: A secret is not where its reference says, or cannot be used.
    """
    options = _options(feed)
    key = "options"
    try:
        credentials = _credentials(options, environ)
        key = "address" if options.connection is None else "options.connection"
        found = _parsed(feed.address if options.connection is None else options.connection.reveal(environ), credentials)
    except ValueError as error:
        file = f"feeds/{feed.name}.toml"
        raise ConfigError(file=file, key=key, found=HIDDEN, allowed=str(error)) from None
    if "max_rows" in found.model_fields_set and "max_rows" not in options.model_fields_set:
        return found
    return found.model_copy(update={"max_rows": options.max_rows})


def address_problems(feed: Feed) -> Iterator[Problem]:
    """Yield what is wrong with the address. Secrets are not looked for; the address itself is not shown."""
    options = _options(feed)
    if options.connection is not None:
        if feed.address:
            yield Problem("address", "a second connection string", "none: options.connection is set")
        return
    if isinstance(options.user, str) and not may_be_pasted(options.user):
        yield Problem("options.user", options.user, "one word, without white space, quotes and semicolons")
    secrets = (options.password, options.apikey, options.token)
    given = _STANDS_IN if any(secret is not None for secret in secrets) else None
    try:
        found = _parsed(feed.address, given)
    except ValueError as error:
        yield Problem("address", _without_query(feed.address), str(error))
        return
    if found.database is None:
        yield Problem("address", _without_query(feed.address), "a connection string with a database: …/name.db")


def _parsed(text: str, credentials: Credentials | None = None) -> ConnectionSettings:
    """Return what a connection string says; see `parse_connection_string`. Raises ValueError also for leaving out."""
    found = parse_connection_string(text, credentials=credentials)
    if found.no_blob or found.max_data:
        raise ValueError("no noblob and no maxdata: snapshots would have NULL for what they leave out")
    return found


def _credentials(options: SqliteCloudOptions, environ: Mapping[str, str]) -> Credentials | None:
    def revealed(secret: Secret) -> SecretStr:
        return SecretStr(secret.reveal(environ))

    try:
        if options.apikey is not None:
            return ApiKey(secret=revealed(options.apikey))
        if options.token is not None:
            return Token(secret=revealed(options.token))
        if options.password is None or options.user is None:
            return None
        user = options.user if isinstance(options.user, str) else options.user.reveal(environ)
        return Password(user=user, secret=revealed(options.password))
    except ValidationError:
        raise ValueError("credentials of one word each, without white space, quotes and semicolons") from None


def _without_query(address: str) -> str:
    """Return what may be shown of an address that may hold credentials."""
    return address.partition("?")[0].rpartition("@")[2]


def _options(feed: Feed) -> SqliteCloudOptions:
    assert isinstance(feed.options, SqliteCloudOptions)
    return feed.options
