"""What a feed's settings say about its connection and its window of records under way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import SecretStr, ValidationError

from silverfold.conf.errors import ConfigError
from silverfold.connectors.base import Frame, Problem, mark
from silverfold.connectors.hstreamdb.client.settings import ConnectionSettings, Tls
from silverfold.connectors.hstreamdb.options import HStreamFeed

COMMIT_SECONDS, ANSWER_SECONDS = 0.2, 0.05
"""Assumed time of a commit, and until the server has an acknowledgement."""
FEW_RECORDS = 10_000
"""A window that allows fewer records a second is worth a warning."""


def connection_settings(feed: HStreamFeed, environ: Mapping[str, str]) -> ConnectionSettings:
    """Return the settings of the client, with secrets. Raises ConfigError if one cannot be used."""
    token = feed.options.token
    try:
        return _settings(feed, None if token is None else SecretStr(token.reveal(environ)))
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
    files = {
        "root_certificate": options.ca,
        "client_certificate": options.certificate,
        "client_certificate_key": options.certificate_key,
    }
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


def window_marks(feed: HStreamFeed, *, max_unacked: int, ack_timeout: int) -> list[Frame]:
    """Return warnings about a window that is too small for the feed's commits, or a time-out too short for them.

    The arithmetic is in them: what is landed is acknowledged after its commit, so there is never more under way than
    ``max_unacked``, and all of it takes a commit's interval and time to be acknowledged.
    """
    seconds = feed.commit.interval_ms / 1000 + COMMIT_SECONDS + ANSWER_SECONDS
    marks = []
    if (rate := max_unacked / seconds) < FEW_RECORDS:
        arithmetic = (
            f"max_unacked_records {max_unacked} / {seconds:g} s to commit and acknowledge = {rate:.0f} records/s"
        )
        marks.append(mark("small window", level="warning", at_most=arithmetic))
    if ack_timeout < 3 * seconds:
        arithmetic = f"ack_timeout_seconds {ack_timeout} < 3 x {seconds:g} s to commit and acknowledge"
        marks.append(mark("short ack timeout", level="warning", comes_twice=arithmetic))
    return marks
