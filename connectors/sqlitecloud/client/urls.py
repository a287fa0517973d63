"""Parsing of connection strings: ``sqlitecloud://[user:password@]host[:port][/database][?key=value&...]``.

An invalid string raises a ValueError that states what is allowed, and never shows a value: it may be a secret.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import unquote_to_bytes

from pydantic import SecretStr, ValidationError

from silverfold.conf.text import check_host
from silverfold.connectors.common.transport import is_loopback
from silverfold.connectors.sqlitecloud.client.settings import (
    PORT,
    ApiKey,
    ConnectionSettings,
    Credentials,
    Password,
    Tls,
    Token,
)

_FORM: Final = re.compile(
    r"sqlitecloud://(?:(?P<login>[^@/?#]*)@)?(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|(?P<host>[^\[\]@:/?#]+))"
    r"(?::(?P<port>[0-9]{1,5}))?(?:/(?P<database>[^/?#]*))?(?:\?(?P<query>[^#]*))?"
)
_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_Made = TypeVar("_Made")
_TRUTH: Final = {"0": False, "1": True, "false": False, "true": True}


def _boolean(text: str) -> bool:
    if text.lower() not in _TRUTH:
        raise ValueError("0, 1, true or false")
    return _TRUTH[text.lower()]


def _count(text: str) -> int:
    if not re.fullmatch("[0-9]{1,10}", text):
        raise ValueError("a whole number")
    return int(text)


def _seconds(text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", text):
        raise ValueError("a number of seconds")
    return float(text)


_KEYS: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "apikey": ("apikey", SecretStr),
    "token": ("token", SecretStr),
    "timeout": ("timeout", _seconds),
    "compression": ("compression", _boolean),
    "zerotext": ("zero_text", _boolean),
    "noblob": ("no_blob", _boolean),
    "maxdata": ("max_data", _count),
    "maxrows": ("max_rows", _count),
    "maxrowset": ("max_rowset", _count),
    "memory": ("memory", _boolean),
    "create": ("create", _boolean),
    "non_linearizable": ("non_linearizable", _boolean),
    "nonlinearizable": ("non_linearizable", _boolean),
    "insecure": ("insecure", _boolean),
    "no_verify_certificate": ("no_verify", _boolean),
    "root_certificate": ("root_certificate", str),
    "client_certificate": ("client_certificate", str),
    "certificate": ("client_certificate", str),
    "client_certificate_key": ("client_certificate_key", str),
    "certificate_key": ("client_certificate_key", str),
}
"""The field that each key sets, and the parser of its value. The official clients do not agree on all names."""


def parse_connection_string(text: str, *, credentials: Credentials | None = None) -> ConnectionSettings:
    """Parse a connection string.

    The keys are those of the official clients, case-insensitive. ``timeout`` is in seconds. Compression defaults to on,
    except on loopback hosts. A ``+`` is literal.

    Args:
        credentials: The credentials to use; the string must then have none.

    Raises:
        ValueError: A part is invalid or unknown, or there is not exactly one kind of credentials.
    """
    form = _FORM.fullmatch(text)
    if form is None:
        raise ValueError("sqlitecloud://[user:password@]host[:port][/database][?key=value&...], percent-encoded")
    options = _options(form["query"] or "")
    host = form["ipv6"] or _decode("host", form["host"])
    check_host(host)
    given = {
        "host": host,
        "port": int(form["port"]) if form["port"] else PORT,
        "credentials": _credentials(form["login"], options, credentials),
        "database": _decode("database", form["database"]) if form["database"] else None,
        "tls": _tls(options),
    }
    return _validate(lambda: ConnectionSettings(**{"compression": not is_loopback(host), **given, **options}))


def _options(query: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in query.split("&") if query else ():
        name, _, value = part.partition("=")
        field, read = _KEYS.get(name.lower(), ("", str))
        if not field:
            raise ValueError(_known_keys(name.lower()))
        if field in found:
            raise ValueError(f"{name.lower()} once only, under one of its names")
        try:
            found[field] = read(_decode(name.lower(), value))
        except ValueError as error:
            raise ValueError(f"{name.lower()}: {error}") from None
    return found


def _known_keys(name: str) -> str:
    """Return a hint with the known keys. The unknown one is hidden: it may be part of a secret with an ``&``."""
    near = difflib.get_close_matches(name, _KEYS, n=1)
    return f"known keys only{f', did you mean {near[0]}?' if near else ':'} {', '.join(sorted(_KEYS))}"


def _credentials(login: str | None, options: dict[str, Any], others: Credentials | None) -> Credentials:
    """Return the single kind of credentials, and remove it from the options."""
    apikey, token = options.pop("apikey", None), options.pop("token", None)
    kinds: list[Callable[[], Credentials]] = []
    if others is not None:
        kinds.append(lambda: others)
    if login is not None:
        kinds.append(lambda: _password(login))
    if apikey is not None:
        kinds.append(lambda: ApiKey(secret=apikey))
    if token is not None:
        kinds.append(lambda: Token(secret=token))
    if len(kinds) != 1:
        raise ValueError("one kind of credentials: user:password@, apikey or token")
    return _validate(kinds[0])


def _password(login: str) -> Password:
    user, colon, password = login.partition(":")
    if not colon:
        raise ValueError("a password behind the user: user:password@")
    return Password(user=_decode("user", user), secret=SecretStr(_decode("password", password)))


def _tls(options: dict[str, Any]) -> Tls | None:
    """Return the TLS settings, and remove them from the options."""
    insecure, no_verify = options.pop("insecure", False), options.pop("no_verify", False)
    files = {
        name: options.pop(name, None) for name in ("root_certificate", "client_certificate", "client_certificate_key")
    }
    if files["client_certificate_key"] and not files["client_certificate"]:
        raise ValueError("client_certificate_key only with client_certificate")
    return None if insecure else _validate(lambda: Tls(verify=not no_verify, **files))


def _decode(name: str, text: str) -> str:
    """Decode a percent-encoded text. Raise ValueError without showing it."""
    if _ESCAPE.search(text):
        raise ValueError(f"{name}: two hexadecimal digits behind each %")
    try:
        decoded = unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise ValueError(f"{name}: UTF-8, percent-encoded") from None
    if not decoded:
        raise ValueError(f"{name}: a value")
    return decoded


def _validate(make: Callable[[], _Made]) -> _Made:
    """Return the validated model, or raise ValueError with the problems but not the values."""
    try:
        return make()
    except ValidationError as error:
        findings = error.errors(include_url=False, include_input=False, include_context=False)
    wrong = [f"{finding['loc'][0]}: {finding['msg'].removeprefix('Value error, ')}" for finding in findings]
    raise ValueError("; ".join(wrong))
