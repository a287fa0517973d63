"""How a feed's settings connect: its address, its token as a secret, and the files of TLS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from pydantic import SecretStr, ValidationError

from silverfold.conf.errors import ConfigError
from silverfold.connectors.base import Problem
from silverfold.connectors.hstreamdb.client.settings import ConnectionSettings, Tls
from silverfold.connectors.hstreamdb.options import HStreamFeed

TLS_FILES: Final = {
    "tls.root_certificate": "ca",
    "tls.client_certificate": "certificate",
    "tls.client_certificate_key": "certificate_key",
}
"""Options of a feed, by the client's names of them."""


def connection_settings(feed: HStreamFeed, environ: Mapping[str, str]) -> ConnectionSettings:
    """Return the settings of the client, with secrets. Raises ConfigError if one cannot be used."""
    token = feed.options.token
    try:
        return _settings(feed, None if token is None else SecretStr(token.reveal(environ, "options.token")))
    except ValidationError as error:
        raise _token_error(feed) if token is not None else error from None


def connection_problems(feed: HStreamFeed) -> Iterator[Problem]:
    """Yield what is wrong with the address, and with TLS settings that do not go with it. Reads no secret."""
    try:
        _settings(feed, None if feed.options.token is None else SecretStr("YTpi"))
    except ValidationError as error:
        for each in error.errors(include_url=False, include_context=False, include_input=False):
            key = {"url": "address", "advertised": "options.advertised"}.get(str((*each["loc"], "")[0]), "address")
            found = feed.options.advertised if key == "options.advertised" else feed.address
            yield Problem(key, found, each["msg"].removeprefix("Value error, "))


def _settings(feed: HStreamFeed, token: SecretStr | None) -> ConnectionSettings:
    options = feed.options
    files = {name.removeprefix("tls."): getattr(options, option) for name, option in TLS_FILES.items()}
    given = {name: path for name, path in files.items() if path}
    return ConnectionSettings(
        url=feed.address,
        tls=Tls(**given) if given else None,
        token=token,
        token_without_tls=options.token_without_tls,
        advertised=options.advertised,
    )


def _token_error(feed: HStreamFeed) -> ConfigError:
    allowed = "base64 of user:password"
    return ConfigError(file=f"feeds/{feed.name}.toml", key="options.token", found="a secret", allowed=allowed)
