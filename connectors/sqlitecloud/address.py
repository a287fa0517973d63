"""What a feed's settings connect to: the database of its ``address``, a connection string, with its credentials."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import SecretStr, ValidationError

from silverfold.conf.errors import ConfigError
from silverfold.conf.secrets import Secret
from silverfold.conf.validate import HIDDEN
from silverfold.connectors.base import Problem
from silverfold.connectors.sqlitecloud.client.settings import ApiKey, ConnectionSettings, Credentials, Password, Token
from silverfold.connectors.sqlitecloud.client.urls import parse_connection_string
from silverfold.connectors.sqlitecloud.options import SqliteCloudFeed, SqliteCloudOptions
from silverfold.connectors.sqlitecloud.protocol.statements import is_safe_word

_DUMMY_CREDENTIALS = ApiKey(secret=SecretStr("none"))
"""Dummy credentials for checking an address without resolving secrets."""


def connection_settings(feed: SqliteCloudFeed, environ: Mapping[str, str]) -> ConnectionSettings:
    """Return the connection settings, secrets included: do not log or store them.

    ``max_rows`` comes from the options, else from ``maxrows`` in the connection string, else from their common default.

    Raises:
        ConfigError: A secret cannot be resolved, or a setting is invalid.
    """
    options = feed.options
    key = "options"
    try:
        credentials = _credentials(options, environ)
        key = "address" if options.connection is None else "options.connection"
        settings = _parse(
            feed.address if options.connection is None else options.connection.reveal(environ, key), credentials
        )
    except ValueError as error:
        file = f"feeds/{feed.name}.toml"
        raise ConfigError(file=file, key=key, found=HIDDEN, allowed=str(error)) from None
    if "max_rows" in settings.model_fields_set and "max_rows" not in options.model_fields_set:
        return settings
    return settings.model_copy(update={"max_rows": options.max_rows})


def connection_problems(feed: SqliteCloudFeed) -> Iterator[Problem]:
    """Yield problems with the address. Secrets are not resolved; the address is shown without its credentials."""
    options = feed.options
    if options.connection is not None:
        if feed.address:
            yield Problem("address", "a second connection string", "none: options.connection is set")
        return
    if isinstance(options.user, str) and not is_safe_word(options.user):
        yield Problem("options.user", options.user, "one word, without white space, quotes and semicolons")
    secrets = (options.password, options.apikey, options.token)
    credentials = _DUMMY_CREDENTIALS if any(secret is not None for secret in secrets) else None
    try:
        settings = _parse(feed.address, credentials)
    except ValueError as error:
        yield Problem("address", _without_query(feed.address), str(error))
        return
    if settings.database is None:
        yield Problem("address", _without_query(feed.address), "a connection string with a database: …/name.db")


def _parse(text: str, credentials: Credentials | None = None) -> ConnectionSettings:
    """Parse a connection string (`parse_connection_string`). Reject ``noblob`` and ``maxdata`` with ValueError."""
    settings = parse_connection_string(text, credentials=credentials)
    if settings.no_blob or settings.max_data:
        raise ValueError("no noblob and no maxdata: snapshots would have NULL for what they leave out")
    return settings


def _credentials(options: SqliteCloudOptions, environ: Mapping[str, str]) -> Credentials | None:
    def reveal_secret(name: str, secret: Secret) -> SecretStr:
        return SecretStr(secret.reveal(environ, f"options.{name}"))

    try:
        if options.apikey is not None:
            return ApiKey(secret=reveal_secret("apikey", options.apikey))
        if options.token is not None:
            return Token(secret=reveal_secret("token", options.token))
        if options.password is None or options.user is None:
            return None
        user = options.user if isinstance(options.user, str) else options.user.reveal(environ, "options.user")
        return Password(user=user, secret=reveal_secret("password", options.password))
    except ValidationError:
        raise ValueError("credentials of one word each, without white space, quotes and semicolons") from None


def _without_query(address: str) -> str:
    """Return the part of an address that is safe to show: no login, no query."""
    return address.partition("?")[0].rpartition("@")[2]
